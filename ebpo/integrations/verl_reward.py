"""Our grader as a reward function in verl's calling convention.

    reward.custom_reward_function.path=pkg://ebpo.integrations.verl_reward

verl has no third state beside right and wrong. A completion that cannot be graded gets `unscorable` as its score:
NaN for EBPO, which leaves such rows out (and makes verl's own mean score of that step NaN); 0 for verl's own
estimators, where a NaN would spread over the whole group.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ebpo.grading import GradeItem, Grader


@cache
def _grader() -> Grader:
    """One grader a process: verl calls from many threads of a few reward workers."""
    return Grader(workers=1)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    unscorable: float = 0.0,
    **_: Any,
) -> dict[str, Any]:
    """Grades one completion.

    Args:
        data_source: unused; verl passes it.
        solution_str: the completion.
        ground_truth: the gold answer.
        extra_info: may hold `required_answers`, `answer_type` and `tolerance` of the problem, as `to_verl.py` writes.
        unscorable: score of a completion that the grader cannot decide;
            `+reward.custom_reward_function.reward_kwargs.unscorable=nan` sets it.

    Returns:
        score (the reward), acc (1 correct, else 0), verdict and reason of `ebpo.grading`.
    """
    extra = extra_info or {}
    required = extra.get("required_answers")
    gold = [list(required)] if required is not None and len(required) else ground_truth
    item = GradeItem(gold, solution_str, extra.get("answer_type"), extra.get("tolerance"))
    verdict = _grader().grade_batch([item])[0]
    accuracy = float(verdict.verdict == "correct")
    score = unscorable if verdict.verdict == "unscorable" else accuracy
    return {"score": score, "acc": accuracy, "verdict": verdict.verdict, "reason": verdict.reason}
