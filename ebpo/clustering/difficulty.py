"""Difficulty clustering: the base policy's pass rate on each training problem."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pandas as pd

from ebpo.config import Difficulty
from ebpo.grading import Grader, VerdictCounts, check_unscorable
from ebpo.problems.record import Problem
from ebpo.rollouts.graded import grade_completions
from ebpo.rollouts.protocol import Rollouts, Sampling
from ebpo.seeds import derive_seed

log = logging.getLogger(__name__)

_BLOCK = 200  # problems between two lines of progress


def pass_rates(
    problems: Sequence[Problem],
    prompt_ids: Sequence[list[int]],
    rollouts: Rollouts,
    settings: Difficulty,
    max_new_tokens: int,
) -> pd.DataFrame:
    """Columns id, rollouts (scorable ones), correct, pass_rate.

    Raises:
        ValueError: a problem has no scorable rollout.
    """
    rows, verdicts = [], VerdictCounts()
    with Grader(workers=1) as grader:
        for start in range(0, len(problems), _BLOCK):
            block = list(problems[start : start + _BLOCK])
            sampling = Sampling(settings.temperature, max_new_tokens, derive_seed("difficulty", settings.seed, start))
            groups = rollouts.generate(prompt_ids[start : start + _BLOCK], settings.rollouts, sampling)
            repeated = [p for p in block for _ in range(settings.rollouts)]
            accuracy = grade_completions(grader, repeated, [c for group in groups for c in group], verdicts)
            for i, problem in enumerate(block):
                known = [a for a in accuracy[i * settings.rollouts : (i + 1) * settings.rollouts] if a == a]
                if not known:
                    raise ValueError(f"problem {problem.id}: none of its {settings.rollouts} rollouts could be graded")
                rows.append((problem.id, len(known), int(sum(known)), sum(known) / len(known)))
            log.info("%d of %d problems", min(start + _BLOCK, len(problems)), len(problems))
    check_unscorable(verdicts)
    return pd.DataFrame(rows, columns=["id", "rollouts", "correct", "pass_rate"])
