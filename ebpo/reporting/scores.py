"""Scores of policies: reading, checking, and combining them over seeds and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ebpo.config import Comparison, comparison_runs

COLUMNS = [
    "model", "method", "order", "group_size", "seed", "benchmark", "problems", "samples", "pass_at_1", "se", "protocol",
]  # fmt: skip
AVERAGE = "average"


class Policy(NamedTuple):
    """A row of a table: a base policy (method "base", no order, group size or seeds), or the runs over all seeds."""

    model: str
    method: str
    order: str = ""
    group_size: int | None = None
    seeds: tuple[int, ...] = ()

    @property
    def folder(self) -> str:
        """Path below the experiment's folder, seeds left out."""
        if self.group_size is None:
            return f"base/{self.model}"
        return f"runs/{self.model}/{self.method}-{self.order}/G{self.group_size}"


class Score(NamedTuple):
    """A pass rate, or a difference of two, in percent, with its standard error."""

    mean: float
    se: float


def comparison_policies(comparison: Comparison) -> list[Policy]:
    """The rows of a comparison: for each model its base policy, then the runs, all seeds in one row."""
    seeds = tuple(comparison.seeds)
    runs = [Policy(r.model, r.method, r.order, r.group_size, seeds) for r in comparison_runs(comparison)]
    policies: list[Policy] = []
    for model in comparison.models:
        policies += [Policy(model, "base"), *dict.fromkeys(p for p in runs if p.model == model)]
    return policies


def read_scores(paths: Iterable[Path]) -> pd.DataFrame:
    """Reads score files into one frame.

    Returns:
        The columns of the files and `source`, the file of each row. `order` is "" and `group_size`, `seed` are NA
        for a base policy.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is empty, lacks a column, or holds a pass rate that is no number in [0, 1].
    """
    text = {name: "str" for name in ("model", "method", "order", "benchmark", "protocol")}
    frames = []
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"score file {path} is missing")
        try:
            frame = pd.read_csv(path, dtype={**text, "group_size": "Int64", "seed": "Int64"})
        except ValueError as error:
            raise ValueError(f"score file {path}: {' '.join(str(error).split())}") from None
        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise ValueError(f"score file {path}: columns {missing} are missing")
        wrong = frame[~(frame["pass_at_1"].between(0, 1) & (frame["se"] >= 0))]
        if len(wrong):
            first = wrong.iloc[0]
            raise ValueError(
                f"score file {path}: {first['benchmark']} has pass_at_1 {first['pass_at_1']} with se {first['se']}; "
                "allowed: a number in [0, 1] with a standard error"
            )
        frames.append(frame.assign(order=frame["order"].fillna(""), source=str(path)))
    if not frames:
        raise ValueError("no score file was given")
    return pd.concat(frames, ignore_index=True)


def read_rates(paths: Iterable[Path]) -> pd.DataFrame | None:
    """Pass rates per problem, from the per_problem.csv beside each score file.

    Returns:
        Columns model, method, order, group_size, seed, benchmark, problem_id, rate; a problem of which no completion
        could be graded is left out. None if a score file has no such neighbour.
    """
    frames = []
    for path in paths:
        beside = path.with_name("per_problem.csv")
        if not beside.is_file():
            return None
        identity = read_scores([path]).iloc[0]
        frame = pd.read_csv(beside, dtype={"benchmark": "str", "problem_id": "str"})
        scorable = frame["samples"] - frame["unscorable"]
        frame = frame.assign(rate=frame["correct"] / scorable)[scorable > 0]
        names = ["model", "method", "order", "group_size", "seed"]
        frames.append(frame[["benchmark", "problem_id", "rate"]].assign(**{name: identity[name] for name in names}))
    return pd.concat(frames, ignore_index=True) if frames else None


def _of(frame: pd.DataFrame, policy: Policy) -> pd.DataFrame:
    own = frame[(frame["model"] == policy.model) & (frame["method"] == policy.method)]
    if policy.group_size is None:
        return own
    mine = (own["order"] == policy.order) & (own["group_size"] == policy.group_size)
    return own[mine.fillna(False).astype(bool) & own["seed"].isin(policy.seeds)]


