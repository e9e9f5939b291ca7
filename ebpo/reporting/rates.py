"""Pass rates per problem as arrays [seeds, problems], one per benchmark: what comparisons of policies are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ebpo.config import ExperimentConfig, comparison_runs
from ebpo.evaluation.intervals import Floats, Interval, Strata, bootstrap_interval, t_interval
from ebpo.reporting.scores import AVERAGE, Policy, comparison_policies, rows_of


def experiment_policies(config: ExperimentConfig) -> list[Policy]:
    """Every policy of the experiment once, in the order of its comparisons, with the seeds of all of them."""
    seeds: dict[Policy, dict[int, None]] = {}
    for comparison in config.comparisons.values():
        for policy in comparison_policies(comparison):
            seeds.setdefault(policy._replace(seeds=()), {}).update(dict.fromkeys(policy.seeds))
    return [policy._replace(seeds=tuple(sorted(own))) for policy, own in seeds.items()]


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
    all_rows = [rows_of(rates, policy) for policy in policies]
    for name in benchmarks:
        tables = []
        for policy, own in zip(policies, all_rows, strict=True):
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


def policy_intervals(rates: pd.DataFrame, policy: Policy, benchmarks: Sequence[str]) -> dict[str, Interval]:
    """pass@1 of a policy in [0, 1] with its 95 % interval, on every benchmark and on `average`, the macro-average.

    One seed: BCa bootstrap over problems. Several: Student's t over problems and seeds, cut to [0, 1].

    Raises:
        ValueError: like `paired_strata`.
    """
    (own,) = paired_strata(rates, [policy], benchmarks)
    return {name: _interval(strata) for name, strata in with_average(own).items()}


def _interval(strata: Strata) -> Interval:
    interval = t_interval(strata) if len(strata[0]) > 1 else bootstrap_interval(strata)
    return interval._replace(low=max(interval.low, 0.0), high=min(interval.high, 1.0))


def difference_intervals(rates: pd.DataFrame, a: Policy, b: Policy, benchmarks: Sequence[str]) -> dict[str, Interval]:
    """pass@1 of a minus that of b, paired by problem and seed, with `t_interval`; keys like `policy_intervals`.

    A base policy stands against every seed of the other.

    Raises:
        ValueError: two runs without a common seed, or like `paired_strata`.
    """
    if a.seeds and b.seeds:
        a, b = shared_seeds(a, b)
        if not a.seeds:
            raise ValueError(f"{a.folder} and {b.folder} have no seed in common")
    of_a, of_b = (with_average(own) for own in paired_strata(rates, [a, b], benchmarks))
    return {name: t_interval([x - y for x, y in zip(of_a[name], of_b[name], strict=True)]) for name in of_a}


def with_average(own: dict[str, tuple[pd.Index, Floats]]) -> dict[str, list[Floats]]:
    """Strata from `paired_strata` by what they give: each benchmark its own alone, `average` those of all."""
    strata = {name: [values] for name, (_, values) in own.items()}
    return {**strata, AVERAGE: [values for _, values in own.values()]}


def shared_seeds(a: Policy, b: Policy) -> tuple[Policy, Policy]:
    """Two runs with the seeds that both have."""
    seeds = tuple(sorted(set(a.seeds) & set(b.seeds)))
    return a._replace(seeds=seeds), b._replace(seeds=seeds)


def main_group_size(config: ExperimentConfig) -> int:
    """The group size of the main comparison (`main`, or the first one): the first it lists."""
    name = "main" if "main" in config.comparisons else next(iter(config.comparisons))
    return next(iter(comparison_runs(config.comparisons[name]))).group_size
