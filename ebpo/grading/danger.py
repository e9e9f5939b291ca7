"""Answers that are refused before SymPy sees them, because evaluating them could take for ever.

Hardly any gold looks like them; where one does, the same construction is allowed in the answer, and the worker's time
limit is what protects the run.
"""

from __future__ import annotations

import re

MAX_EXPONENT = 4_000
MAX_EXPONENT_PRODUCT = 100_000
MAX_FACTORIAL = 1_000

_ITERATION = re.compile(r"\\(?:sum|prod|int|iint|oint|lim|bigcup|bigcap|coprod)(?![A-Za-z])")
_LITERAL_EXPONENT = re.compile(r"\^(?:\{-?([0-9]{1,400})\}|-?([0-9]{1,400}))")
_NUMERIC_TOWER = re.compile(r"\^\s*(?:\{[^A-Za-z{}]{0,40}\^|[0-9]+\s*\^|\([^A-Za-z()]{0,40}\^|\{[^A-Za-z{}]{0,40}!)")
_DEEP_TOWER = re.compile(r"\^\{[^{}^]{0,12}\^\{[^{}^]{0,12}\^\{")
_FACTORIAL_OF_NUMBER = re.compile(r"([0-9]{4,400})\)?\s*!|!\s*\)?\s*!|\^[^A-Za-z]{0,40}[})]\s*!")
_BINOMIAL_OF_NUMBERS = re.compile(r"\\binom\{\s*(?:[0-9]{4,}|[^{}]{0,40}[\^!])")
_LONG_NUMBER = re.compile(r"[0-9]{401}")
_EXPONENT_NOTATION = re.compile(r"[0-9]\s*[eE]\s*[+]?[0-9]{4,}")


def dangerous_features(text: str) -> frozenset[str]:
    """What in a canonical text could take for ever to evaluate, as names; empty for ordinary answers."""
    features = {
        name
        for name, pattern in (
            ("iteration", _ITERATION),
            ("tower", _NUMERIC_TOWER),
            ("tower", _DEEP_TOWER),
            ("binomial", _BINOMIAL_OF_NUMBERS),
            ("digits", _LONG_NUMBER),
            ("scientific", _EXPONENT_NOTATION),
        )
        if pattern.search(text)
    }
    exponents = [int(a or b) for a, b in _LITERAL_EXPONENT.findall(text)]
    product = 1
    for exponent in exponents:
        product = min(product * max(exponent, 1), MAX_EXPONENT_PRODUCT + 1)
    if max(exponents, default=0) > MAX_EXPONENT or product > MAX_EXPONENT_PRODUCT:
        features.add("exponent")
    if any(not n or int(n) > MAX_FACTORIAL for n in _FACTORIAL_OF_NUMBER.findall(text)):
        features.add("factorial")
    return frozenset(features)
