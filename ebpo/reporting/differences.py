"""Scores of policies over seeds with intervals, and paired differences between them, as data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ebpo.config import ExperimentConfig
from ebpo.evaluation.paired import holm, paired_difference
from ebpo.reporting.rates import experiment_policies, paired_strata, policy_intervals, shared_seeds
from ebpo.reporting.scores import AVERAGE, Policy, comparison_policies

# Problems by the base policy's pass rate: what it never, seldom and mostly solves.
STRATA = {"base_0": (-1.0, 0.0), "base_to_half": (0.0, 0.5), "base_over_half": (0.5, 1.0)}


def averages(config: ExperimentConfig, rates: pd.DataFrame) -> pd.DataFrame:
    """pass@1 of every policy on every benchmark and on average.

    Returns:
        Rows of model, method, order, group_size, checkpoint, benchmark (or `average`), problems, seeds, mean, se, low,
        high, in [0, 1]; the intervals are those of `ebpo.reporting.rates.policy_intervals`.
    """
    rows = []
    for policy in experiment_policies(config):
        (own,) = paired_strata(rates, [policy], config.evaluation.benchmarks)
        scored = {name: len(problems) for name, (problems, _) in own.items()}
        scored[AVERAGE] = sum(scored.values())
        for name, interval in policy_intervals(rates, policy, config.evaluation.benchmarks).items():
            identity = {**_identity(policy), "benchmark": name, "problems": scored[name], "seeds": len(policy.seeds)}
            rows.append({**identity, **{key: getattr(interval, key) for key in ("mean", "se", "low", "high")}})
    return pd.DataFrame(rows)


def differences(config: ExperimentConfig, rates: pd.DataFrame) -> pd.DataFrame:
    """Paired differences of pass@1 within every comparison: each run against its base policy, each method against GRPO
    in the same order and group size, each option of EBPO against plain `ebpo`, each order against the shuffled one;
    best checkpoints with best ones, final with final ones.

    Returns:
        Rows of comparison, model, a, b (folders), checkpoint, benchmark (or `average`, or a stratum of the base
        policy's pass rate, its problems of all benchmarks pooled), and the fields of `PairedDifference`; family and
        p_holm. A family is what Holm's correction is made over: the averages, the single benchmarks, or the strata of
        one comparison and checkpoint; differences from a base policy are families of their own.
    """
    rows: list[dict[str, Any]] = []
    for name, comparison in config.comparisons.items():
        for a, b in _pairs(config, comparison_policies(comparison)):
            rows += [{"comparison": name, **row} for row in _difference_rows(config, rates, a, b)]
    frame = pd.DataFrame(rows)
    adjusted: dict[Any, float] = {}
    for _, own in frame.groupby(["comparison", "checkpoint", "family"], sort=False):
        adjusted |= holm(dict(zip(own.index, own["p"], strict=True)))
    return frame.assign(p_holm=[adjusted[i] for i in frame.index])


def _pairs(config: ExperimentConfig, policies: list[Policy]) -> list[tuple[Policy, Policy]]:
    pairs = []
    for policy in policies:
        if policy.group_size is None:
            continue
        others = [Policy(policy.model, "base"), policy._replace(method="grpo"), policy._replace(order="shuffle")]
        if config.methods[policy.method].algorithm == "ebpo":
            others.append(policy._replace(method="ebpo"))
        pairs += [(policy, other) for other in dict.fromkeys(others) if other != policy and other in policies]
    return pairs


def _difference_rows(config: ExperimentConfig, rates: pd.DataFrame, a: Policy, b: Policy) -> list[dict[str, Any]]:
    benchmarks = config.evaluation.benchmarks
    base = Policy(a.model, "base")
    if b != base:
        a, b = shared_seeds(a, b)
    of_a, of_b, of_base = paired_strata(rates, [a, b, base], benchmarks)
    values = {name: ([of_a[name][1]], [of_b[name][1]]) for name in benchmarks}
    parts = {AVERAGE: ([x[1] for x in of_a.values()], [x[1] for x in of_b.values()]), **values}
    families = {AVERAGE: "averages", **dict.fromkeys(benchmarks, "benchmarks")}
    if b != base:
        pooled = [np.concatenate([x[1] for x in own.values()], axis=1) for own in (of_a, of_b, of_base)]
        for stratum, (low, high) in STRATA.items():
            chosen = (pooled[2][0] > low) & (pooled[2][0] <= high)
            if chosen.sum() >= 2:
                parts[stratum] = ([pooled[0][:, chosen]], [pooled[1][:, chosen]])
                families[stratum] = "strata"
    return [
        {
            "model": a.model,
            "a": a.folder,
            "b": b.folder,
            "checkpoint": a.checkpoint,
            "benchmark": name,
            **paired_difference(x, y)._asdict(),
            "family": f"{families[name]}, from base" if b == base else families[name],
        }
        for name, (x, y) in parts.items()
    ]


def _identity(policy: Policy) -> dict[str, Any]:
    return {
        "model": policy.model,
        "method": policy.method,
        "order": policy.order,
        "group_size": "" if policy.group_size is None else policy.group_size,
        "checkpoint": "" if policy.group_size is None else policy.checkpoint,
    }
