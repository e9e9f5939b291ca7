"""The last stage: math-verify and SymPy, imported by workers only.

math-verify parses. What it parsed is compared by evaluation in high precision where that is possible, which closes its
false positives (six-digit rounding, line equations that all parse to one value) and some false negatives
(`sqrt(1/n)` and `1/sqrt(n)`); its own comparison is asked about everything else.

No SymPy object is ever turned into text here: `str()` of a huge power evaluates it.
"""

from __future__ import annotations

import random
import re
from fractions import Fraction
from functools import lru_cache
from typing import TypeGuard

import sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, Expr, MatrixBase, Ne

from ebpo.grading.compare import Decision
from ebpo.grading.decide import BadGoldError

MATH_VERIFY_TIMEOUT_S = 3  # whole seconds: math-verify silently fails on anything else
DIGITS = 60
RELATIVE_ERROR = sympy.Float("1e-40", DIGITS)
POINT_DIGITS = 30
POINT_ERROR = sympy.Float("1e-18", POINT_DIGITS)
POINTS_NEEDED = 6
_RANGES = (
    (1, 3),
    (0, 1),
    (4, 12),
    (20, 60),
    (1, 3),
    (0, 1),
    (4, 12),
    (-3, -1),
    (-1, 0),
    (-12, -4),
    (-3, 3),
    (-3, 3),
)

# units=False: "6m" must not become 6; this project strips units itself
_CONFIG = LatexExtractionConfig(
    boxed_match_priority=0,
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
    ),
)
_DECIMAL = re.compile(r"(?<![0-9.])([0-9]*)\.([0-9]+)(?![0-9.])")


class SympyOracle:
    """Implements `compare.Oracle`."""

    def scalars(self, gold: str, answer: str, tolerance: Fraction | None) -> Decision:
        """Whether two expressions are equal: everywhere where both are real, to 40 digits.

        Raises:
            BadGoldError: the gold cannot be parsed.
        """
        gold_value, answer_value = _parsed_gold(gold), _parsed(answer)
        if answer_value is None:
            return False
        if isinstance(gold_value, Expr) and isinstance(answer_value, Expr):
            decision = _numerically_equal(gold_value, answer_value, tolerance)
            if decision is not None:
                return decision
        elif isinstance(gold_value, Expr) or isinstance(answer_value, Expr):
            return False
        return _verify(gold_value, answer_value)

    def equations(self, gold: tuple[str, str], answer: tuple[str, str]) -> Decision:
        """Whether two equations say the same: the differences of their sides are equal up to a constant factor.

        Raises:
            BadGoldError: a side of the gold cannot be parsed.
        """
        gold_left, gold_right = (_parsed_gold(side) for side in gold)
        answer_left, answer_right = (_parsed(side) for side in answer)
        if answer_left is None or answer_right is None:
            return False
        if not all(isinstance(side, Expr) for side in (gold_left, gold_right, answer_left, answer_right)):
            return False
        return _proportional(gold_left - gold_right, answer_left - answer_right)

    def relations(self, gold: str, answer: str) -> Decision:
        """Whether two statements are equivalent, as math-verify sees it.

        Raises:
            BadGoldError: the gold cannot be parsed.
        """
        gold_value, answer_value = _parsed_gold(gold), _parsed(answer)
        if isinstance(gold_value, Ne) and isinstance(answer_value, Ne):  # math-verify has no rule for it
            return _proportional(gold_value.lhs - gold_value.rhs, answer_value.lhs - answer_value.rhs)
        if answer_value is None or isinstance(gold_value, Ne) or isinstance(answer_value, Ne):
            return False
        return _verify(gold_value, answer_value)

    def can_read(self, text: str) -> bool:
        """Whether math-verify can parse a text, and it has a value."""
        return _defined(_parsed(text))


def _verify(gold: Basic | MatrixBase, answer: Basic | MatrixBase) -> bool:
    # gold first: verify() is not symmetric
    return bool(
        verify(
            gold,
            answer,
            float_rounding=12,
            numeric_precision=30,
            allow_set_relation_comp=True,
            timeout_seconds=MATH_VERIFY_TIMEOUT_S,
            raise_on_error=True,
        )
    )


def _parsed_gold(text: str) -> Basic | MatrixBase:
    value = _parsed(text)
    if not _defined(value):
        raise BadGoldError("cannot be parsed, or has no value")
    return value


def _defined(value: Basic | MatrixBase | None) -> TypeGuard[Basic | MatrixBase]:
    """Something was parsed, and it holds no division by zero, which math-verify refuses to compare with."""
    return value is not None and not value.has(sympy.zoo, sympy.nan)


