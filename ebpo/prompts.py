"""Prompt templates, rendered once to token ids: training, measurement of difficulty and evaluation read these ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ebpo.config.types import TemplateName
from ebpo.files import atomic_path, file_digest

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt template.

    Attributes:
        text: what the user says; `{problem}` stands for the question.
        chat: whether the tokenizer's chat template surrounds it, up to the start of the assistant's turn.
        examples: in a chat, questions and answers of earlier turns, which show the form of an answer.
    """

    text: str
    chat: bool
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def surroundings(self) -> tuple[str, str]:
        """The text before the question and after it."""
        before, _, after = self.text.partition("{problem}")
        return before, after

    def messages(self, problem: str) -> list[dict[str, str]]:
        """The turns of the chat, the question last."""
        before, after = self.surroundings
        turns = []
        for question, answer in self.examples:
            turns += [
                {"role": "user", "content": before + question + after},
                {"role": "assistant", "content": answer},
            ]
        return [*turns, {"role": "user", "content": before + problem + after}]


TEMPLATES: Mapping[TemplateName, PromptTemplate] = {
    "plain": PromptTemplate("{problem}\n", chat=False),
    "chat": PromptTemplate("{problem}\n\nPut your final answer within \\boxed{}.", chat=True),
    # As in the prompts of BytedTsinghua-SIA/DAPO-Math-17k (arXiv 2503.14476).
    "dapo": PromptTemplate(
        "Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n{problem}\n\n"
        'Remember to put your answer on its own line after "Answer:".',
        chat=True,
    ),
    # For small policies, which do not follow an instruction about the form.
    "chat_examples": PromptTemplate(
        "{problem}",
        chat=True,
        examples=(
            ("Calculate 4 + 3.", "4 + 3 = 7. \\boxed{7}"),
            ("How many legs do 2 cats have?", "2 * 4 = 8. \\boxed{8}"),
        ),
    ),
}

# Llama 3's chat templates write today's date into the system prompt unless they are given one: prompts must not depend
# on the day. This is the date that Llama 3.1's template falls back to.
_DATE = "26 Jul 2024"

_SCHEMA = pa.schema([("id", pa.string()), ("token_ids", pa.list_(pa.int32())), ("tokens", pa.int32())])


def render(tokenizer: PreTrainedTokenizerBase, template: TemplateName, problem: str) -> list[int]:
    """Token ids of the prompt for a problem.

    Special tokens come from one place, so none is doubled: in a chat from the chat template alone; else the prompt
    starts with the tokenizer's beginning-of-sequence token if the tokenizer itself puts it before a text.

    Raises:
        ValueError: the template is a chat, and the tokenizer has no chat template.
    """
    form = TEMPLATES[template]
    if not form.chat:
        before, after = form.surroundings
        leading = list(tokenizer("")["input_ids"])[:1]
        start = leading if leading == [tokenizer.bos_token_id] else []
        return start + list(tokenizer(before + problem + after, add_special_tokens=False)["input_ids"])
    if not tokenizer.chat_template:
        plain = sorted(name for name, other in TEMPLATES.items() if not other.chat)
        raise ValueError(f"template: {template!r} needs a tokenizer with a chat template; allowed without one: {plain}")
    encoded = tokenizer.apply_chat_template(
        form.messages(problem),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        date_string=_DATE,
    )
    return list(encoded["input_ids"])


class RenderedSet(NamedTuple):
    """The prompts of a problem set.

    Attributes:
        prompts: problem id -> token ids, in the set's order.
        facts: numbers, lengths of what was dropped, digest and an example, for prompts.json.
    """

    prompts: dict[str, list[int]]
    facts: dict[str, Any]


def render_set(
    tokenizer: PreTrainedTokenizerBase,
    template: TemplateName,
    problems: Mapping[str, str],
    max_tokens: int,
    *,
    may_drop: bool,
) -> RenderedSet:
    """Renders a whole set; prompts are never cut.

    Args:
        problems: problem id -> question.
        may_drop: whether longer prompts leave the set, as in training; a benchmark must not shrink.

    Raises:
        ValueError: a prompt is longer than `max_tokens` and may not be dropped, or no prompt is left.
    """
    rendered = {identifier: render(tokenizer, template, question) for identifier, question in problems.items()}
    too_long = {identifier: len(ids) for identifier, ids in rendered.items() if len(ids) > max_tokens}
    if too_long and not may_drop:
        longest = max(too_long, key=lambda identifier: too_long[identifier])
        raise ValueError(
            f"{len(too_long)} prompts exceed training.max_prompt_tokens {max_tokens}, the longest is {longest} with "
            f"{too_long[longest]}; only training prompts are dropped, so raise the limit"
        )
    prompts = {identifier: ids for identifier, ids in rendered.items() if identifier not in too_long}
    if not prompts:
        raise ValueError(f"no prompt has at most training.max_prompt_tokens {max_tokens} tokens")
    facts = {
        "problems": len(rendered),
        "prompts": len(prompts),
        "longest": max(map(len, prompts.values())),
        "too_long": too_long,
        "sha256": prompts_digest(prompts),
        "example": tokenizer.decode(next(iter(prompts.values()))),
    }
    return RenderedSet(prompts, facts)


def tokenizer_digest(folder: Path) -> str:
    """SHA-256 (hex) of the files in a model's folder that decide how text becomes tokens."""
    digest = hashlib.sha256()
    patterns = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "chat_template*")
    for file in sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}):
        digest.update(f"{file.name} {file_digest(file)}\n".encode())
    return digest.hexdigest()


def prompts_digest(prompts: Mapping[str, Iterable[int]]) -> str:
    """SHA-256 (hex) of problem ids and token ids, in order."""
    digest = hashlib.sha256()
    for identifier, ids in prompts.items():
        digest.update(f"{identifier}:{','.join(map(str, ids))}\n".encode())
    return digest.hexdigest()


def write_prompts(path: Path, prompts: Mapping[str, list[int]]) -> None:
    """Writes a prompt table (parquet) atomically: id, token_ids (list of int32), tokens (their number)."""
    rows = [{"id": i, "token_ids": ids, "tokens": len(ids)} for i, ids in prompts.items()]
    with atomic_path(path) as partial:
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), partial)


def read_prompts(path: Path) -> dict[str, list[int]]:
    """Problem id -> token ids of its prompt, in the table's order.

    Raises:
        ValueError: a column is missing, or an id occurs twice.
    """
    table = pq.read_table(path)
    missing = [c for c in _SCHEMA.names if c not in table.column_names]
    if missing:
        raise ValueError(f"{path}: columns {missing} are missing; a prompt table has {_SCHEMA.names}")
    identifiers = table["id"].to_pylist()
    prompts = dict(zip(identifiers, table["token_ids"].to_pylist(), strict=True))
    if len(prompts) < len(identifiers):
        raise ValueError(f"{path}: a problem id occurs more than once; ids must be unique")
    return prompts
