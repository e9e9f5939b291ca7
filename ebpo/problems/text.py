"""Text of questions: the forms under which two of them are compared."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

# What only sets the type: the same question may be written with or without it.
_TYPESETTING = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|quad|qquad|bigl?|bigr?)(?![a-z])"  # named spacing and sizes
    r"|\\(?:text|textbf|textit|mathrm|operatorname)(?![a-z])"
    r"|\\[,;:! ()\[\]]|[$~]"
)
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")
# A number, a LaTeX command, a word of letters, a symbol with a meaning; other punctuation and braces do not count.
_TOKEN = re.compile(r"\d+(?:\.\d+)?|\\[a-z]+|[^\W\d_]+|[-+*/=<>^_!|%]")
# Chinese and Japanese are written without spaces: a character is a word.
_IDEOGRAPH = re.compile(r"([㐀-䶿一-鿿぀-ヿ])")
_NUMBER_WORD = re.compile(
    r"zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million"
    r"|half|twice|double|triple|first|second|third|fourth|fifth"
)


def normalise(text: str) -> str:
    """Text under which two questions count as the same: NFKC, lower case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def text_digest(text: str) -> str:
    """SHA-256 (hex) of the normalised text."""
    return hashlib.sha256(normalise(text).encode()).hexdigest()


def words(text: str) -> list[str]:
    """The words of a question in lower case: numbers, LaTeX commands, words, operators.

    Dollar signs, spacing, sizes, braces and punctuation are left out: `Find $x+1$.` is `find \\(x + 1\\)`.
    """
    plain = _FRACTION.sub(r"\\frac", _TYPESETTING.sub(" ", normalise(text)))
    return _TOKEN.findall(_IDEOGRAPH.sub(r" \1 ", plain))


def numbers(tokens: Sequence[str]) -> tuple[str, ...]:
    """The numbers among the words, in figures or in letters, in order: what tells questions of one template apart."""
    return tuple(token for token in tokens if token[0].isdigit() or _NUMBER_WORD.fullmatch(token))


def ngrams(tokens: Sequence[str], size: int) -> set[str]:
    """All runs of `size` words; a shorter text is one run by itself."""
    if len(tokens) <= size:
        return {" ".join(tokens)}
    return {" ".join(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
