"""A claim of the paper, and the rule by which it gets a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["supported", "not supported", "undecided"]

LEVEL = 0.05
MIN_SEEDS = 3
MARGIN = 1.0  # percentage points: a gain that is surely smaller than this is no support
METHOD_RULE = (
    "Claims about methods are supported if the difference has the claimed sign with a Holm-adjusted p of at most "
    f"{LEVEL:g}; not supported if it has the other sign at that level, or if the whole 95 % interval of an accuracy "
    f"gain lies below {MARGIN:g} point; else undecided. With fewer than {MIN_SEEDS} training seeds they are undecided, "
    "since the spread between training runs, which may be larger than the difference, is not measured well enough."
)


@dataclass(frozen=True)
class Claim:
    """A row of the claims table.

    Attributes:
        claim: short name; T1 to T5 are the theorems.
        statement: what the paper says.
        paper: the paper's own number, "" where it gives none that we have.
        evidence: what was measured: `benchmarks`, `training curves`, `training steps`, `simulation`.
        setting: of which runs or of which simulation.
        unit: `points` (percentage points of pass@1), `ratio` (EBPO / GRPO), or that of the simulation.
        measured, low, high: estimate with its 95 % interval; None where there is none.
        p, p_holm: two-sided, alone and adjusted within the family of its evidence and model.
        seeds: training seeds. n: problems, steps, or None.
        also: the same measured otherwise: at the checkpoint that the paper does not evaluate. It decides nothing.
        verdict, reason: by `METHOD_RULE`; of theorems see `ebpo.reporting.claims_theory`.
    """

    claim: str
    statement: str
    paper: str
    evidence: str
    setting: str
    unit: str = ""
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    seeds: int | None = None
    n: int | None = None
    also: str = ""
    verdict: Verdict = "undecided"
    reason: str = ""


def verdict_of(effect: float, p_holm: float, seeds: int, high: float | None = None) -> tuple[Verdict, str]:
    """The verdict on a claim about methods by `METHOD_RULE`, and why.

    Args:
        effect: positive if it has the claimed direction.
        p_holm: two-sided, adjusted.
        seeds: training seeds.
        high: upper end of the 95 % interval of an accuracy gain, in percentage points; None for other quantities.
    """
    if seeds < MIN_SEEDS:
        count = "1 training seed" if seeds == 1 else f"{seeds} training seeds"
        return "undecided", f"{count}: the spread between training runs is not measured well enough"
    if p_holm <= LEVEL:
        return ("supported", "in the claimed direction") if effect > 0 else ("not supported", "in the other direction")
    if high is not None and high < MARGIN:
        return "not supported", f"the whole interval lies below {MARGIN:g} point"
    return "undecided", f"not different from 0 at the {LEVEL:g} level"


def in_points(value: float, low: float | None = None, high: float | None = None) -> str:
    """A difference in percentage points with its interval, as `+1.20 [-0.30, +2.70]`."""
    return f"{value:+.2f}" if low is None or high is None else f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"