def policy_scores(scores: pd.DataFrame, policy: Policy, benchmarks: Sequence[str]) -> pd.DataFrame:
    """The rows of a policy, exactly one for every seed and benchmark.

    Raises:
        ValueError: a score is missing or occurs twice; the message names the run and the benchmark.
    """
    own = _of(scores, policy)
    for seed in policy.seeds or (None,):
        where = policy.folder if seed is None else f"{policy.folder}/seed{seed}"
        mine = own if seed is None else own[own["seed"] == seed]
        for name in benchmarks:
            rows = mine[mine["benchmark"] == name]
            if len(rows) == 0:
                raise ValueError(f"{where}: the score files have no score on benchmark {name!r}; evaluate this policy")
            if len(rows) > 1:
                sources = ", ".join(sorted(set(rows["source"])))
                raise ValueError(f"{where}: {len(rows)} scores on benchmark {name!r}, in {sources}; one is required")
    return own[own["benchmark"].isin(benchmarks)]


def check_comparable(frame: pd.DataFrame) -> None:
    """Refuses scores that were measured differently.

    The protocol holds the model's own template, so it must agree within a model; the samples must agree everywhere.

    Raises:
        ValueError: names two protocols, or two numbers of samples, with a file of each.
    """
    groups = [("protocol", f"model {model}", own) for model, own in frame.groupby("model", sort=False)]
    for column, whose, own in [*groups, ("samples", "the table", frame)]:
        first = own.drop_duplicates(column)
        if len(first) > 1:
            (a, b), (file_a, file_b) = first[column].iloc[:2], first["source"].iloc[:2]
            raise ValueError(
                f"{column} {a} ({file_a}) and {column} {b} ({file_b}) are mixed in the scores of {whose}; "
                "evaluate all policies in the same way"
            )


def _over_seeds(scores: Sequence[Score]) -> Score:
    """Mean over seeds. The seeds share the problems, so their problem errors are taken as fully dependent (an upper
    bound); the spread of the seeds is added: se^2 = mean(se_i^2) + var(seed means) / seeds."""
    means = pd.Series([s.mean for s in scores])
    variance = sum(s.se**2 for s in scores) / len(scores)
    if len(scores) > 1:
        variance += float(means.var(ddof=1)) / len(scores)
    return Score(float(means.mean()), math.sqrt(variance))


def average(scores: Sequence[Score]) -> Score:
    """Mean of benchmark means; benchmarks share no problem, so their errors are independent."""
    return Score(
        math.fsum(s.mean for s in scores) / len(scores), math.sqrt(math.fsum(s.se**2 for s in scores)) / len(scores)
    )


def summarise(scores: pd.DataFrame, policy: Policy, benchmarks: Sequence[str]) -> dict[str, Score]:
    """A policy's score on every benchmark, and `average`, over all its seeds.

    Raises:
        ValueError: like `policy_scores`.
    """
    own = policy_scores(scores, policy, benchmarks)
    per_seed: list[dict[str, Score]] = []
    for seed in policy.seeds or (None,):
        mine = (own if seed is None else own[own["seed"] == seed]).set_index("benchmark")
        means, errors = mine["pass_at_1"].astype("float64"), mine["se"].astype("float64")
        values = {b: Score(100 * float(means.loc[b]), 100 * float(errors.loc[b])) for b in benchmarks}
        per_seed.append({**values, AVERAGE: average([*values.values()])})
    return {name: _over_seeds([values[name] for values in per_seed]) for name in per_seed[0]}


def difference(
    scores: pd.DataFrame, rates: pd.DataFrame | None, a: Policy, b: Policy, benchmarks: Sequence[str]
) -> dict[str, Score]:
    """Score of `a` minus score of `b` on every benchmark, and on average.

    With `rates` the difference is paired: the standard error is that of the per-problem differences (mean over
    seeds), plus the spread of the seeds' differences. Without, the errors of the two are taken as independent.
    """
    if rates is None:
        of_a, of_b = summarise(scores, a, benchmarks), summarise(scores, b, benchmarks)
        return {n: Score(of_a[n].mean - of_b[n].mean, math.hypot(of_a[n].se, of_b[n].se)) for n in of_a}
    table = {}
    for name in benchmarks:
        wide_a, wide_b = (
            own[own["benchmark"] == name].pivot(index="problem_id", columns="seed", values="rate")
            for own in (_of(rates, a), _of(rates, b))
        )
        deltas = 100 * (wide_a - wide_b).dropna()
        if len(deltas) < 2:
            raise ValueError(f"{a.folder} and {b.folder}: fewer than 2 problems of {name!r} were scored in both")
        variance = float(deltas.mean(axis=1).var(ddof=1)) / len(deltas)
        if deltas.shape[1] > 1:
            variance += float(deltas.mean(axis=0).var(ddof=1)) / deltas.shape[1]
        table[name] = Score(float(deltas.to_numpy().mean()), math.sqrt(variance))
    return {**table, AVERAGE: average([*table.values()])}
