"""Structure of an answer: scalars, lists, tuples, sets, intervals, matrices, equations.

The structure is found by this project's own splitting at top-level separators, so that only scalars ever reach SymPy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ebpo.grading.exact import TooLarge, rational
from ebpo.grading.normalize import UnbalancedError, key
from ebpo.grading.units import split_unit

MAX_DEPTH = 30
MAX_ITEMS = 64


class TooComplexError(ValueError):
    """More nesting or more items than any real answer has."""


@dataclass(frozen=True)
class Scalar:
    """One value.

    Attributes:
        text: canonical text without unit, percent and degree sign.
        value: exact value if it is rational arithmetic.
        percent: whether a percent sign followed.
        unit: canonical unit, None if there is none.
        is_word: whether it is text rather than mathematics.
        too_large: whether it is rational arithmetic with a value too large to compute.
    """

    text: str
    value: Fraction | None = None
    percent: bool = False
    unit: str | None = None
    is_word: bool = False
    too_large: bool = False


@dataclass(frozen=True)
class Group:
    """Several values: `list` (bare commas, any order), `set` (braces, any order) or `tuple` (parentheses, in order)."""

    kind: Literal["list", "set", "tuple"]
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Interval:
    """An interval of the reals."""

    left: Node
    right: Node
    left_closed: bool
    right_closed: bool


@dataclass(frozen=True)
class Union:
    """A union of intervals or sets."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Matrix:
    """A matrix, or a column vector."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True)
class Named:
    """A value with its name: `x = 3`, `f(x) = 2x`, `m+n = 7`."""

    name: str
    value: Node


@dataclass(frozen=True)
class Equation:
    """An equation whose left side is more than a name: `2x + y = 7`."""

    left: str
    right: str


@dataclass(frozen=True)
class Chain:
    """`a = b = c` without a name, or `a \\approx b`: `parts` are claimed to be equal."""

    parts: tuple[Node, ...]
    approximate: bool = False


@dataclass(frozen=True)
class Relation:
    """An inequality or a statement that is no interval: compared as a whole."""

    text: str


Node = Scalar | Group | Interval | Union | Matrix | Named | Equation | Chain | Relation

_BRACKETS = re.compile(r"\\[{}]|[{}()\[\]]|\\(?:begin|end)(?![A-Za-z])")
_OPENING = frozenset(("{", "(", "[", "\\{", "\\begin"))
_SEPARATOR = re.compile(r"[,;]|\\text\{(?:and|or)\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])")
_CUP = re.compile(r"\\cup(?![A-Za-z])")
_EQUALS = re.compile(r"=")
_APPROX = re.compile(r"\\approx(?![A-Za-z])")
_ORDER = re.compile(r"\\[lg]e(?![A-Za-z])|[<>]")
_STATEMENT = re.compile(r"\\(?:to|ne|equiv|sim|subset|subseteq|mapsto)(?![A-Za-z])")
_IN = re.compile(r"\\in(?![A-Za-z])")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_MATRIX = re.compile(r"\\begin\{([pbBvV]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}")
_THOUSANDS = re.compile(r"(?<![0-9.,])([0-9]{1,3}(?:,[0-9]{3}){1,30})(?![0-9,])(\.[0-9]+)?")
_NAME = re.compile(
    r"(?:\\?[A-Za-z]+|\\text\{[^{}]*\}|\\angle[A-Za-z0-9_{} ]+|[A-Z](?: ?[A-Z]){1,3})"  # x, \alpha, \text{Area}, AB
    r"(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9, ]*\}))?'{0,3}"  # subscript, primes
    r"(?: ?\([A-Za-z0-9, ]*\))?"  # f(x), P(A), f(2)
)
_ARGUMENTS = re.compile(r"_(?:[A-Za-z0-9]|\{[A-Za-z0-9, ]*\})|\([A-Za-z0-9, ]*\)|'")
_LABEL = re.compile(r"[A-Za-z\\(){}|,+\- ]*[A-Za-z][A-Za-z\\(){}|,+\- ]*")
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’. -]*")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_CHOICE = re.compile(r"\(([A-Za-z])\)")
_CLOCK = re.compile(r"[0-9]{1,4}(?::[0-9]{1,4}){1,4}")
_DEGREES = re.compile(r"\^\\circ ?[CF]?$")
_DEGREES_INSIDE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?\^\\circ")
_TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")


def parse(text: str, *, thousands: bool = True) -> Node:
    """The structure of a canonical text.

    Args:
        text: canonical text (`normalize.canonical`).
        thousands: whether `1,234` at top level is a number; if not, it is a list of two.

    Raises:
        TooComplexError: nesting deeper than `MAX_DEPTH`, or more than `MAX_ITEMS` items in one place.
        UnbalancedError: brackets do not match.
    """
    _check_depth(text)
    if thousands:
        text = _THOUSANDS.sub(
            lambda m: m.group().replace(",", "") if _at_top_level(text, m.start()) else m.group(), text
        )
    return _parse(text.strip())


def has_thousands(text: str) -> bool:
    """Whether a canonical text may be read both as one number with separators and as a list: `1,234`."""
    return bool(_THOUSANDS.search(text))


def _check_depth(text: str) -> None:
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket.group() in _OPENING else -1
        if depth > MAX_DEPTH:
            raise TooComplexError("nesting")


def _at_top_level(text: str, position: int) -> bool:
    depth = 0
    for bracket in _BRACKETS.finditer(text, 0, position):
        depth += 1 if bracket.group() in _OPENING else -1
    return depth == 0


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """Parts of a text between separators that lie outside all brackets."""
    spans = [(m.start(), m.end()) for m in separator.finditer(text)]
    if not spans:
        return [text]
    if len(spans) > MAX_ITEMS * 4:
        raise TooComplexError("items")
    parts, start, depth, position = [], 0, 0, 0
    for begin, end in spans:
        for bracket in _BRACKETS.finditer(text, position, begin):
            depth += 1 if bracket.group() in _OPENING else -1
        position = max(position, begin)
        if depth == 0:
            parts.append(text[start:begin].strip())
            start = position = end
    parts.append(text[start:].strip())
    return parts


def _parse(text: str) -> Node:
    if text == "\\mathbb{R}":
        return Interval(Scalar("-\\infty"), Scalar("\\infty"), False, False)
    parts = split(text, _SEPARATOR)
    if len(parts) > 1:
        return _parse_list(text, [p for p in parts if p])
    for parser in (_parse_matrix, _parse_brackets):
        node = parser(text)
        if node is not None:
            return node
    if len(parts := split(text, _APPROX)) > 1:
        return Chain(tuple(_parse(p) for p in parts), approximate=True)
    if _STATEMENT.search(text):
        return Relation(text)
    if len(parts := split(text, _CUP)) > 1:
        return Union(tuple(_parse(p) for p in parts))
    if len(parts := split(text, _IN)) == 2:
        return _parse(parts[1]) if _NAME.fullmatch(parts[0]) else Relation(text)
    if len(parts := split(text, _EQUALS)) > 1:
        return _parse_equation(text, parts)
    if len(split(text, _ORDER)) > 1:
        return _parse_inequality(text)
    if _PLUS_MINUS.search(text):
        plus = _PLUS_MINUS.sub(lambda m: "+" if m.group(1) == "pm" else "-", text)
        minus = _PLUS_MINUS.sub(lambda m: "-" if m.group(1) == "pm" else "+", text)
        return Group("list", (_parse(_without_plus(plus)), _parse(_without_plus(minus))))
    return scalar(text)


def _without_plus(text: str) -> str:
    return text[1:].strip() if text.startswith("+") else text


def _parse_list(text: str, parts: list[str]) -> Node:
    if len(parts) > MAX_ITEMS:
        raise TooComplexError("items")
    if not parts:
        return Scalar(text, is_word=True)
    items = _flatten(_parse(p) for p in parts)
    if all(isinstance(i, Interval) for i in items) and not re.search(r",|;|and", _without_brackets(text)):
        return Union(items)
    names = [i.name for i in items if isinstance(i, Named)]
    if names and len(set(names)) == 1 and (len(names) == len(items) or isinstance(items[0], Named)):
        # `x = 2, x = 3`, `x = 2, 3`: the name is said once or every time
        return Named(names[0], Group("list", _flatten(i.value if isinstance(i, Named) else i for i in items)))
    return Group("list", items) if len(items) > 1 else items[0]


def _flatten(items: Iterable[Node]) -> tuple[Node, ...]:
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Group) and item.kind == "list" else (item,))
    if len(flat) > MAX_ITEMS:
        raise TooComplexError("items")
    return tuple(flat)


def _without_brackets(text: str) -> str:
    kept, depth, position = [], 0, 0
    for bracket in _BRACKETS.finditer(text):
        if depth == 0:
            kept.append(text[position : bracket.start()])
        depth += 1 if bracket.group() in _OPENING else -1
        position = bracket.end()
    return "".join(kept) + text[position:]


def _parse_matrix(text: str) -> Node | None:
    match = _MATRIX.fullmatch(text)
    if match is None or "\\begin" in match.group(2):
        return None
    rows = [row for row in match.group(2).split("\\\\") if row.strip()]
    if len(rows) * (max((r.count("&") for r in rows), default=0) + 1) > MAX_ITEMS:
        raise TooComplexError("items")
    return Matrix(tuple(tuple(_parse(cell.strip()) for cell in row.split("&")) for row in rows))


def _parse_brackets(text: str) -> Node | None:
    """A tuple, set or interval, if one pair of brackets is around the whole text."""
    opening = "\\{" if text.startswith("\\{") else text[:1]
    if opening not in ("\\{", "(", "[", "{"):
        return None
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket.group() in _OPENING else -1
        if depth == 0:
            break
    else:
        raise UnbalancedError(opening)
    if bracket.end() != len(text):
        return None
    closing = bracket.group()
    inner = text[len(opening) : bracket.start()].strip()
    parts = split(inner, re.compile(","))
    if opening == "\\{" and closing == "\\}":
        if not inner:
            return Group("set", ())
        node = _parse(inner)
        return Group("set", node.items if isinstance(node, Group) and node.kind == "list" else (node,))
    if opening in "([" and closing in ")]":
        if len(parts) == 1:
            return _parse(inner) if (opening, closing) in (("(", ")"), ("[", "]")) and inner else None
        if len(parts) > MAX_ITEMS:
            raise TooComplexError("items")
        items = tuple(_parse(p) for p in parts)
        if len(items) == 2 and ("[" in opening or "]" in closing or "\\infty" in inner):
            return Interval(items[0], items[1], opening == "[", closing == "]")
        if (opening, closing) in (("(", ")"), ("[", "]")):
            return Group("tuple", items)
    if (opening, closing) == ("{", "}"):
        return _parse(inner) if inner else None
    return None


def _parse_equation(text: str, parts: list[str]) -> Node:
    if any(not p for p in parts):
        return Relation(text)
    first, rest = parts[0], parts[1:]
    if is_label(first):
        return Named(key(first), _parse(rest[0]) if len(rest) == 1 else Chain(tuple(_parse(p) for p in rest)))
    if len(parts) == 2 and any(re.search(r"[A-Za-z]", _without_text(p)) for p in parts):
        if is_name(parts[1]):
            return Named(key(parts[1]), _parse(first))
        return Equation(*parts)
    return Chain(tuple(_parse(p) for p in parts))


def _without_text(text: str) -> str:
    return re.sub(r"\\[A-Za-z]+(?:\{[A-Za-z ]*\})?", "", text)


def is_name(text: str) -> bool:
    """Whether a text is the name of one quantity: `x`, `a_1`, `f(x)`, `\\angle ABC`, `\\text{Area}`."""
    return bool(_NAME.fullmatch(text)) and text not in ("e", "i", "\\pi", "\\infty")


def is_label(text: str) -> bool:
    """Whether a text only says what a value is, without a value of its own: a name, or `m+n`, `P(A)`, `(x,y)`."""
    if is_name(text):
        return True
    bare = _ARGUMENTS.sub("z", text)
    return bool(_LABEL.fullmatch(bare)) and not re.search(r"^-|\\(?:binom|sqrt|pi|infty)", text)


def _parse_inequality(text: str) -> Node:
    """An interval if it bounds one name by values; a relation otherwise."""
    operators = _ORDER.findall(text)
    parts = [p.strip() for p in _ORDER.split(text)]
    down = [op in ("\\ge", ">") for op in operators]
    infinity = Scalar("\\infty")
    minus_infinity = Scalar("-\\infty")
    if len(parts) == 2:
        left, right, closed = parts[0], parts[1], "\\" in operators[0]
        if is_name(right) and not is_name(left):
            left, right, down[0] = right, left, not down[0]
        if is_name(left) and right and not is_name(right):
            bound = _parse(right)
            return (
                Interval(bound, infinity, closed, False) if down[0] else Interval(minus_infinity, bound, False, closed)
            )
    if len(parts) == 3 and is_name(parts[1]) and down[0] == down[1] and parts[0] and parts[2]:
        low, high = (parts[2], parts[0]) if down[0] else (parts[0], parts[2])
        closed_low, closed_high = ("\\" in op for op in (operators[::-1] if down[0] else operators))
        return Interval(_parse(low), _parse(high), closed_low, closed_high)
    return Relation(text)


def scalar(text: str) -> Scalar:
    """One value: number, expression or words."""
    text = text.strip()
    if text.startswith("+"):
        text = text[1:].strip()
    words = _words(text)
    if words is not None:
        return Scalar(words, is_word=True)
    body, unit = split_unit(text)
    percent = body.endswith("%")
    if percent:
        body = body[:-1].strip()
    if _TRIGONOMETRIC.search(body):
        body = _DEGREES_INSIDE.sub(r"(\1\\cdot\\frac{\\pi}{180})", body)
    else:
        without = _DEGREES.sub("", body).strip()
        if without != body:
            body, unit = without, unit or "degree"
    try:
        value = rational(body)
    except TooLarge:
        return Scalar(body, percent=percent, unit=unit, too_large=True)
    return Scalar(body, value=value, percent=percent, unit=unit)


def _words(text: str) -> str | None:
    """The words of a text answer in lower case; None if the text is mathematics."""
    if _CLOCK.fullmatch(text):
        return text
    plain = _TEXT.sub(r" \1 ", text).strip()
    choice = _CHOICE.fullmatch(plain)
    if choice:
        return choice.group(1).lower()
    wrapped = plain != text
    if not _WORDS.fullmatch(plain):
        # digits and words mixed, as in `2 hours and 5 minutes`: words if a \text{} lies before the first digit
        # digit
        return " ".join(plain.lower().split()) if wrapped and text.startswith("\\text") else None
    longest = max(len(w) for w in re.findall("[A-Za-z]+", plain))
    return " ".join(plain.lower().split()) if wrapped or longest >= 4 else None
