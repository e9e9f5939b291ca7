"""Comparison of two structures, by exact rules and, where those do not decide, by a symbolic oracle.

Every comparison is three-valued: True, False, or None for "not decided by exact rules". The caller's process compares
without an oracle; if the outcome is None, a worker repeats the comparison with SymPy as its oracle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Literal, Protocol

from ebpo.grading.exact import surely_different
from ebpo.grading.normalize import key
from ebpo.grading.structure import (
    Chain,
    Equation,
    Group,
    Interval,
    Matrix,
    Named,
    Node,
    Relation,
    Scalar,
    Union,
    is_name,
    scalar,
)
from ebpo.grading.units import contradict
from ebpo.grading.verdict import Reason

Decision = bool | None
AnswerType = Literal["integer", "text", "numerical", "expression", "equation", "tuple", "interval"]

_PROSE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{5}")
_STAGES: tuple[Reason, ...] = ("exact", "text", "integer", "rational", "symbolic")


class Oracle(Protocol):
    """Decides what exact rules cannot."""

    def scalars(self, gold: str, answer: str, tolerance: Fraction | None) -> Decision:
        """Whether two expressions are equal."""

    def equations(self, gold: tuple[str, str], answer: tuple[str, str]) -> Decision:
        """Whether two equations have the same solutions, each given by its sides."""

    def relations(self, gold: str, answer: str) -> Decision:
        """Whether two statements (inequalities) are equivalent."""

    def can_read(self, text: str) -> bool:
        """Whether an expression or statement can be parsed at all."""


class Comparison:
    """One gold against one answer.

    Attributes:
        stage: the last stage that was needed for an equality so far; the reason of a "correct" verdict.
        hedge: whether an answer failed because it gave more than the one value that was asked for.
    """

    def __init__(
        self,
        *,
        tolerance: Fraction | None = None,
        answer_type: AnswerType | None = None,
        oracle: Oracle | None = None,
    ) -> None:
        self._tolerance = tolerance
        self._type = answer_type
        self._oracle = oracle
        self.stage: Reason = "exact"
        self.hedge = False

    def equal(self, gold: Node, answer: Node) -> Decision:
        """Whether the answer is the gold; None if only an oracle can tell."""
        if isinstance(answer, Chain) and not isinstance(gold, Chain):
            return self._chain(gold, answer)
        if isinstance(gold, Named) and is_name(gold.name):
            return self._named(gold, answer)
        if isinstance(gold, (Named, Equation)):
            return self._equation(gold, answer)
        if isinstance(answer, Named) and not isinstance(gold, (Relation, Chain)):
            return self.equal(gold, answer.value)
        if isinstance(gold, Scalar):
            return self._scalar(gold, answer)
        if isinstance(gold, Group):
            return self._group(gold, answer)
        if isinstance(gold, Interval):
            return self._interval(gold, answer)
        if isinstance(gold, Union):
            return self._unordered(gold.parts, answer.parts) if isinstance(answer, Union) else False
        if isinstance(gold, Matrix):
            return self._matrix(gold, answer)
        if isinstance(gold, Chain):
            return self._chain_gold(gold, answer)
        return self._relation(gold, answer)

    def _reached(self, stage: Reason) -> bool:
        if _STAGES.index(stage) > _STAGES.index(self.stage):
            self.stage = stage
        return True

    def _scalar(self, gold: Scalar, answer: Node) -> Decision:
        if isinstance(answer, Group) and len(answer.items) == 1 and answer.kind != "tuple":
            return self._scalar(gold, answer.items[0])
        if not isinstance(answer, Scalar):
            self.hedge = self.hedge or isinstance(answer, (Group, Relation, Interval, Union))
            return False
        if gold.is_word or answer.is_word:
            return self._words(gold, answer)
        if contradict(gold.unit, answer.unit):
            return False
        if gold.value is not None and answer.value is not None:
            return self._numbers(gold, answer)
        if key(gold.text) == key(answer.text) and gold.percent == answer.percent:
            return True
        based = _based(gold.text, answer.text)
        if based is not None:
            return based and self._reached("text")
        if self._type in ("integer", "text"):
            return False
        if self._tolerance is None and gold.percent == answer.percent and surely_different(gold.text, answer.text):
            return False
        return self._ask(lambda o: self._any_scale(o, gold, answer))

    def _ask(self, question: Callable[[Oracle], Decision]) -> Decision:
        if self._oracle is None:
            return None
        decision = question(self._oracle)
        return self._reached("symbolic") if decision else decision

    def _any_scale(self, oracle: Oracle, gold: Scalar, answer: Scalar) -> Decision:
        if gold.percent == answer.percent:
            return oracle.scalars(gold.text, answer.text, self._tolerance)
        golds = (gold.text, f"\\frac{{{gold.text}}}{{100}}") if gold.percent else (gold.text,)
        answers = (answer.text, f"\\frac{{{answer.text}}}{{100}}") if answer.percent else (answer.text,)
        return any(oracle.scalars(g, a, self._tolerance) for g in golds for a in answers)

    def _words(self, gold: Scalar, answer: Scalar) -> bool:
        same = key(gold.text).casefold() == key(answer.text).casefold()
        return same and self._reached("exact" if gold.text == answer.text else "text")

    def _numbers(self, gold: Scalar, answer: Scalar) -> bool:
        assert gold.value is not None
        assert answer.value is not None
        # 35% is accepted as 35 and as 0.35; 35% and 3.5% differ
        golds = {gold.value, gold.value / 100} if gold.percent and not answer.percent else {gold.value}
        answers = {answer.value, answer.value / 100} if answer.percent and not gold.percent else {answer.value}
        tolerance = self._tolerance or 0
        if not any(abs(g - a) <= tolerance for g in golds for a in answers):
            return False
        if (gold.text, gold.percent) == (answer.text, answer.percent):
            return True
        return self._reached("integer" if gold.value.denominator == 1 else "rational")

    def _named(self, gold: Named, answer: Node) -> Decision:
        if isinstance(answer, Named):
            if answer.name == gold.name:
                return self.equal(gold.value, answer.value)
            renamed = _same_function(gold.name, answer.name)
            if renamed is not None and isinstance(answer.value, Scalar):
                decision = self.equal(gold.value, scalar(_rename(answer.value.text, *renamed)))
                return decision and self._reached("text")
            if not is_name(answer.name):
                return self._equation(gold, answer)
            return False if _simple(gold.value) and _simple(answer.value) else self._equation(gold, answer)
        if isinstance(answer, Equation):
            return self._equation(gold, answer)
        return self.equal(gold.value, answer)

    def _equation(self, gold: Named | Equation, answer: Node) -> Decision:
        if isinstance(gold, Named) and isinstance(answer, Named) and gold.name == answer.name:
            return self.equal(gold.value, answer.value)
        gold_sides, answer_sides = _sides(gold), _sides(answer)
        if gold_sides is None or answer_sides is None:
            return False
        if tuple(map(key, gold_sides)) == tuple(map(key, answer_sides)):
            return True
        return self._ask(lambda o: o.equations(gold_sides, answer_sides))

    def _group(self, gold: Group, answer: Node) -> Decision:
        if isinstance(answer, Matrix) and gold.kind == "tuple":
            return self._ordered(gold.items, _column(answer))
        if isinstance(answer, Interval):
            is_open_pair = gold.kind == "tuple" and not (answer.left_closed or answer.right_closed)
            return is_open_pair and self._type != "tuple" and self._ordered(gold.items, (answer.left, answer.right))
        if not isinstance(answer, Group):
            return len(gold.items) == 1 and gold.kind != "tuple" and self.equal(gold.items[0], answer)
        gold_names, answer_names = _assignments(gold), _assignments(answer)
        if gold_names is not None and answer_names is not None:
            if gold_names.keys() != answer_names.keys():
                return False
            return self._all(self.equal(gold_names[n], answer_names[n]) for n in sorted(gold_names))
        if gold_names is not None:
            gold = Group(answer.kind, tuple(gold_names[n] for n in sorted(gold_names)))
        if answer_names is not None:
            answer = Group(gold.kind, tuple(answer_names[n] for n in sorted(answer_names)))
        if "tuple" in (gold.kind, answer.kind):
            return "set" not in (gold.kind, answer.kind) and self._ordered(gold.items, answer.items)
        return self._unordered(gold.items, answer.items)

    def _interval(self, gold: Interval, answer: Node) -> Decision:
        if isinstance(answer, Group) and answer.kind == "tuple" and len(answer.items) == 2:
            answer = Interval(answer.items[0], answer.items[1], False, False)
        if not isinstance(answer, Interval):
            return False
        if (gold.left_closed, gold.right_closed) != (answer.left_closed, answer.right_closed):
            return False
        return self._ordered((gold.left, gold.right), (answer.left, answer.right))

    def _matrix(self, gold: Matrix, answer: Node) -> Decision:
        if isinstance(answer, Group) and answer.kind == "tuple":
            return self._ordered(_column(gold), answer.items)
        if not isinstance(answer, Matrix) or [len(r) for r in gold.rows] != [len(r) for r in answer.rows]:
            return False
        return self._ordered([c for r in gold.rows for c in r], [c for r in answer.rows for c in r])

    def _chain(self, gold: Node, answer: Chain) -> Decision:
        """`a = b = c` counts only if every part is the gold; `a \\approx 1.41` if `a` is and the decimal rounds it."""
        if not answer.approximate:
            decision = self._all(self.equal(gold, part) for part in answer.parts)
        elif len(answer.parts) == 2 and _is_rounding(*answer.parts):
            decision = self.equal(gold, answer.parts[0])
        else:
            decision = False
        self.hedge = self.hedge or decision is False
        return decision

    def _chain_gold(self, gold: Chain, answer: Node) -> Decision:
        if isinstance(answer, Chain) and answer.approximate == gold.approximate:
            return self._ordered(gold.parts, answer.parts)
        return self.equal(gold.parts[0 if gold.approximate else -1], answer)

    def _relation(self, gold: Relation, answer: Node) -> Decision:
        if not isinstance(answer, Relation):
            return False
        if key(gold.text) == key(answer.text):
            return True
        return self._ask(lambda o: o.relations(gold.text, answer.text))

    def _all(self, decisions: Iterable[Decision]) -> Decision:
        undecided = False
        for decision in decisions:
            if decision is False:
                return False
            undecided = undecided or decision is None
        return None if undecided else True

    def _ordered(self, golds: Sequence[Node], answers: Sequence[Node]) -> Decision:
        if len(golds) != len(answers):
            return False
        return self._all(self.equal(g, a) for g, a in zip(golds, answers, strict=True))

    def _unordered(self, golds: Sequence[Node], answers: Sequence[Node]) -> Decision:
        """Equality as multisets. Greedy matching is right because equality is an equivalence relation."""
        if len(golds) != len(answers):
            return False
        left = list(answers)
        undecided = False
        for gold in golds:
            decisions = []
            for candidate in left:
                decisions.append(self.equal(gold, candidate))
                if decisions[-1]:
                    break
            if decisions and decisions[-1]:
                left.pop(len(decisions) - 1)
            elif None in decisions:
                undecided = True
            else:
                return False
        return None if undecided else True


def _simple(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is not None


def _sides(node: Node) -> tuple[str, str] | None:
    """Both sides of an equation; None for anything else, also for `the area of the field = 5`."""
    if isinstance(node, Equation):
        return node.left, node.right
    if isinstance(node, Named) and isinstance(node.value, Scalar) and not _PROSE.search(node.name):
        return node.name, node.value.text
    return None


def _column(matrix: Matrix) -> list[Node]:
    """Entries of a column vector; nothing for another shape."""
    return [row[0] for row in matrix.rows] if all(len(row) == 1 for row in matrix.rows) else []


def _assignments(group: Group) -> dict[str, Node] | None:
    """`x = 2, y = 5` as a mapping; None if not every item has its own name."""
    named = {i.name: i.value for i in group.items if isinstance(i, Named)}
    return named if named and len(named) == len(group.items) else None


def _based(gold: str, answer: str) -> bool | None:
    """Numerals with a base, `52_8`: compared by digits and base. The base may be left out of the answer only."""
    gold_numeral, answer_numeral = _numeral(gold), _numeral(answer)
    if gold_numeral is None and answer_numeral is None:
        return None
    if gold_numeral is None:
        return False if answer_numeral and answer_numeral[1] else None
    if answer_numeral is None:
        return answer.lstrip("0") == gold_numeral[0] if answer.isalnum() else None
    return gold_numeral == answer_numeral


def _numeral(text: str) -> tuple[str, str] | None:
    digits, underscore, base = key(text).partition("_")
    base = base.strip("{}").removeprefix("\\text{").strip("{}")
    return (
        (digits.lstrip("0"), base)
        if underscore and digits.isalnum() and digits[:1].isdigit() and base.isdigit()
        else None
    )


def _same_function(gold: str, answer: str) -> tuple[str, str] | None:
    """The arguments (answer's, gold's) of the same function of one variable: `f(n)` and `f(x)`."""
    gold_name, _, gold_argument = gold.partition("(")
    answer_name, _, answer_argument = answer.partition("(")
    arguments = answer_argument.rstrip(")"), gold_argument.rstrip(")")
    return arguments if gold_name == answer_name and all(len(a) == 1 and a.isalpha() for a in arguments) else None


def _rename(text: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![A-Za-z\\]){old}(?![A-Za-z])", new, text)


def _is_rounding(exact: Node, decimal: Node) -> bool:
    """Whether the second is a decimal number, and a rounding of the first where that one's value is known."""
    if not isinstance(exact, Scalar) or not isinstance(decimal, Scalar) or decimal.value is None:
        return False
    if "\\" in decimal.text or "/" in decimal.text:
        return False
    if exact.value is None:
        return True
    places = len(decimal.text.partition(".")[2])
    return (
        "." not in exact.text
        and abs(exact.value - decimal.value) < Fraction(1, 10**places)
        and exact.value.denominator > 1
    )
