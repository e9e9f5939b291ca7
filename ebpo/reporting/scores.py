"""Scores of policies: which policies a comparison has, and reading and checking the files of their evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from ebpo.config import Comparison, comparison_runs
from ebpo.config.clustering import DIFFICULTY_ORDERS

COLUMNS = [
    "model", "method", "order", "group_size", "seed", "checkpoint", "benchmark", "problems", "samples", "pass_at_1",
    "protocol",
]  # fmt: skip
AVERAGE = "average"

Checkpoint = Literal["best", "final"]
CHECKPOINTS: tuple[Checkpoint, ...] = ("best", "final")


class Policy(NamedTuple):
    """A row of a table: a base policy (method "base", the rest empty), or a checkpoint of the runs over all seeds."""

    model: str
    method: str
    order: str = ""
    group_size: int | None = None
    seeds: tuple[int, ...] = ()
    checkpoint: Checkpoint = "final"

    @property
    def folder(self) -> str:
        """Path below the experiment's folder, seeds left out."""
        if self.group_size is None:
            return f"base/{self.model}"
        return f"runs/{self.model}/{self.method}-{self.order}/G{self.group_size}"


def paper_checkpoint(order: str) -> Checkpoint:
    """The checkpoint that the paper evaluates: the best by validation, but the final one of runs ordered by
    difficulty."""
    return "final" if order in DIFFICULTY_ORDERS else "best"


def comparison_policies(comparison: Comparison) -> list[Policy]:
    """The rows of a comparison: for each model its base policy, then the runs, all seeds in one row: first the
    checkpoint that the paper evaluates, then the other."""
    seeds = tuple(comparison.seeds)
    first = paper_checkpoint(comparison.orders[0])
    runs = [Policy(r.model, r.method, r.order, r.group_size, seeds) for r in comparison_runs(comparison)]
    policies: list[Policy] = []
    for model in comparison.models:
        own = list(dict.fromkeys(p for p in runs if p.model == model))
        policies.append(Policy(model, "base"))
        for checkpoint in sorted(CHECKPOINTS, key=lambda name: name != first):
            policies += [policy._replace(checkpoint=checkpoint) for policy in own]
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
    text = {name: "str" for name in ("model", "method", "order", "checkpoint", "benchmark", "protocol")}
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
        wrong = frame[~frame["pass_at_1"].between(0, 1)]
        if len(wrong):
            first = wrong.iloc[0]
            raise ValueError(
                f"score file {path}: {first['benchmark']} has pass_at_1 {first['pass_at_1']}; allowed: a number in "
                "[0, 1]"
            )
        frames.append(frame.assign(order=frame["order"].fillna(""), source=str(path)))
    if not frames:
        raise ValueError("no score file was given")
    return pd.concat(frames, ignore_index=True)


def read_rates(paths: Iterable[Path]) -> pd.DataFrame:
    """Pass rates per problem, from the per_problem.csv beside each score file.

    Returns:
        Columns model, method, order, group_size, seed, checkpoint, benchmark, problem_id, rate; a problem of which no
        completion could be graded is left out.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file lacks a column, or like `read_scores`.
    """
    frames = []
    for path in paths:
        beside = path.with_name("per_problem.csv")
        if not beside.is_file():
            raise FileNotFoundError(f"{beside} is missing")
        identity = read_scores([path]).iloc[0]
        frame = pd.read_csv(beside, dtype={"benchmark": "str", "problem_id": "str"})
        missing = {"benchmark", "problem_id", "samples", "correct", "unscorable"} - set(frame.columns)
        if missing:
            raise ValueError(f"{beside}: columns {sorted(missing)} are missing")
        scorable = frame["samples"] - frame["unscorable"]
        frame = frame.assign(rate=frame["correct"] / scorable)[scorable > 0]
        names = ["model", "method", "order", "group_size", "seed", "checkpoint"]
        frames.append(frame[["benchmark", "problem_id", "rate"]].assign(**{name: identity[name] for name in names}))
    if not frames:
        raise ValueError("no score file was given")
    # Categories: hundreds of runs make the comparisons of `rows_of` slow on text.
    text = dict.fromkeys(("model", "method", "order", "checkpoint", "benchmark"), "category")
    return pd.concat(frames, ignore_index=True).astype(text)


def rows_of(frame: pd.DataFrame, policy: Policy) -> pd.DataFrame:
    """The rows of a policy in a frame of `read_scores` or `read_rates`."""
    own = frame[(frame["model"] == policy.model) & (frame["method"] == policy.method)]
    if policy.group_size is None:
        return own
    coordinates = (own["order"] == policy.order) & (own["group_size"] == policy.group_size)
    mine = coordinates & (own["checkpoint"] == policy.checkpoint) & own["seed"].isin(policy.seeds)
    return own[mine.fillna(False).astype(bool)]


def policy_scores(scores: pd.DataFrame, policy: Policy, benchmarks: Sequence[str]) -> pd.DataFrame:
    """The rows of a policy, exactly one for every seed and benchmark.

    Raises:
        ValueError: a score is missing or occurs twice; the message names the run and the benchmark.
    """
    own = rows_of(scores, policy)
    for seed in policy.seeds or (None,):
        where = policy.folder if seed is None else f"{policy.folder}/seed{seed}, {policy.checkpoint} checkpoint"
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
