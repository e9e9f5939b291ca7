"""Values of numeric LaTeX in bounded time: exact ones that decide, and approximate ones that can only tell apart.

Works on canonical text (see `normalize`). Exact values are `Fraction`s: nothing is rounded, and two numbers that differ
in the hundredth digit differ. Approximate values (square roots, pi, letters at a fixed point) save the symbolic stage
from most wrong answers; they never make an answer right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

MAX_BITS = 16_384
MAX_TOKENS = 400
MAX_DEPTH = 30
MAX_FACTORIAL = 1_000
MAX_BINOMIAL = 5_000

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_TOKEN = re.compile(
    r"\s*([0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400}|\\(?:frac|binom|cdot|sqrt|pi)(?![A-Za-z])|[A-Za-z]|[-+/^!{}()\[\]])"
)
_CLOSING = {"(": ")", "{": "}"}

Number = Any  # Fraction or complex, by the arithmetic in use


class TooLarge(Exception):
    """The value is a number, but one that is too large to be computed safely."""


class _NotANumber(Exception):
    """The text is something else than what this arithmetic covers."""


def rational(text: str) -> Fraction | None:
    """The exact value of a canonical text.

    Args:
        text: canonical text, such as `-12`, `3.50`, `\\frac{3}{4}`, `2021 \\cdot 505`, `10^{100}`, `\\binom{10}{3}`.

    Returns:
        The value, or None if the text is not rational arithmetic (or divides by zero).

    Raises:
        TooLarge: it is, but numerator or denominator would have more than `MAX_BITS` bits.
    """
    if _INTEGER.fullmatch(text):
        return Fraction(int(text))
    tokens = _tokens(text)
    if tokens is None:
        return None
    try:
        value: Fraction = _Parser(tokens, _Exact()).parse()
    except (_NotANumber, ZeroDivisionError):
        return None
    return value


def surely_different(left: str, right: str) -> bool:
    """Whether two canonical texts have values that differ by much more than floating-point error.

    Covers square roots, pi, e, i and single letters (at one fixed point). False for everything else: nothing is known.
    """
    values: list[complex] = []
    scale = 1.0
    for text in (left, right):
        tokens = _tokens(text)
        if tokens is None:
            return False
        arithmetic = _Approximate()
        try:
            values.append(_Parser(tokens, arithmetic).parse())
        except (_NotANumber, TooLarge, ZeroDivisionError, OverflowError):
            return False
        scale = max(scale, arithmetic.scale)
    difference = abs(values[0] - values[1])
    # cancellation and division can amplify rounding by about the square of the largest intermediate value
    return difference > 1e-6 * (1 + abs(values[0]) + abs(values[1])) + 1e-12 * scale**2


def _tokens(text: str) -> list[str] | None:
    tokens: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None or len(tokens) == MAX_TOKENS:
            return None
        tokens.append(match.group(1))
        position = match.end()
    return tokens or None


class _Arithmetic:
    """The operations that differ between exact and approximate values."""

    def literal(self, text: str) -> Number:
        raise NotImplementedError

    def symbol(self, text: str) -> Number:
        raise _NotANumber

    def root(self, value: Number, degree: Number) -> Number:
        raise _NotANumber

    def power(self, base: Number, exponent: Number) -> Number:
        raise NotImplementedError

    def bounded(self, value: Number) -> Number:
        raise NotImplementedError

    def integer(self, value: Number) -> int:
        raise NotImplementedError


class _Exact(_Arithmetic):
    def literal(self, text: str) -> Fraction:
        return Fraction("0" + text.rstrip("."))

    def bounded(self, value: Fraction) -> Fraction:
        if _bits(value) > MAX_BITS:
            raise TooLarge
        return value

    def integer(self, value: Fraction) -> int:
        if value.denominator != 1:
            raise _NotANumber
        return int(value)

    def power(self, base: Fraction, exponent: Fraction) -> Fraction:
        whole = self.integer(exponent)  # a root is left to the later stages
        if base in (0, 1, -1):
            return base ** (abs(whole) % 2 if base == -1 else (whole > 0) - (whole < 0))
        if abs(whole) * (_bits(base) - 1) > MAX_BITS:
            raise TooLarge
        return self.bounded(base**whole)


class _Approximate(_Arithmetic):
    """Complex floating point; `scale` is the largest intermediate magnitude."""

    def __init__(self) -> None:
        self.scale = 1.0

    def literal(self, text: str) -> complex:
        return self.bounded(complex(float("0" + text)))

    def bounded(self, value: complex) -> complex:
        magnitude = abs(value)
        if not magnitude < 1e6:
            raise TooLarge  # also NaN
        self.scale = max(self.scale, magnitude, 1 / magnitude if magnitude > 1e-6 else 1.0)
        return value

    def symbol(self, text: str) -> complex:
        if text == "\\pi":
            return complex(math.pi)
        if text == "e":
            return complex(math.e)
        if text == "i":
            return 1j
        if text in "fghP":
            raise _NotANumber  # more often a function than a factor
        return complex(1 + (ord(text) * 0.6180339887498949) % 1)

    def root(self, value: complex, degree: complex) -> complex:
        return self.power(value, 1 / degree)

    def integer(self, value: complex) -> int:
        if value.imag or not value.real.is_integer():
            raise _NotANumber
        return int(value.real)

    def power(self, base: complex, exponent: complex) -> complex:
        if exponent.imag or (not exponent.real.is_integer() and (base.imag or base.real < 0)):
            raise _NotANumber  # several branches
        return self.bounded(base ** (int(exponent.real) if exponent.real.is_integer() else exponent.real))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


class _Parser:
    """Recursive descent over: sum of products of signed powers, with implicit products such as `2(3)`."""

    def __init__(self, tokens: list[str], arithmetic: _Arithmetic) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._arithmetic = arithmetic

    def parse(self) -> Number:
        value = self._sum()
        if self._position != len(self._tokens):
            raise _NotANumber
        return value

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _nested(self, rule: Callable[[], Number]) -> Number:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NotANumber
        value = rule()
        self._depth -= 1
        return value

    def _sum(self) -> Number:
        value = self._product()
        while self._peek() in ("+", "-"):
            sign = 1 if self._next() == "+" else -1
            value = self._arithmetic.bounded(value + sign * self._product())
        return value

    def _product(self) -> Number:
        value = self._signed()
        while token := self._peek():
            if token in ("\\cdot", "/"):
                self._next()
                factor = self._signed()
                value = self._arithmetic.bounded(value * factor if token == "\\cdot" else value / factor)
            elif token in ("(", "{") or token[0] == "\\" or token.isalpha():
                value = self._arithmetic.bounded(value * self._power())
            else:
                break  # two numbers side by side are no product
        return value

    def _signed(self) -> Number:
        sign = 1
        while self._peek() in ("+", "-"):
            sign = sign if self._next() == "+" else -sign
        return sign * self._power()

    def _power(self) -> Number:
        base = self._postfix()
        if self._peek() != "^":
            return base
        self._next()
        return self._arithmetic.power(base, self._nested(self._signed))  # a^b^c means a^(b^c)

    def _postfix(self) -> Number:
        value = self._atom()
        while self._peek() == "!":
            self._next()
            n = self._arithmetic.integer(value)
            if n < 0:
                raise _NotANumber
            value = self._whole(n, MAX_FACTORIAL, math.factorial)
        return value

    def _whole(self, n: int, limit: int, function: Callable[[int], int]) -> Number:
        if n > limit:
            raise TooLarge
        return self._arithmetic.bounded(self._arithmetic.literal(str(function(n))))

    def _atom(self) -> Number:
        token = self._peek()
        if token in _CLOSING:
            return self._group()
        self._next()
        if token == "\\frac":
            return self._arithmetic.bounded(self._group() / self._group())
        if token == "\\binom":
            n, k = (self._arithmetic.integer(self._group()) for _ in range(2))
            if n < 0 or k < 0:
                raise _NotANumber
            return self._whole(n, MAX_BINOMIAL, lambda n: math.comb(n, k))
        if token == "\\sqrt":
            degree = self._bracketed("[", "]") if self._peek() == "[" else self._arithmetic.literal("2")
            return self._arithmetic.root(self._group(), degree)
        if token and (token[0].isdigit() or token[0] == "."):
            return self._arithmetic.literal(token)
        if token == "\\pi" or token.isalpha():
            return self._arithmetic.symbol(token)
        raise _NotANumber

    def _group(self) -> Number:
        opening = self._peek()
        if opening not in _CLOSING:
            raise _NotANumber
        return self._bracketed(opening, _CLOSING[opening])

    def _bracketed(self, opening: str, closing: str) -> Number:
        if self._next() != opening:
            raise _NotANumber
        value = self._nested(self._sum)
        if self._next() != closing:
            raise _NotANumber
        return value
