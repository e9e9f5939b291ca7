"""The figures of an experiment; those of training are here, each a function of runs that returns a matplotlib figure.

Over several seeds a line is their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ebpo.config import ExperimentConfig
from ebpo.reporting.captions import figure_names
from ebpo.reporting.efficiency_figure import efficiency
from ebpo.reporting.labels import method_label, order_label
from ebpo.reporting.panels import RUN_INCHES, by_group_size, legend_above, panel_grid, panel_title, panels
from ebpo.reporting.rates import main_group_size
from ebpo.reporting.runs import Run, reading_order
from ebpo.reporting.score_figures import curriculum, group_sizes, main_figure, seed_mean, step_axis, validation_curve
from ebpo.reporting.scores import check_comparable
from ebpo.reporting.style import LINES, MARKERS, method_colours, new_figure, nothing, save, style


def smoothing_window(steps: int) -> int:
    """Width of the centred moving average: a tenth of the run, odd; 1 is no smoothing."""
    return max(1, steps // 10) | 1


def _methods(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.id.method for run in runs))


def _legend(figure: Figure, methods: Sequence[str], colours: Mapping[str, str], note: str = "") -> None:
    """The legend, and a line of small print below the panels."""
    handles = [Axes.plot(figure.axes[0], [], [], color=colours[m], label=method_label(m))[0] for m in methods]
    legend_above(figure, handles, [method_label(m) for m in methods])
    if note:
        figure.supxlabel(note, fontsize=8.5, color="#555555")


def _absent(missing: Sequence[str]) -> str:
    return f"Not recorded: {', '.join(missing)}." if missing else ""


def curves(runs: Sequence[Run], colours: Mapping[str, str], key: str, label: str, log: bool = False) -> Figure:
    """A metric over the steps: raw values faint, their moving average strong; its width is said below the panels.

    Args:
        runs: at least one.
        colours: method -> colour.
        key: metric of metrics.jsonl.
        label: of the vertical axis.
        log: logarithmic vertical axis; values of 0 leave a gap.
    """
    grouped = panels(runs)
    figure, placed = panel_grid(grouped, label)
    window = smoothing_window(max(run.steps for run in runs))
    missing = []
    for panel, axes in placed.items():
        for method, own in grouped[panel].items():
            values = seed_mean(own, key)
            if values.empty:
                missing.append(f"{method_label(method)} ({order_label(panel[1])})")
                continue
            smooth = values.rolling(window, center=True, min_periods=1).mean()
            if log:
                values, smooth = values.where(values > 0), smooth.where(smooth > 0)
            if window > 1:
                axes.plot(values.index, values, color=colours[method], alpha=0.25, linewidth=0.9)
            axes.plot(smooth.index, smooth, color=colours[method])
        if log:
            axes.set_yscale("log")
        step_axis(axes)
    said = f"Lines: moving average over {window} steps; faint: single steps." if window > 1 else ""
    _legend(figure, _methods(runs), colours, f"{said} {_absent(missing)}".strip())
    return figure


def validation(runs: Sequence[Run], colours: Mapping[str, str], samples: int) -> Figure:
    """pass@1, pass@n and maj@n of the validation problems over the steps; a row of panels per group of runs.

    Raises:
        ValueError: a run recorded none of them.
    """
    grouped = panels(runs)
    keys = list(dict.fromkeys(["pass@1", f"pass@{samples}", f"maj@{samples}"]))
    figure = new_figure(3.7 * len(keys), 2.9 * len(grouped) + 0.7)
    grid = figure.subplots(len(grouped), len(keys), squeeze=False, sharex="row")
    for row, (panel, methods) in zip(grid, grouped.items(), strict=True):
        for axes, key in zip(row, keys, strict=True):
            for method, own in methods.items():
                values = validation_curve(own, key)
                axes.plot(values.index, 100 * values, color=colours[method], marker="o", markersize=3.5)
            axes.set_title(f"{key} — {panel_title(panel)}", fontsize=9.5)
            step_axis(axes)
        row[0].set_ylabel("validation problems, %")
    _legend(figure, _methods(runs), colours)
    return figure


def _ebpo(runs: Sequence[Run]) -> dict[tuple[str, int], list[Run]]:
    """Runs that recorded a prior, by model, as they appear, and group size."""
    grouped: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        if not run.series("ebpo/mu_glob").empty:
            grouped.setdefault((run.id.model, run.id.group_size), []).append(run)
    return by_group_size(grouped)


NO_EBPO = "No run of this experiment recorded a prior: EBPO was not trained."


def _by_method(runs: Sequence[Run]) -> dict[tuple[str, str], list[Run]]:
    """The seeds of each method and order."""
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        grouped.setdefault((run.id.method, run.id.order), []).append(run)
    return grouped


def _run_label(method: str, order: str) -> str:
    return f"{method_label(method)}, {order_label(order)}"


def prior(runs: Sequence[Run], colours: Mapping[str, str]) -> Figure:
    """EBPO's mu_glob, sigma2, tau2 and S over the steps; a row per model and group size, a line style per order."""
    grouped = _ebpo(runs)
    if not grouped:
        return nothing(NO_EBPO)
    quantities = {
        "ebpo/mu_glob": "global mean μ_glob",
        "ebpo/sigma2": "reward variance σ²",
        "ebpo/tau2": "variance of group means τ²",
        "ebpo/shrinkage": "shrinkage S",
    }
    figure = new_figure(3.1 * len(quantities), 2.8 * len(grouped) + 0.7)
    grid = figure.subplots(len(grouped), len(quantities), squeeze=False)
    handles = {}
    for row, ((model, group_size), own) in zip(grid, grouped.items(), strict=True):
        for axes, (key, label) in zip(row, quantities.items(), strict=True):
            for (method, order), seeds in _by_method(own).items():
                values = seed_mean(seeds, key)
                look = {"color": colours[method], "linestyle": LINES[order]}
                (line,) = axes.plot(values.index, values, **look)
                handles[_run_label(method, order)] = line
            axes.set_title(f"{label}\n{model}, G = {group_size}")
            step_axis(axes)
            axes.set_ylim(0, 1.08 * max(float(run.series(key).max()) for run in own) or 1.0)
    legend_above(figure, list(handles.values()), list(handles), RUN_INCHES)
    return figure


