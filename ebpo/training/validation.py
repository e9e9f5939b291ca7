"""Validation during training: pass@1, pass@n and maj@n on a fixed held-out subset."""

from __future__ import annotations

from collections.abc import Sequence

from ebpo.evaluation.classes import majority_credits
from ebpo.grading import Grader, Verdict, VerdictCounts, check_unscorable
from ebpo.rollouts.protocol import Sampling
from ebpo.training.collect import Sampler


def validate(sampler: Sampler, ids: Sequence[str], samples: int, sampling: Sampling) -> dict[str, float]:
    """Metrics of `samples` completions of each problem; see `validation_metrics`."""
    _, verdicts = sampler.sample(ids, samples, sampling)
    check_unscorable(VerdictCounts(verdicts))
    rows = [verdicts[i : i + samples] for i in range(0, len(verdicts), samples)]
    return validation_metrics(rows, sampler.grader)


def validation_metrics(rows: Sequence[Sequence[Verdict]], grader: Grader) -> dict[str, float]:
    """Metrics `validation/pass@1`, `validation/pass@n`, `validation/maj@n`, means over problems with n samples each.

    Unscorable completions leave a problem's pass@1; a problem with nothing else leaves the mean.
    """
    scorable = [[v.verdict == "correct" for v in row if v.verdict != "unscorable"] for row in rows]
    scorable = [row for row in scorable if row]
    n = len(rows[0])
    return {
        "validation/pass@1": sum(sum(row) / len(row) for row in scorable) / len(scorable),
        f"validation/pass@{n}": sum(any(row) for row in scorable) / len(scorable),
        f"validation/maj@{n}": sum(majority_credits(rows, grader)) / len(rows),
    }
