"""What the trainer and the evaluator ask of a rollout engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Sampling:
    """A complete sampling configuration; nothing is filled in from a model's generation_config.

    Sampling is from the full distribution (top_p 1, top_k off), since truncated sampling biases the importance ratio.

    Attributes:
        temperature: logits are divided by it; 0 takes the most probable token.
        max_new_tokens: completion budget, the end-of-sequence token included.
        seed: the completions are a function of (weights, prompt, its key, n, this configuration).
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
        logprobs: of the sampled tokens, as the engine computed them under softmax(logits / temperature); None where
            it was not asked for them.
        entropies: of the distributions that the tokens were drawn from, in nats; None where the engine knows none.
    """

    token_ids: list[int]
    text: str
    finish_reason: FinishReason
    logprobs: list[float] | None = None
    entropies: list[float] | None = None


class Rollouts(Protocol):
    """Samples completions."""

    def generate(
        self, prompt_ids: Sequence[Sequence[int]], n: int, sampling: Sampling, keys: Sequence[int] | None = None
    ) -> list[list[Completion]]:
        """`n` completions of each prompt, in the order of the prompts.

        Args:
            keys: one per prompt; a prompt's random stream is a function of (sampling.seed, key), so that it does not
                depend on which other prompts are sampled with it, or by which process. None numbers the prompts.
        """
        ...


class RolloutEngine(Rollouts, Protocol):
    """Samples completions of a policy that may be trained.

    A training step is `sync`, any number of `generate`, `sleep`, and then the optimizer updates.

    Attributes:
        tokenizer: of the policy.
        eos_ids: the ids that end a completion.
    """

    tokenizer: PreTrainedTokenizerBase
    eos_ids: list[int]

    def sync(self, model: PreTrainedModel) -> None:
        """Samples from `model`'s present weights from now on; wakes the engine.

        Raises:
            ValueError: the engine holds other weights afterwards.
        """
        ...

    def sleep(self) -> None:
        """Gives back the memory that only sampling needs, until `sync`."""
        ...
