"""Figures of scores on the benchmarks: the main comparison, the curriculum, and group sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ebpo.config import ExperimentConfig
from ebpo.config.clustering import DIFFICULTY_ORDERS
from ebpo.evaluation.intervals import Floats, Interval, seed_means, t_interval
from ebpo.reporting.labels import method_label, order_label
from ebpo.reporting.panels import legend_above
from ebpo.reporting.paper import BENCHMARKS
from ebpo.reporting.rates import experiment_policies, paired_strata, policy_intervals
from ebpo.reporting.runs import Run
from ebpo.reporting.scores import AVERAGE, Policy, comparison_policies, paper_checkpoint
from ebpo.reporting.style import new_figure

_ERROR = {"ecolor": "#222222", "capsize": 3, "linewidth": 1.2}


def _by_seed(runs: Sequence[Run], key: str) -> pd.DataFrame:
    """A metric of several runs, [steps, runs], at the steps that all of them recorded."""
    return pd.concat([run.series(key) for run in runs], axis=1).dropna()


def seed_mean(runs: Sequence[Run], key: str) -> pd.Series[float]:
    """Mean of a metric over runs, at the steps that all of them recorded."""
    return _by_seed(runs, key).mean(axis=1)


def validation_curve(runs: Sequence[Run], key: str) -> pd.Series[float]:
    """Mean over seeds of a metric of the validation problems.

    Raises:
        ValueError: the runs recorded none.
    """
    values = seed_mean(runs, f"validation/{key}")
    if values.empty:
        raise ValueError(f"{runs[0].id.folder}: metrics.jsonl has no validation/{key}")
    return values


def validation_errors(runs: Sequence[Run], key: str) -> Floats:
    """Half the 95 % interval at each step of `validation_curve`, by Student's t over training runs on these problems.

    Raises:
        ValueError: fewer than two runs were given.
    """
    values = _by_seed(runs, f"validation/{key}").to_numpy()
    return np.array([interval.high - interval.mean for interval in map(t_interval, values)])


def step_axis(axes: Axes) -> None:
    """Labels the horizontal axis with training steps."""
    axes.set_xlabel("training step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def _errors(results: Sequence[Interval]) -> Floats:
    """Lengths of the error bars below and above, in percent, [2, N]."""
    return 100 * np.array([[r.mean - r.low for r in results], [r.high - r.mean for r in results]])


def main_figure(
    config: ExperimentConfig, runs: Sequence[Run], rates: pd.DataFrame, colours: Mapping[str, str]
) -> Figure:
    """Validation pass@1 over the steps beside the average of the benchmarks, for the main comparison.

    The comparison is `main`, or the first one; of several models, orders or group sizes its first is shown, at the
    checkpoint that the paper evaluates.

    Raises:
        ValueError: a run or a score of the comparison is missing.
    """
    name = "main" if "main" in config.comparisons else next(iter(config.comparisons))
    policies, benchmarks = comparison_policies(config.comparisons[name]), config.evaluation.benchmarks
    base, first = policies[0], policies[1]
    shown = [p for p in policies[1:] if p._replace(method=first.method) == first]
    figure = new_figure(10.4, 4.1)
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    for i, policy in enumerate(shown):
        coordinates = (policy.model, policy.method, policy.order, policy.group_size)
        own = [r for r in runs if (r.id.model, r.id.method, r.id.order, r.id.group_size) == coordinates]
        if len(own) < len(policy.seeds):
            raise ValueError(f"{policy.folder}: {len(own)} of {len(policy.seeds)} seeds were given; train the others")
        curve, several = 100 * validation_curve(own, "pass@1"), len(own) > 1
        errors = 100 * validation_errors(own, "pass@1") if several else None
        # Side by side, so that the bars of a step do not cover one another.
        shift = 0.008 * own[0].steps * (i - (len(shown) - 1) / 2) if several else 0.0
        look = {"color": colours[policy.method], "marker": "o", "markersize": 4, "capsize": 2, "elinewidth": 1}
        left.errorbar(curve.index + shift, curve, yerr=errors, label=method_label(policy.method), **look)
    left.set_title("During training: validation pass@1")
    step_axis(left)
    left.set_ylabel("pass@1, %")
    left.legend(loc="best", fontsize=9)
    _bars(right, [base, *shown], rates, benchmarks, colours)
    right.set_title(f"After training: average of {len(benchmarks)} benchmarks")
    right.set_xlabel(f"pass@1, %, {first.checkpoint} checkpoint, with 95 % interval")
    figure.suptitle(f"{first.model}, order: {order_label(first.order)}, G = {first.group_size}", fontsize=11)
    return figure


def _bars(
    axes: Axes, shown: Sequence[Policy], rates: pd.DataFrame, benchmarks: Sequence[str], colours: Mapping[str, str]
) -> None:
    """A horizontal bar for each policy, the base policy first, and a circle for each of several runs."""
    results = [policy_intervals(rates, policy, benchmarks)[AVERAGE] for policy in shown]
    heights = [100 * r.mean for r in results]
    bars = [colours[p.method] for p in shown]
    axes.barh(range(len(results)), heights, xerr=_errors(results), color=bars, error_kw=_ERROR, height=0.68)
    end = max(100 * r.high for r in results) or 1.0
    for place, (policy, result) in enumerate(zip(shown, results, strict=True)):
        if len(policy.seeds) > 1:
            (own,) = paired_strata(rates, [policy], benchmarks)
            means = 100 * seed_means([values for _, values in own.values()])
            axes.plot(means, np.full(len(means), place), "o", mfc="none", mec="#222222", mew=0.8, markersize=3.5)
        text = f"{100 * result.mean:.1f} [{100 * result.low:.1f}, {100 * result.high:.1f}]"
        axes.text(100 * result.high + 0.02 * end, place, text, va="center", fontsize=9)
    axes.axvline(heights[0], color=colours["base"], linestyle="--", linewidth=1.2, zorder=0)
    axes.set_yticks(range(len(shown)), [method_label(p.method) for p in shown])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, 1.42 * end)


def curriculum(config: ExperimentConfig, rates: pd.DataFrame, colours: Mapping[str, str]) -> Figure:
    """pass@1 of the runs ordered from easy to hard, a group of bars per benchmark; a panel per model, order and G."""
    grouped: dict[tuple[str, str, int | None], list[Policy]] = {}
    for policy in experiment_policies(config):
        if policy.order in DIFFICULTY_ORDERS and policy.checkpoint == paper_checkpoint(policy.order):
            grouped.setdefault((policy.model, policy.order, policy.group_size), []).append(policy)
    benchmarks = config.evaluation.benchmarks
    figure = new_figure(10.4, 3.2 * len(grouped) + 0.4)
    grid = figure.subplots(len(grouped), 1, squeeze=False)[:, 0]
    handles = {}
    for axes, ((model, order, size), policies) in zip(grid, grouped.items(), strict=True):
        shown = [Policy(model, "base"), *policies]
        width = 0.8 / len(shown)
        for i, policy in enumerate(shown):
            results = list(policy_intervals(rates, policy, benchmarks).values())
            places = np.arange(len(results)) + (i - (len(shown) - 1) / 2) * width
            heights = [100 * r.mean for r in results]
            bars = axes.bar(
                places, heights, width, yerr=_errors(results), error_kw=_ERROR, color=colours[policy.method]
            )
            handles[method_label(policy.method)] = bars
        names = [BENCHMARKS.get(name, name) for name in (*benchmarks, AVERAGE)]
        axes.set_xticks(range(len(names)), names)
        axes.grid(axis="x", visible=False)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("pass@1, %")
        axes.set_title(f"{model}, order: {order_label(order)}, G = {size}")
    legend_above(figure, list(handles.values()), list(handles))
    return figure


def group_sizes(config: ExperimentConfig, rates: pd.DataFrame, colours: Mapping[str, str]) -> Figure:
    """Average pass@1 against the group size, a line per method; a panel per model and order of several group sizes."""
    grouped: dict[tuple[str, str], dict[str, list[Policy]]] = {}
    for policy in experiment_policies(config):
        if policy.group_size is not None and policy.checkpoint == paper_checkpoint(policy.order):
            methods = grouped.setdefault((policy.model, policy.order), {})
            methods.setdefault(policy.method, []).append(policy)
    several = {
        panel: {method: own for method, own in methods.items() if len(own) > 1} for panel, methods in grouped.items()
    }
    several = {panel: methods for panel, methods in several.items() if methods}
    benchmarks = config.evaluation.benchmarks
    figure = new_figure(max(5.2, 3.9 * len(several)), 3.9)
    grid = figure.subplots(1, len(several), squeeze=False, sharey=True)[0]
    handles = {}
    for axes, ((model, order), methods) in zip(grid, several.items(), strict=True):
        for i, (method, policies) in enumerate(methods.items()):
            policies = sorted(policies, key=lambda p: p.group_size or 0)
            results = [policy_intervals(rates, policy, benchmarks)[AVERAGE] for policy in policies]
            # Side by side, so that the bars of a group size do not cover one another.
            places = np.array([p.group_size for p in policies]) * 1.03 ** (i - (len(methods) - 1) / 2)
            look = {"color": colours[method], "marker": "o", "markersize": 4, "capsize": 2, "elinewidth": 1}
            handles[method_label(method)] = axes.errorbar(
                places, [100 * r.mean for r in results], yerr=_errors(results), **look
            )
        base = policy_intervals(rates, Policy(model, "base"), benchmarks)[AVERAGE]
        axes.axhline(100 * base.mean, color=colours["base"], linestyle="--", linewidth=1.2)
        sizes = sorted({p.group_size for policies in methods.values() for p in policies if p.group_size})
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("group size G")
        axes.set_title(f"{model}, order: {order_label(order)}")
    grid[0].set_ylabel("average pass@1, %")
    legend_above(figure, list(handles.values()), list(handles))
    return figure
