"""Prompt templates, rendered once to token ids: training and evaluation use this one renderer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Template = Literal["plain", "chat"]


def render(tokenizer: PreTrainedTokenizerBase, template: Template, problem: str) -> list[int]:
    """Token ids of the prompt for a problem.

    `plain` is the problem and a newline, without special tokens. `chat` is the tokenizer's chat template with the
    request to box the answer; its ids are taken from the template itself, so no special token is added twice.
    """
    if template == "plain":
        return list(tokenizer(f"{problem}\n", add_special_tokens=False)["input_ids"])
    message = f"{problem}\n\nPut your final answer within \\boxed{{}}."
    encoded = tokenizer.apply_chat_template(
        [{"role": "user", "content": message}], add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(encoded["input_ids"])


def render_all(
    tokenizer: PreTrainedTokenizerBase, template: Template, problems: Sequence[tuple[str, str]], max_tokens: int
) -> list[list[int]]:
    """Renders (id, problem) pairs.

    Raises:
        ValueError: a prompt is longer than `max_tokens`; prompts are never cut.
    """
    rendered = [render(tokenizer, template, problem) for _, problem in problems]
    long = [(i, len(ids)) for (i, _), ids in zip(problems, rendered, strict=True) if len(ids) > max_tokens]
    if long:
        identifier, length = max(long, key=lambda pair: pair[1])
        raise ValueError(
            f"{len(long)} prompts exceed max_prompt_tokens {max_tokens}; the longest is {identifier} with {length}"
        )
    return rendered
