"""From completions to scores: grade, count per problem, estimate pass@1 = avg@k with an error over problems."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ebpo.grading import GradeItem, Grader, VerdictCounts, check_unscorable
from ebpo.problems.record import Problem


def grade_frame(completions: pd.DataFrame, problems: Mapping[str, Problem]) -> pd.DataFrame:
    """The completions with columns verdict, reason, extracted.

    Raises:
        ValueError: a completion belongs to no known problem, or too many could not be graded.
    """
    unknown = sorted(set(completions["problem_id"]) - set(problems))
    if unknown:
        raise ValueError(
            f"{len(unknown)} problem ids of the completions are in no benchmark, the first is {unknown[0]}"
        )
    pairs = zip(completions["problem_id"], completions["completion"], strict=True)
    with Grader(workers=1) as grader:
        verdicts = grader.grade_batch([GradeItem(gold=problems[i].answer, completion=text) for i, text in pairs])
    check_unscorable(VerdictCounts(verdicts))
    return completions.assign(
        verdict=[v.verdict for v in verdicts],
        reason=[v.reason for v in verdicts],
        extracted=pd.Series([v.extracted for v in verdicts], dtype="str", index=completions.index),
    )


def per_problem(graded: pd.DataFrame, samples: int) -> pd.DataFrame:
    """One row per problem: how many of its completions were correct, wrong, unscorable, without answer, truncated.

    Raises:
        ValueError: a problem does not have exactly `samples` completions.
    """
    rows = []
    for (benchmark, identifier), group in graded.groupby(["benchmark", "problem_id"], sort=True):
        if sorted(group["sample"]) != list(range(samples)):
            raise ValueError(
                f"{benchmark}/{identifier}: {len(group)} completions, {samples} are required, numbered from 0"
            )
        rows.append(
            {
                "benchmark": benchmark,
                "problem_id": identifier,
                "samples": samples,
                "correct": int((group["verdict"] == "correct").sum()),
                "wrong": int((group["verdict"] == "wrong").sum()),
                "unscorable": int((group["verdict"] == "unscorable").sum()),
                "no_answer": int((group["reason"] == "no_answer").sum()),
                "truncated": int((group["finish_reason"] == "length").sum()),
                "mean_length": float(group["tokens"].mean()),
            }
        )
    return pd.DataFrame(rows)


def scores(
    problems: pd.DataFrame, benchmarks: Sequence[str], identity: Mapping[str, Any], protocol: str
) -> pd.DataFrame:
    """One row per benchmark: pass@1 averaged over samples, then over problems, with its standard error.

    The unit is the problem: se = sd(per-problem rate, n - 1) / sqrt(problems) (Miller 2024, arXiv 2411.00640).
    Unscorable completions leave a problem's rate; a problem with nothing else leaves the benchmark.

    Raises:
        ValueError: a benchmark has fewer than two problems that could be scored.
    """
    rows = []
    for name in benchmarks:
        own = problems[problems["benchmark"] == name]
        scorable = own["samples"] - own["unscorable"]
        rates = (own["correct"] / scorable)[scorable > 0]
        if len(rates) < 2:
            raise ValueError(f"{name}: {len(rates)} problems could be scored; at least 2 are needed")
        total = int(own["samples"].sum())
        rows.append(
            {
                **identity,
                "benchmark": name,
                "problems": len(rates),
                "samples": int(own["samples"].iloc[0]),
                "pass_at_1": float(rates.mean()),
                "se": float(rates.std(ddof=1)) / math.sqrt(len(rates)),
                "no_answer": int(own["no_answer"].sum()) / total,
                "unscorable": int(own["unscorable"].sum()) / total,
                "truncated": int(own["truncated"].sum()) / total,
                "mean_length": float(own["mean_length"].mean()),
                "protocol": protocol,
            }
        )
    return pd.DataFrame(rows)


def protocol_hash(parts: Mapping[str, Any]) -> str:
    """Short hash of what makes two scores comparable: sampling, template, problems, engine, versions."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]
