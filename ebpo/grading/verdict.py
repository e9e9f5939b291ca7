"""What grading returns, and how the verdicts of a run are counted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Literal, NamedTuple

log = logging.getLogger(__name__)

Outcome = Literal["correct", "wrong", "unscorable"]
Reason = Literal[
    # correct: the strictest stage that was needed
    "exact",
    "text",
    "integer",
    "rational",
    "symbolic",
    # wrong
    "different",
    "no_answer",
    "hedge",
    "too_long",
    "danger",
    # unscorable: the grader cannot tell, so the row must leave every statistic
    "timeout",
    "worker_died",
    "error",
    "bad_gold",
]

OUTCOME_OF_REASON: dict[Reason, Outcome] = {
    "exact": "correct",
    "text": "correct",
    "integer": "correct",
    "rational": "correct",
    "symbolic": "correct",
    "different": "wrong",
    "no_answer": "wrong",
    "hedge": "wrong",
    "too_long": "wrong",
    "danger": "wrong",
    "timeout": "unscorable",
    "worker_died": "unscorable",
    "error": "unscorable",
    "bad_gold": "unscorable",
}

MAX_EXTRACTED_CHARS = 200


class Verdict(NamedTuple):
    """The grade of one completion.

    Attributes:
        verdict: "correct", "wrong", or "unscorable" (the grader cannot tell: neither a reward nor a punishment).
        reason: one code of `OUTCOME_OF_REASON`; it determines `verdict`.
        extracted: the raw answer text, at most 200 characters; None where no answer was found.
    """

    verdict: Outcome
    reason: Reason
    extracted: str | None = None


def make_verdict(reason: Reason, extracted: str | None = None) -> Verdict:
    """The verdict that belongs to a reason, with the extracted text cut to a length fit for logs."""
    return Verdict(OUTCOME_OF_REASON[reason], reason, extracted[:MAX_EXTRACTED_CHARS] if extracted else extracted)


class UnscorableError(RuntimeError):
    """So many completions could not be graded that the run's statistics mean nothing."""


class VerdictCounts:
    """Counts of verdicts by reason, over a step, an evaluation or a whole run."""

    def __init__(self, verdicts: Iterable[Verdict] = ()) -> None:
        self._reasons: Counter[Reason] = Counter()
        self.update(verdicts)

    def update(self, verdicts: Iterable[Verdict]) -> None:
        """Adds verdicts."""
        self._reasons.update(v.reason for v in verdicts)

    @property
    def reasons(self) -> dict[Reason, int]:
        """Count of every reason that occurred, most frequent first."""
        return dict(self._reasons.most_common())

    @property
    def total(self) -> int:
        """Number of verdicts."""
        return sum(self._reasons.values())

    def count(self, outcome: Outcome) -> int:
        """Number of verdicts with an outcome."""
        return sum(n for reason, n in self._reasons.items() if OUTCOME_OF_REASON[reason] == outcome)

    @property
    def unscorable_fraction(self) -> float:
        """Share of unscorable verdicts, in [0, 1]; 0 when there are none at all."""
        return self.count("unscorable") / self.total if self.total else 0.0

    def metrics(self, prefix: str = "verdict") -> dict[str, float]:
        """Flat metrics: `{prefix}/{outcome}/{reason}` for every reason (0 included) and `{prefix}/unscorable_fraction`.

        Every key is always there, so that a metrics table has the same columns at every step.
        """
        counts = {f"{prefix}/{o}/{reason}": float(self._reasons[reason]) for reason, o in OUTCOME_OF_REASON.items()}
        return {**counts, f"{prefix}/unscorable_fraction": self.unscorable_fraction}


def check_unscorable(counts: VerdictCounts, warn: float = 0.01, stop: float = 0.20) -> str | None:
    """Warns of unscorable answers above the share `warn`, and refuses to go on above `stop`.

    Args:
        counts: the verdicts so far.
        warn: share in [0, 1] above which a warning is logged.
        stop: share in [0, 1] above which the run must stop.

    Returns:
        The warning, which has also been logged; None if there was no reason for one.

    Raises:
        UnscorableError: more than `stop` of the verdicts are unscorable.
    """
    fraction = counts.unscorable_fraction
    if fraction <= warn:
        return None
    top = ", ".join(f"{r} {n}" for r, n in counts.reasons.items() if OUTCOME_OF_REASON[r] == "unscorable")
    message = f"{counts.count('unscorable')} of {counts.total} answers ({fraction:.1%}) are unscorable: {top}"
    if fraction > stop:
        raise UnscorableError(f"{message}; more than {stop:.0%} makes rewards and accuracies meaningless")
    log.warning("%s", message)
    return message
