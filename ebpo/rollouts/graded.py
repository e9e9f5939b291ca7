"""Grading of sampled completions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ebpo.grading import GradeItem, Grader, VerdictCounts
from ebpo.problems.record import Problem
from ebpo.rollouts.protocol import Completion


def grade_completions(
    grader: Grader, problems: Sequence[Problem], completions: Sequence[Completion], verdicts: VerdictCounts
) -> list[float]:
    """Accuracy per completion: 1, 0, or NaN where the grader could not decide; reasons are counted."""
    items = [GradeItem(gold=p.answer, completion=c.text) for p, c in zip(problems, completions, strict=True)]
    results = grader.grade_batch(items)
    verdicts.update(results)
    score = {"correct": 1.0, "wrong": 0.0, "unscorable": math.nan}
    return [score[v.verdict] for v in results]
