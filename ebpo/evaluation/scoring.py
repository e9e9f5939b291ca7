"""From completions to scores: grade, tally per problem, estimate pass@1, pass@k and maj@k with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ebpo.evaluation.classes import Voter, answer_classes, tally
from ebpo.evaluation.estimators import Floats, curve_points, majority_at_k, pass_at_k, vote_text
from ebpo.evaluation.intervals import bootstrap_interval, sampling_error
from ebpo.evaluation.protocol import Protocol
from ebpo.grading import Grader, VerdictCounts, check_unscorable
from ebpo.problems.record import Problem


def grade_frame(completions: pd.DataFrame, problems: Mapping[str, Problem]) -> pd.DataFrame:
    """The completions with columns verdict, reason, extracted, and answer_class.

    answer_class is the class of equivalent answers among those of the same problem (`ebpo.evaluation.classes`): 0 for
    correct ones, 1, 2, ... for wrong ones, NA for a completion that does not vote.

    Raises:
        ValueError: a completion belongs to no known problem.
        UnscorableError: too many could not be graded.
    """
    unknown = sorted(set(completions["problem_id"]) - set(problems))
    if unknown:
        raise ValueError(
            f"{len(unknown)} problem ids of the completions are in no benchmark, the first is {unknown[0]}"
        )
    pairs = zip(completions["problem_id"], completions["completion"], strict=True)
    groups = completions.groupby(["benchmark", "problem_id"], sort=True).indices
    places = [np.asarray(own, dtype=np.int64).tolist() for own in groups.values()]
    with Grader(workers=1) as grader:
        verdicts = grader.grade_batch([problems[i].grade_item(text) for i, text in pairs])
        check_unscorable(VerdictCounts(verdicts))
        voters = [[Voter(verdicts[i].verdict, verdicts[i].extracted) for i in own] for own in places]
        classes = answer_classes(voters, grader)
    numbers: dict[int, int | None] = {}
    for own, found in zip(places, classes, strict=True):
        numbers.update(zip(own, found, strict=True))
    return completions.assign(
        verdict=[v.verdict for v in verdicts],
        reason=[v.reason for v in verdicts],
        extracted=pd.Series([v.extracted for v in verdicts], dtype="str", index=completions.index),
        answer_class=pd.array([numbers[i] for i in range(len(completions))], dtype="Int64"),
    )


def per_problem(graded: pd.DataFrame, samples: int) -> pd.DataFrame:
    """One row per problem: counts of its completions, its votes, and its estimates.

    Columns: benchmark, problem_id, samples; counts correct, wrong, unscorable, no_answer, truncated; mean_length in
    tokens; votes (sizes of the classes of wrong answers, `3 1`), majority_answer and majority_share (the class with
    most votes, by one of its notations, and its share of the scorable completions; of tied ones the correct one, then
    the first); maj_at_k for each k > 1 of `curve_points`, NaN where fewer than k completions could be graded.

    Raises:
        ValueError: a problem does not have exactly `samples` completions, numbered from 0.
    """
    rows = []
    for (benchmark, identifier), group in graded.groupby(["benchmark", "problem_id"], sort=True):
        if sorted(group["sample"]) != list(range(samples)):
            raise ValueError(
                f"{benchmark}/{identifier}: {len(group)} completions, {samples} are required, numbered from 0"
            )
        classes = [None if pd.isna(number) else int(number) for number in group["answer_class"]]
        votes = tally(list(group["verdict"]), classes)
        answer, share = _majority(group, votes.samples)
        estimates = {
            f"maj_at_{k}": majority_at_k(votes, k) if k <= votes.samples else math.nan
            for k in curve_points(samples)[1:]
        }
        rows.append(
            {
                "benchmark": benchmark,
                "problem_id": identifier,
                "samples": samples,
                "correct": votes.correct,
                "wrong": int((group["verdict"] == "wrong").sum()),
                "unscorable": int((group["verdict"] == "unscorable").sum()),
                "no_answer": int((group["reason"] == "no_answer").sum()),
                "truncated": int((group["finish_reason"] == "length").sum()),
                "mean_length": float(group["tokens"].mean()),
                "votes": vote_text(votes.wrong),
                "majority_answer": answer,
                "majority_share": share,
                **estimates,
            }
        )
    return pd.DataFrame(rows)


def _majority(group: pd.DataFrame, scorable: int) -> tuple[str, float]:
    """A notation of the answer with most votes and its share; "" and 0 if nobody votes."""
    sizes = group["answer_class"].dropna().value_counts()
    if sizes.empty:
        return "", 0.0
    first = int(sizes.index[sizes == sizes.max()].min())
    texts = group.loc[(group["answer_class"] == first).fillna(False).astype(bool), "extracted"]
    return str(texts.mode().iloc[0]), float(sizes.max()) / scorable


def scores(
    problems: pd.DataFrame, benchmarks: Sequence[str], identity: Mapping[str, Any], protocol: str
) -> pd.DataFrame:
    """One row per benchmark: pass@1 = avg@n, pass@k and maj@k, averaged over problems.

    Columns: those of `identity`; benchmark, problems (with a scorable completion), samples; pass_at_1 with se, low,
    high and sampling_se; for each further k of `curve_points` pass_at_k and maj_at_k with _se, _low, _high, over the
    problems with at least k scorable completions; complete_problems, which have nothing unscorable; no_answer,
    unscorable, truncated as shares of all completions; mean_length in tokens; protocol.

    The unit is the problem: se = sd(per-problem values, n - 1) / sqrt(problems) (Miller 2024, arXiv 2411.00640); low
    and high are the 95 % interval by `bootstrap_interval`. sampling_se is the error on this fixed set of problems, see
    `ebpo.evaluation.intervals.sampling_error`. Unscorable completions leave a problem's estimates; a problem with
    nothing else leaves the benchmark.

    Raises:
        ValueError: a benchmark has fewer than two problems that could be scored.
    """
    rows = []
    for name in benchmarks:
        own = problems[problems["benchmark"] == name]
        correct, scorable = own["correct"].to_numpy(), (own["samples"] - own["unscorable"]).to_numpy()
        if (scorable > 0).sum() < 2:
            raise ValueError(f"{name}: {(scorable > 0).sum()} problems could be scored; at least 2 are needed")
        samples, total = int(own["samples"].iloc[0]), int(own["samples"].sum())
        estimates: dict[str, float] = {}
        for k in curve_points(samples):
            enough = scorable >= k
            estimates |= _estimate(f"pass_at_{k}", pass_at_k(correct[enough], scorable[enough], k))
            if k == 1:
                estimates["sampling_se"] = sampling_error([correct[enough]], [scorable[enough]])
            else:
                estimates |= _estimate(f"maj_at_{k}", own[f"maj_at_{k}"].dropna().to_numpy())
        rows.append(
            {
                **identity,
                "benchmark": name,
                "problems": int((scorable > 0).sum()),
                "samples": samples,
                **estimates,
                "complete_problems": int((scorable == samples).sum()),
                "no_answer": int(own["no_answer"].sum()) / total,
                "unscorable": int(own["unscorable"].sum()) / total,
                "truncated": int(own["truncated"].sum()) / total,
                "mean_length": float(own["mean_length"].mean()),
                "protocol": protocol,
            }
        )
    return pd.DataFrame(rows)


def _estimate(name: str, values: Floats) -> dict[str, float]:
    """Mean over problems with its error and interval; pass@1 has the columns se, low and high without a prefix."""
    prefix = "" if name == "pass_at_1" else f"{name}_"
    if len(values) < 2:
        return {name: math.nan, f"{prefix}se": math.nan, f"{prefix}low": math.nan, f"{prefix}high": math.nan}
    interval = bootstrap_interval(values)
    return {
        name: float(values.mean()),
        f"{prefix}se": float(values.std(ddof=1)) / math.sqrt(len(values)),
        f"{prefix}low": interval.low,
        f"{prefix}high": interval.high,
    }


def record(graded: pd.DataFrame, protocol: Protocol) -> dict[str, Any]:
    """What a reader needs to judge an evaluation: its protocol, and per benchmark the counts of the grader's reasons
    and the lengths of completions in tokens (mean, median, 95th percentile; of correct and of wrong ones)."""
    benchmarks = {}
    for name, own in graded.groupby("benchmark", sort=False):
        lengths = {"all": own, **{v: own[own["verdict"] == v] for v in ("correct", "wrong")}}
        benchmarks[str(name)] = {
            "problems": int(own["problem_id"].nunique()),
            "completions": len(own),
            "distinct_completions": len(own.drop_duplicates(["problem_id", "completion"])),
            "reasons": {str(reason): int(count) for reason, count in own["reason"].value_counts().items()},
            "tokens": {key: _lengths(part["tokens"].to_numpy()) for key, part in lengths.items() if len(part)},
        }
    return {"protocol": {"digest": protocol.digest, **protocol.model_dump()}, "benchmarks": benchmarks}


def _lengths(tokens: Floats) -> dict[str, float]:
    return {
        "mean": float(tokens.mean()),
        "median": float(np.median(tokens)),
        "p95": float(np.quantile(tokens, 0.95)),
    }