def penalty(runs: Sequence[Run], colours: Mapping[str, str]) -> Figure:
    """Raw advantage of all-0 groups against mu_glob: GRPO's 0, EBPO's -S mu_glob, and EBPO's measured points.

    The line is at the median shrinkage of the measured steps; the band spans their smallest to largest.
    """
    key = "ebpo/raw_advantage_all_0_groups"
    grouped = {k: found for k, own in _ebpo(runs).items() if (found := [r for r in own if not r.series(key).empty])}
    if not grouped:
        return nothing(NO_EBPO if not _ebpo(runs) else "No step of an EBPO run had a group without success.")
    figure = new_figure(max(6.4, 4.6 * len(grouped)), 4.6)
    grid = figure.subplots(1, len(grouped), squeeze=False)[0]
    handles = {}
    for axes, ((model, group_size), own) in zip(grid, grouped.items(), strict=True):
        measured = {
            of: pd.concat([r.metrics[["ebpo/mu_glob", "ebpo/shrinkage", key]] for r in seeds])
            .dropna()
            .astype("float64")
            for of, seeds in _by_method(own).items()
        }
        points = pd.concat(measured.values())
        # Until something succeeds there is no penalty at any S, so those steps say nothing about the slope.
        seen = points.loc[points["ebpo/mu_glob"] > 0, "ebpo/shrinkage"]
        shrinkage = points["ebpo/shrinkage"] if seen.empty else seen
        right = max(float(points["ebpo/mu_glob"].max()) * 1.08, 0.01)
        axes.plot([0, right], [0, 0], color=colours["grpo"], label="GRPO: always 0")
        low, middle, high = (float(shrinkage.quantile(q)) for q in (0, 0.5, 1))
        colour = colours[own[0].id.method]
        axes.fill_between([0, right], [0, -low * right], [0, -high * right], color=colour, alpha=0.13, linewidth=0)
        label = f"−S·μ_glob, S = {middle:.2f} ({low:.2f} to {high:.2f})"
        axes.plot([0, right], [0, -middle * right], color=colour, label=label)
        for (method, order), table in measured.items():
            look = {"color": colours[method], "marker": MARKERS[order], "linestyle": "none"}
            # As pixels: one point a step of every run makes the vector file megabytes.
            (dots,) = axes.plot(table["ebpo/mu_glob"], table[key], markersize=4, alpha=0.55, rasterized=True, **look)
            handles[_run_label(method, order)] = dots
        axes.set_title(f"{model}, G = {group_size}")
        axes.set_xlabel("global mean reward μ_glob")
        axes.set_xlim(0, right)
        axes.legend(loc="lower left", fontsize=8.5)
    grid[0].set_ylabel("raw advantage of an all-0 group\n(points: measured)")
    legend_above(figure, list(handles.values()), list(handles), RUN_INCHES)
    return figure


def write_figures(
    config: ExperimentConfig, runs: Sequence[Run], scores: pd.DataFrame, rates: pd.DataFrame, out: Path
) -> list[str]:
    """Draws the figures that `figure_names` names, as OUT/NAME.svg and OUT/NAME.png.

    Args:
        config: the experiment.
        runs: all of its runs.
        scores: from `read_scores`.
        rates: from `read_rates`.
        out: folder to write to.

    Returns:
        The names.

    Raises:
        ValueError: no run was given, or a figure lacks what it shows.
    """
    if not runs:
        raise ValueError("no run was given")
    check_comparable(scores)
    runs = reading_order(config, runs)
    # Three columns of panels for each group size would make a figure of many pages.
    main_size = [run for run in runs if run.id.group_size == main_group_size(config)]
    colours = method_colours(list(config.methods))
    figures: dict[str, Callable[[], Figure]] = {
        "main": lambda: main_figure(config, runs, rates, colours),
        "curriculum": lambda: curriculum(config, rates, colours),
        "group_size": lambda: group_sizes(config, rates, colours),
        "reward": lambda: curves(runs, colours, "reward", "mean reward"),
        "grad_norm": lambda: curves(runs, colours, "grad_norm", "gradient norm"),
        "entropy": lambda: curves(runs, colours, "entropy", "entropy, nats per token"),
        "kl_step": lambda: curves(runs, colours, "kl_step", "KL(π_t ‖ π_t+1)", log=True),
        "validation": lambda: validation(main_size, colours, config.training.validation_samples),
        "efficiency": lambda: efficiency(runs, colours),
        "prior": lambda: prior(runs, colours),
        "penalty": lambda: penalty(runs, colours),
    }
    names = figure_names(config)
    for name in names:
        with style():
            figure = figures[name]()
        save(figure, out / name)
    return names
