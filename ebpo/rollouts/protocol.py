"""What the trainer and the evaluator ask of a rollout engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Sampling:
    """A complete sampling configuration; nothing is filled in from a model's generation_config.

    Sampling is from the full distribution (top_p 1, top_k off), since truncated sampling biases the importance ratio.

    Attributes:
        temperature: logits are divided by it.
        max_new_tokens: completion budget, the end-of-sequence token included.
        seed: the completions are a function of (weights, prompts, n, this configuration).
    """

    temperature: float
    max_new_tokens: int
    seed: int


@dataclass(frozen=True)
class Completion:
    """One sampled completion.

    Attributes:
        token_ids: sampled ids, the end-of-sequence token included where it was sampled.
        text: decoded without special tokens.
        finish_reason: `stop` at an end-of-sequence token, `length` at the budget (truncated).
    """

    token_ids: list[int]
    text: str
    finish_reason: FinishReason


class Rollouts(Protocol):
    """Samples completions."""

    def generate(self, prompt_ids: Sequence[Sequence[int]], n: int, sampling: Sampling) -> list[list[Completion]]:
        """`n` completions of each prompt, in the order of the prompts."""
        ...
