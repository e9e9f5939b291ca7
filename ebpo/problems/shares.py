"""Which problem set a generated question may be used in."""

from __future__ import annotations

from typing import Literal

from ebpo.config import GeneratedData
from ebpo.problems.text import text_digest

Share = Literal["benchmark", "validation", "train"]


def share_of(problem: str, held_out: GeneratedData.HeldOut) -> Share:
    """Which set a question may be used in: a hash of its normalised text, uniform in [0, 1), cut at the shares."""
    position = int(text_digest(problem)[:13], 16) / 16**13
    if position < held_out.benchmark:
        return "benchmark"
    if position < held_out.benchmark + held_out.validation:
        return "validation"
    return "train"
