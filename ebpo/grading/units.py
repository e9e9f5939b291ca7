"""Units after a value: stripped from it, and compared when both gold and answer have one."""

from __future__ import annotations

import re

_NAMES = {
    "mm": "mm millimeter millimetre",
    "cm": "cm centimeter centimetre",
    "dm": "dm decimeter decimetre",
    "m": "m meter metre",
    "km": "km kilometer kilometre",
    "inch": "in inch inche",
    "foot": "ft foot feet",
    "yard": "yd yard",
    "mile": "mi mile",
    "gram": "g gram",
    "kg": "kg kilogram",
    "pound": "lb lbs pound",
    "ounce": "oz ounce",
    "second": "s sec second",
    "minute": "min minute",
    "hour": "h hr hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "yr year",
    "degree": "deg degree",
    "radian": "rad radian",
    "dollar": "dollar usd",
    "cent": "cent",
    "euro": "euro",
    "liter": "l liter litre",
    "ml": "ml milliliter millilitre",
    "gallon": "gal gallon",
    "mph": "mph",
    "km/h": "kmh kph",
    "unit": "unit",
    "percent": "percent",
}
_CANONICAL = {name: unit for unit, names in _NAMES.items() for name in names.split()}

# Words after a number that change its value or deny it: such an answer is no number with a unit.
_NO_UNITS = frozenset(
    [
        "tens",
        "hundred",
        "hundreds",
        "thousand",
        "thousands",
        "million",
        "millions",
        "billion",
        "billions",
        "trillion",
        "trillions",
        "dozen",
        "dozens",
        "half",
        "third",
        "thirds",
        "quarter",
        "quarters",
        "tenth",
        "tenths",
        "squared",
        "cubed",
        "factorial",
        "times",
        "plus",
        "minus",
        "over",
        "or",
        "and",
        "not",
        "base",
        "mod",
        "modulo",
        "per",
        "percent",
        "pct",
        "percentage",
        "to",
        "is",
    ]
)
_TEXT_UNIT = re.compile(r"\s*\\text\{([^{}0-9]*)\}\s*(?:\^\{?([23])\}?)?$")
_PLAIN_UNIT = re.compile(r"(?<=[0-9})%])(\s*)([A-Za-z]{2,20}(?:[ /]{1,2}[A-Za-z]{2,20}){0,4})(?:\^\{?([23])\}?)?$")
_PERCENT = frozenset(("percent", "pct", "percentage"))


def split_unit(text: str) -> tuple[str, str | None]:
    """Value and unit of a canonical text.

    Returns:
        The text before the unit (with `%` for a percent word) and the unit's canonical name: a power is appended
        (`cm^2`), unknown units are in lower case. The whole text and None if there is no unit.
    """
    match = _TEXT_UNIT.search(text)
    if match is not None and match.start() > 0:
        words, power = match.group(1), match.group(2)
    else:
        match = _PLAIN_UNIT.search(text)
        if match is None:
            return text, None
        words, power = match.group(2), match.group(3)
        known = all(
            _singular(w) in _CANONICAL or w in ("square", "cubic", "sq", "per")
            for w in re.split(r"[ /]+", words.lower())
        )
        if not known and not (match.group(1) and all(len(w) >= 3 for w in re.split(r"[ /]+", words))):
            return text, None
    body = text[: match.start()].strip()
    lowered = words.lower().strip(" .()")
    if lowered in _PERCENT:
        return f"{body}%", None
    parts = re.split(r"[ /]+", lowered)
    if lowered != "per cent" and any(p in _NO_UNITS and not (p == "per" and len(parts) > 1) for p in parts):
        return text, None
    return body, _canonical(parts, power)


def _canonical(parts: list[str], power: str | None) -> str:
    if parts[0] in ("square", "sq"):
        parts, power = parts[1:], "2"
    elif parts[0] == "cubic":
        parts, power = parts[1:], "3"
    name = " ".join(_CANONICAL.get(_singular(p), _singular(p)) for p in parts if p)
    return f"{name}^{power}" if power else name


def _singular(word: str) -> str:
    if word in _CANONICAL:
        return word
    return word[:-1] if word.endswith("s") and len(word) > 2 else word


def contradict(gold: str | None, answer: str | None) -> bool:
    """Whether two units are both known and differ: `cm` and `m`; not `cm` and none, not `apple` and `fruit`."""
    if gold is None or answer is None or gold == answer:
        return False
    return all(u.partition("^")[0] in _CANONICAL.values() and u.partition("^")[0] != "unit" for u in (gold, answer))
