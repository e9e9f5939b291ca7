"""Difficulty clustering: the base policy's pass rate on each training problem, raw and smoothed, in buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ebpo.clustering.beta_binomial import fit_prior, quantile_buckets
from ebpo.config import Difficulty
from ebpo.grading import Grader, VerdictCounts, check_unscorable
from ebpo.problems.record import Problem
from ebpo.rollouts.graded import grade_completions
from ebpo.rollouts.protocol import Completion

_COUNTS = {"id": "str", "rollouts": "int64", "correct": "int64", "truncated": "int64"}


def count_correct(
    blocks: Iterable[Mapping[str, Sequence[Completion]]], problems: Mapping[str, Problem], workers: int = 1
) -> pd.DataFrame:
    """Grades completions, block by block (problem id -> completions).

    Returns:
        Columns id, rollouts (the scorable ones), correct, truncated (completions that ran into the budget).

    Raises:
        ValueError: a problem has no scorable completion.
    """
    rows, verdicts = [], VerdictCounts()
    with Grader(workers=workers) as grader:
        for block in blocks:
            repeated = [problems[i] for i, group in block.items() for _ in group]
            accuracy = iter(grade_completions(grader, repeated, [c for g in block.values() for c in g], verdicts))
            for i, group in block.items():
                known = [a for a in (next(accuracy) for _ in group) if a == a]
                if not known:
                    raise ValueError(f"problem {i}: none of its {len(group)} rollouts could be graded")
                truncated = sum(c.finish_reason == "length" for c in group)
                rows.append((i, len(known), int(sum(known)), truncated))
    check_unscorable(verdicts)
    # With types, since a shard may be empty.
    return pd.DataFrame(rows, columns=list(_COUNTS)).astype(_COUNTS)


def merge_counts(shards: Sequence[pd.DataFrame], ids: Sequence[str]) -> pd.DataFrame:
    """The shards' counts as one table, in the order of `ids`.

    Raises:
        ValueError: an id is missing, occurs twice, or is none of `ids`.
    """
    table = pd.concat(shards, ignore_index=True)
    if sorted(table["id"]) != sorted(ids):
        raise ValueError(
            f"difficulty: the shards hold {len(table)} rows of {table['id'].nunique()} problems, not each of "
            f"{len(ids)} problems once; delete the shards and measure again"
        )
    return table.set_index("id").loc[list(ids)].reset_index()


def difficulty_table(counts: pd.DataFrame, settings: Difficulty) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Pass rates of the counts of all problems.

    Returns:
        Columns id, rollouts, correct, truncated, pass_rate (raw), smoothed (posterior mean under the fitted Beta
        prior), bucket (0 the easiest); and what difficulty.json says.
    """
    correct, rollouts = counts["correct"].to_numpy(), counts["rollouts"].to_numpy()
    prior = fit_prior(correct, rollouts)
    smoothed = prior.posterior_mean(correct, rollouts)
    table = counts.assign(
        pass_rate=correct / rollouts, smoothed=smoothed, bucket=quantile_buckets(smoothed, settings.buckets)
    )
    buckets = table.groupby("bucket")["smoothed"].agg(["size", "min", "max"])
    return table, {
        "problems": len(table),
        "rollouts": settings.rollouts,
        "temperature": settings.temperature,
        "mean_pass_rate": round(float(table["pass_rate"].mean()), 4),
        "all_fail": int((correct == 0).sum()),
        "all_pass": int((correct == rollouts).sum()),
        "truncated": round(float(counts["truncated"].sum() / (settings.rollouts * len(table))), 4),
        "unscorable": int((settings.rollouts - rollouts).sum()),
        "prior": {"a": round(prior.a, 4), "b": round(prior.b, 4)},
        "buckets": [
            {"bucket": int(str(name)), "problems": int(row["size"]), "smoothed": [float(row["min"]), float(row["max"])]}
            for name, row in buckets.iterrows()
        ],
    }
