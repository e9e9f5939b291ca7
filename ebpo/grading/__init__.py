"""Grading of final answers: correct, wrong or unscorable, each with a reason. Nothing here imports torch.

>>> from ebpo.grading import grade
>>> grade(gold=r"\\frac{1}{2}", completion=r"So it is \\boxed{0.5}.")
Verdict(verdict='correct', reason='rational', extracted='0.5')
"""

from ebpo.grading.grader import GradeItem, Grader, check_gold, grade
from ebpo.grading.pool import WorkerStartError
from ebpo.grading.verdict import (
    OUTCOME_OF_REASON,
    Outcome,
    Reason,
    UnscorableError,
    Verdict,
    VerdictCounts,
    check_unscorable,
)

__all__ = [
    "OUTCOME_OF_REASON",
    "GradeItem",
    "Grader",
    "Outcome",
    "Reason",
    "UnscorableError",
    "Verdict",
    "VerdictCounts",
    "WorkerStartError",
    "check_gold",
    "check_unscorable",
    "grade",
]
