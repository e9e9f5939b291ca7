"""A few graded completions to look at, small enough to travel with the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ebpo.problems.record import Problem

EACH = 2
CHARACTERS = 2_000


def example_completions(graded: pd.DataFrame, problems: Mapping[str, Problem]) -> list[dict[str, Any]]:
    """Correct and wrong completions of every benchmark, at most `EACH` of either, of different problems.

    Chosen by no quality of theirs: problems in the order of their ids, the first completion of each verdict.

    Args:
        graded: from `ebpo.evaluation.scoring.grade_frame`.
        problems: id -> problem.

    Returns:
        benchmark, problem_id, sample, question, gold, completion (its last `CHARACTERS` characters, where the answer
        is), cut (whether that is less than all), extracted, verdict, reason, tokens, finish_reason.
    """
    chosen = graded[graded["verdict"].isin(["correct", "wrong"])].sort_values(["problem_id", "sample"])
    chosen = chosen.drop_duplicates(["benchmark", "verdict", "problem_id"])
    rows = []
    for _, own in chosen.groupby(["benchmark", "verdict"], sort=True):
        for row in own.head(EACH).to_dict("records"):
            text, problem = str(row["completion"]), problems[row["problem_id"]]
            kept = {key: row[key] for key in ("verdict", "reason", "tokens", "finish_reason")}
            rows.append(
                {
                    "benchmark": row["benchmark"],
                    "problem_id": row["problem_id"],
                    "sample": row["sample"],
                    "question": problem.problem,
                    "gold": problem.answer,
                    "completion": text[-CHARACTERS:],
                    "cut": len(text) > CHARACTERS,
                    "extracted": None if pd.isna(row["extracted"]) else row["extracted"],
                    **kept,
                }
            )
    return rows
