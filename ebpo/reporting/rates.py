"""Pass rates per problem as arrays [seeds, problems], one per benchmark: what comparisons of policies are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ebpo.config import ExperimentConfig, comparison_runs
from ebpo.evaluation.intervals import Floats
from ebpo.reporting.scores import Policy, comparison_policies


def experiment_policies(config: ExperimentConfig) -> list[Policy]:
    """Every policy of the experiment once, in the order of its comparisons, with the seeds of all of them."""
    seeds: dict[Policy, dict[int, None]] = {}
    for comparison in config.comparisons.values():
        for policy in comparison_policies(comparison):
            seeds.setdefault(policy._replace(seeds=()), {}).update(dict.fromkeys(policy.seeds))
    return [policy._replace(seeds=tuple(sorted(own))) for policy, own in seeds.items()]


def rows_of(rates: pd.DataFrame, policy: Policy) -> pd.DataFrame:
    """The rows of a policy in a frame of `ebpo.reporting.scores.read_rates`; the base policy's if it has no seeds."""
    own = rates[(rates["model"] == policy.model) & (rates["method"] == policy.method)]
    if policy.group_size is None:
        return own
    mine = (own["order"] == policy.order) & (own["group_size"] == policy.group_size)
    return own[mine.fillna(False).astype(bool) & own["seed"].isin(policy.seeds).fillna(False).astype(bool)]


def paired_strata(
    rates: pd.DataFrame, policies: Sequence[Policy], benchmarks: Sequence[str]
) -> list[dict[str, tuple[pd.Index, Floats]]]:
    """The rates of several policies on the problems that all of them have, in one order.

    Args:
        rates: from `ebpo.reporting.scores.read_rates`.
        policies: with the same seeds; a base policy, which has none, is repeated for each.
        benchmarks: which ones.

    Returns:
        For each policy: benchmark -> (problem ids [P], rates [S, P]).

    Raises:
        ValueError: a policy has no rates of a seed on a benchmark, or fewer than 2 problems are common to all.
    """
    found: list[dict[str, tuple[pd.Index, Floats]]] = [{} for _ in policies]
    count = max(len(policy.seeds) for policy in policies) or 1
    for name in benchmarks:
        tables = []
        for policy in policies:
            own = rows_of(rates, policy)
            table = own[own["benchmark"] == name].assign(seed=own["seed"].fillna(-1))
            wide = table.pivot(index="problem_id", columns="seed", values="rate")
            if wide.shape[1] != (len(policy.seeds) or 1):
                raise ValueError(
                    f"{policy.folder}: {wide.shape[1]} of {len(policy.seeds) or 1} evaluations on benchmark {name!r} "
                    "were given"
                )
            tables.append(wide.dropna())
        common = tables[0].index
        for wide in tables[1:]:
            common = common.intersection(wide.index)
        common = common.sort_values()
        if len(common) < 2:
            folders = ", ".join(policy.folder for policy in policies)
            raise ValueError(f"{folders}: {len(common)} problems of {name!r} were scored in all; at least 2 are needed")
        for place, wide in enumerate(tables):
            values = wide.loc[common].to_numpy(dtype=np.float64).T
            found[place][name] = common, np.repeat(values, count // len(values), axis=0)
    return found


def shared_seeds(a: Policy, b: Policy) -> tuple[Policy, Policy]:
    """Two runs with the seeds that both have."""
    seeds = tuple(sorted(set(a.seeds) & set(b.seeds)))
    return a._replace(seeds=seeds), b._replace(seeds=seeds)


def main_group_size(config: ExperimentConfig) -> int:
    """The group size of the main comparison (`main`, or the first one): the first it lists."""
    name = "main" if "main" in config.comparisons else next(iter(config.comparisons))
    return next(iter(comparison_runs(config.comparisons[name]))).group_size
