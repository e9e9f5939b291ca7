"""The figure of sample efficiency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ebpo.reporting.efficiency import PANEL, efficiency_curves, efficiency_targets
from ebpo.reporting.labels import method_label
from ebpo.reporting.panels import legend_above, panel_grid, panels
from ebpo.reporting.runs import Run


def efficiency(runs: Sequence[Run], colours: Mapping[str, str]) -> Figure:
    """Validation pass@1 against the completions sampled; a panel per model, order and group size.

    The dashed line is the target of `efficiency_targets`; a mark on it shows where a method reaches it in all seeds.
    Over several seeds both coordinates are means.

    Raises:
        ValueError: like `efficiency_curves`.
    """
    curves = efficiency_curves(runs)
    targets = efficiency_targets(curves)
    figure, placed = panel_grid(panels(runs), "validation pass@1, %")
    handles = {}
    for panel, axes in placed.items():
        own = curves[(curves[PANEL] == list(panel)).all(axis=1)]
        goal = targets[(targets[PANEL] == list(panel)).all(axis=1)].set_index("method")
        level = 100 * float(goal["target"].iloc[0])
        axes.axhline(level, color="#555555", linestyle="--", linewidth=1)
        for method, runs_of_method in own.groupby("method", sort=False):
            name = str(method)
            means = runs_of_method.groupby("step")[["completions", "pass_at_1"]].mean()
            (line,) = axes.plot(
                means["completions"], 100 * means["pass_at_1"], color=colours[name], marker="o", markersize=3.5
            )
            handles[method_label(name)] = line
            axes.plot(float(goal["completions"][name]), level, color=colours[name], marker="|", markersize=14)
        axes.set_xlabel("completions sampled, thousands")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}"))
    legend_above(figure, list(handles.values()), list(handles))
    return figure