@lru_cache(maxsize=512)
def _parsed(text: str) -> Basic | MatrixBase | None:
    """The SymPy object of a canonical text with exact decimals; None if math-verify cannot read it."""
    exact = _DECIMAL.sub(lambda m: f"(\\frac{{{int(m[1] + m[2])}}}{{{10 ** len(m[2])}}})", text)
    found = parse(
        f"\\boxed{{{exact}}}",
        extraction_config=[_CONFIG],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=MATH_VERIFY_TIMEOUT_S,
        raise_on_error=True,
    )
    return _with_uniform_symbols(found[0]) if found and isinstance(found[0], (Basic, MatrixBase)) else None


def _with_uniform_symbols(value: Basic | MatrixBase) -> Basic | MatrixBase:
    """The same value with the imaginary unit for `i`, and real symbols for other letters.

    math-verify decides by the look of the whole text whether letters are real or complex, so that one letter may become
    two different symbols in the gold and in the answer.
    """
    replacement = {s: sympy.I if _name(s) == "i" else sympy.Symbol(_name(s), real=True) for s in value.free_symbols}
    changed = {old: new for old, new in replacement.items() if old != new}
    return value.xreplace(changed) if changed else value


def _numerically_equal(gold: Expr, answer: Expr, tolerance: Fraction | None) -> Decision:
    """Equality by evaluation; None if the expressions cannot be evaluated."""
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=_name)
    if symbols:
        return _equal_at_points(gold, answer, symbols)
    values = [_value(e, {}, DIGITS) for e in (gold, answer)]
    if values[0] is None or values[1] is None:
        return None
    difference = sympy.Abs(values[0] - values[1])
    if tolerance is not None:
        return bool(difference <= sympy.Rational(tolerance.numerator, tolerance.denominator))
    return bool(difference <= RELATIVE_ERROR * max(sympy.Abs(values[0]), sympy.Abs(values[1])))


def _name(symbol: Basic) -> str:
    return symbol.name  # type: ignore[no-any-return]


def _points(symbols: list[Basic], *, steps: bool) -> list[dict[Basic, Expr]]:
    """Fixed pseudo-random points of several sizes, positive before negative.

    Args:
        symbols: what gets a value.
        steps: whether the expressions jump (floor, ceiling), and so differ in few places: adds many integer points.
    """
    generator = random.Random(20240229)
    points = [
        {s: sympy.Rational(generator.randint(low * 997 + 1, high * 997 - 1), 997) for s in symbols}
        for low, high in _RANGES
    ]
    if steps:
        points += [
            {s: sympy.Integer(n if len(symbols) == 1 else generator.randint(1, 40)) for s in symbols}
            for n in range(1, 61)
        ]
    return points


def _equal_at_points(gold: Expr, answer: Expr, symbols: list[Basic]) -> Decision:
    """Equality at points where both are real (everywhere, if they contain the imaginary unit).

    Points where a value is not real are left out, so that `sqrt(1/n)` equals `1/sqrt(n)`, and `|x|` does not equal `x`.
    """
    is_complex = gold.has(sympy.I) or answer.has(sympy.I)
    steps = any(e.has(sympy.floor, sympy.ceiling, sympy.Mod) for e in (gold, answer))
    agreed = 0
    for point in _points(symbols, steps=steps):
        left, right = _value(gold, point, POINT_DIGITS), _value(answer, point, POINT_DIGITS)
        if left is None or right is None or (not is_complex and not (left.is_real and right.is_real)):
            continue
        if sympy.Abs(left - right) > POINT_ERROR * max(sympy.Abs(left), sympy.Abs(right)):
            return False
        agreed += 1
    return True if agreed >= POINTS_NEEDED else None


def _proportional(gold: Expr, answer: Expr) -> Decision:
    """Whether one is a constant, nonzero multiple of the other."""
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=_name)
    if not symbols:
        return False
    ratio = None
    agreed = 0
    for point in _points(symbols, steps=False):
        left, right = _value(gold, point, POINT_DIGITS), _value(answer, point, POINT_DIGITS)
        if left is None or right is None or left == 0 or right == 0:
            continue
        current = left / right
        if ratio is not None and sympy.Abs(current - ratio) > POINT_ERROR * sympy.Abs(ratio):
            return False
        ratio = current
        agreed += 1
    return True if agreed >= POINTS_NEEDED else None


def _value(expression: Expr, point: dict[Basic, Expr], digits: int) -> Expr | None:
    """A finite number, or None if there is none."""
    value = expression.evalf(digits, subs=point or None)
    if not (value.is_number and value.is_finite):
        return None
    parts = value.as_real_imag()
    if not all(part.is_Float or part.is_Rational for part in parts):
        return None
    # where terms cancel to nothing, SymPy leaves a tiny number with one bit of precision instead of 0
    real, imaginary = (sympy.Integer(0) if part.is_Float and part._prec == 1 else part for part in parts)
    return real + sympy.I * imaginary
