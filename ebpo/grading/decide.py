"""One answer against one gold: the same steps in the caller's process (without SymPy) and in a worker (with it)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from functools import lru_cache
from typing import get_args

from ebpo.grading.compare import AnswerType, Comparison, Oracle
from ebpo.grading.danger import dangerous_features
from ebpo.grading.normalize import UnbalancedError, canonical, key
from ebpo.grading.structure import (
    Equation,
    Group,
    Interval,
    Node,
    Relation,
    Scalar,
    TooComplexError,
    Union,
    has_thousands,
    parse,
)
from ebpo.grading.verdict import Reason

MAX_GOLD_CHARS = 4_000

Gold = str | Sequence["str | Sequence[str]"]
# hashable form: alternatives, each a tuple of required answers
Alternatives = tuple[tuple[str, ...], ...]


class BadGoldError(ValueError):
    """The gold is empty, too long, malformed, or not of its declared type."""


@dataclass(frozen=True)
class _ParsedGold:
    raw: str
    text: str
    readings: tuple[Node, ...]


def alternatives_of(gold: Gold) -> Alternatives:
    """Accepted alternatives of a gold.

    Args:
        gold: a string; or a list of accepted alternatives, each a string, or a list of strings that are all required
            (in any order).

    Raises:
        TypeError: it is neither.
        BadGoldError: it is empty.
    """
    if isinstance(gold, str):
        gold = [gold]
    if not isinstance(gold, (list, tuple)):
        raise TypeError(f"gold must be a string or a list of strings, not {type(gold).__name__}")
    alternatives = tuple(_required(alternative) for alternative in gold)
    if not alternatives or any(not r or any(not text.strip() for text in r) for r in alternatives):
        raise BadGoldError("empty")
    return alternatives


def _required(alternative: object) -> tuple[str, ...]:
    texts = (alternative,) if isinstance(alternative, str) else alternative
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise TypeError("gold must consist of strings, or of lists of strings that are all required")
    return tuple(texts)


def answer_type_of(name: str | None) -> AnswerType | None:
    """A declared answer type, in any case.

    Raises:
        ValueError: there is no such type.
    """
    if name is None:
        return None
    lowered = name.strip().lower()
    if lowered not in get_args(AnswerType):
        raise ValueError(f"answer_type: {name!r} is unknown; allowed are {', '.join(get_args(AnswerType))}, or None")
    return lowered  # type: ignore[return-value]


def tolerance_of(tolerance: float | str | None) -> Fraction | None:
    """An absolute tolerance as a fraction; None for none.

    Raises:
        ValueError: it is negative, infinite or no number.
    """
    if tolerance is None or tolerance == "":
        return None
    try:
        value = Fraction(str(tolerance))
    except ValueError:
        value = Fraction(-1)
    if value < 0:
        raise ValueError(f"tolerance: {tolerance!r} must be a number >= 0, the allowed absolute difference")
    return value


def decide(
    alternatives: Alternatives,
    answer: str,
    *,
    answer_type: AnswerType | None,
    tolerance: Fraction | None,
    oracle: Oracle | None = None,
) -> Reason | None:
    """Reason of the verdict on an extracted answer; None if only an oracle can tell and there is none.

    Args:
        alternatives: accepted golds (`alternatives_of`).
        answer: raw answer text, of bounded length.
        answer_type: declared type of the gold.
        tolerance: allowed absolute difference of numbers.
        oracle: symbolic comparison; None in the caller's process.

    Raises:
        BadGoldError: the gold is malformed, or not of its declared type.
    """
    golds = _parsed_golds(alternatives, answer_type)
    if any(answer.strip() == gold.raw for gold in golds):
        return "exact"
    try:
        text = canonical(answer)
        if any(key(text) == key(gold.text) for gold in golds):
            return "exact"
        if answer_type == "text":
            return "text" if any(_words_key(text) == _words_key(gold.text) for gold in golds) else "different"
        readings = _readings(text, answer_type, both=True)
    except UnbalancedError:
        return "different"
    except TooComplexError:
        return "danger"

    undecided = False
    hedge = False
    for gold in golds:
        for gold_reading in gold.readings:
            for reading in readings:
                comparison = Comparison(tolerance=tolerance, answer_type=answer_type, oracle=oracle)
                decision = comparison.equal(gold_reading, reading)
                if decision:
                    return comparison.stage
                undecided = undecided or decision is None
                hedge = hedge or (comparison.hedge and reading is readings[0] and isinstance(gold_reading, Scalar))
    if not undecided:
        is_too_large = any(scalar.too_large for reading in readings for scalar in _scalars(reading))
        return "danger" if is_too_large else "hedge" if hedge else "different"
    allowed = frozenset().union(*(dangerous_features(gold.text) for gold in golds))
    return "danger" if dangerous_features(text) - allowed else None


def check(alternatives: Alternatives, *, answer_type: AnswerType | None, oracle: Oracle | None = None) -> Reason | None:
    """Whether a gold can be graded against: "exact" if so; None if only an oracle can tell and there is none.

    Equality with itself as text says nothing, so every part that answers would be compared with symbolically must be
    readable by the oracle.

    Raises:
        BadGoldError: the gold is malformed, not of its declared type, or cannot be read.
    """
    golds = _parsed_golds(alternatives, answer_type)
    if answer_type in ("text", "integer"):
        return "exact"
    texts = [text for gold in golds for text in _symbolic_texts(gold.readings[0])]
    if not texts:
        return "exact"
    if oracle is None:
        return None
    if not all(oracle.can_read(text) for text in texts):
        raise BadGoldError("cannot be parsed")
    return "exact"


@lru_cache(maxsize=4096)
def _parsed_golds(alternatives: Alternatives, answer_type: AnswerType | None) -> tuple[_ParsedGold, ...]:
    return tuple(_parse_gold(required, answer_type) for required in alternatives)


def _parse_gold(required: tuple[str, ...], answer_type: AnswerType | None) -> _ParsedGold:
    raw = ", ".join(text.strip() for text in required)
    if len(raw) > MAX_GOLD_CHARS:
        raise BadGoldError("too long")
    try:
        text = canonical(raw)
        if len(required) > 1:
            # each required answer is read by itself, so that "1,234" and "5" are two answers
            readings: tuple[Node, ...] = (
                Group("list", tuple(_readings(canonical(part), answer_type, both=False)[0] for part in required)),
            )
        else:
            # "1,234" is a number; "100,200,300" may be a list as well
            readings = _readings(text, answer_type, both=text.count(",") > 1)
    except (UnbalancedError, TooComplexError) as error:
        raise BadGoldError(str(error)) from error
    if not text:
        raise BadGoldError("empty")
    first = readings[0]
    if answer_type == "integer" and not (
        isinstance(first, Scalar) and first.value is not None and first.value.denominator == 1
    ):
        raise BadGoldError("not an integer")
    return _ParsedGold(raw, text, readings)


def _readings(text: str, answer_type: AnswerType | None, *, both: bool) -> tuple[Node, ...]:
    """Structures that a canonical text may have: one, or two where `1,234` may be a number or a list."""
    as_number = _typed(parse(text, thousands=answer_type != "tuple"), answer_type)
    if both and has_thousands(text) and answer_type not in ("tuple", "integer"):
        return as_number, _typed(parse(text, thousands=False), answer_type)
    return (as_number,)


def _typed(node: Node, answer_type: AnswerType | None) -> Node:
    """Resolves `(a, b)`, which may be a point or an open interval, by the declared type."""
    if answer_type == "interval":
        if isinstance(node, Group) and node.kind == "tuple" and len(node.items) == 2:
            return Interval(node.items[0], node.items[1], False, False)
        if isinstance(node, Union):
            return Union(tuple(_typed(part, answer_type) for part in node.parts))
    return node


def _words_key(text: str) -> str:
    return key(text.replace("\\text{", "").replace("}", "")).casefold()


def _scalars(node: object) -> Iterator[Scalar]:
    return (leaf for leaf in _leaves(node) if isinstance(leaf, Scalar))


def _symbolic_texts(node: object) -> Iterator[str]:
    """What an oracle would have to read."""
    for leaf in _leaves(node):
        if isinstance(leaf, Equation):
            yield from (leaf.left, leaf.right)
        elif isinstance(leaf, Relation) or (leaf.value is None and not leaf.is_word):
            yield leaf.text


def _leaves(node: object) -> Iterator[Scalar | Equation | Relation]:
    if isinstance(node, (Scalar, Equation, Relation)):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from _leaves(item)
    elif is_dataclass(node):
        for field in fields(node):
            yield from _leaves(getattr(node, field.name))
