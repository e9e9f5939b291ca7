"""Validation during training: pass@1, pass@n and maj@n on a fixed held-out subset."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ebpo.grading import GradeItem, Grader, Verdict, VerdictCounts, check_unscorable
from ebpo.problems.record import Problem
from ebpo.rollouts.protocol import Rollouts, Sampling


def validate(
    problems: Sequence[Problem],
    prompt_ids: Sequence[list[int]],
    rollouts: Rollouts,
    grader: Grader,
    samples: int,
    sampling: Sampling,
) -> dict[str, float]:
    """Metrics `validation/pass@1`, `validation/pass@n`, `validation/maj@n` with n = samples."""
    groups = rollouts.generate(prompt_ids, samples, sampling)
    items = [
        GradeItem(gold=p.answer, completion=c.text) for p, group in zip(problems, groups, strict=True) for c in group
    ]
    verdicts = grader.grade_batch(items)
    check_unscorable(VerdictCounts(verdicts))
    rows = [verdicts[i : i + samples] for i in range(0, len(verdicts), samples)]
    count = len(rows)
    return {
        "validation/pass@1": sum(v.verdict == "correct" for v in verdicts) / len(verdicts),
        f"validation/pass@{samples}": sum(any(v.verdict == "correct" for v in row) for row in rows) / count,
        f"validation/maj@{samples}": sum(majority_credit(row) for row in rows) / count,
    }


def majority_credit(verdicts: Sequence[Verdict]) -> float:
    """1 if the most frequent answer is correct, 0 if not; tied answers share the credit.

    Completions without an answer do not vote; if none votes, the credit is 0.
    """
    votes = Counter(v.extracted for v in verdicts if v.extracted)
    if not votes:
        return 0.0
    correct: dict[str, bool] = defaultdict(bool)
    for verdict in verdicts:
        if verdict.extracted:
            correct[verdict.extracted] |= verdict.verdict == "correct"
    most = max(votes.values())
    winners = [answer for answer, number in votes.items() if number == most]
    return sum(correct[answer] for answer in winners) / len(winners)
