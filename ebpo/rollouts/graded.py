"""Grading of sampled completions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ebpo.grading import Grader, Verdict, VerdictCounts
from ebpo.problems.record import Problem
from ebpo.rollouts.protocol import Completion

_ACCURACY = {"correct": 1.0, "wrong": 0.0, "unscorable": math.nan}


def verdicts_of(grader: Grader, problems: Sequence[Problem], completions: Sequence[Completion]) -> list[Verdict]:
    """The verdict of each completion of the problem beside it."""
    return grader.grade_batch([p.grade_item(c.text) for p, c in zip(problems, completions, strict=True)])


def accuracy_of(verdict: Verdict) -> float:
    """1 correct, 0 wrong, NaN where the grader could not decide."""
    return _ACCURACY[verdict.verdict]


def grade_completions(
    grader: Grader, problems: Sequence[Problem], completions: Sequence[Completion], verdicts: VerdictCounts
) -> list[float]:
    """Accuracy of each completion; the reasons are added to `verdicts`."""
    results = verdicts_of(grader, problems, completions)
    verdicts.update(results)
    return [accuracy_of(v) for v in results]
