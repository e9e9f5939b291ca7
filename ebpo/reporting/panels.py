"""Panels of the figures of training: one shows the runs of one model, order and group size."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ebpo.reporting.labels import order_label
from ebpo.reporting.runs import Run
from ebpo.reporting.style import new_figure

Panel = tuple[str, str, int]  # model, order, group size
Key = TypeVar("Key", bound=tuple[Any, ...])
Value = TypeVar("Value")

# Widths of an entry of a legend: a method's name with its line, and a method's name with an order.
METHOD_INCHES, RUN_INCHES = 1.7, 3.0


def panels(runs: Sequence[Run]) -> dict[Panel, dict[str, list[Run]]]:
    """Runs by panel and method: panels by model and order as they appear, and group size; methods as they appear."""
    grouped: dict[Panel, dict[str, list[Run]]] = {}
    for run in runs:
        panel = grouped.setdefault((run.id.model, run.id.order, run.id.group_size), {})
        panel.setdefault(run.id.method, []).append(run)
    return by_group_size(grouped)


def by_group_size(grouped: Mapping[Key, Value]) -> dict[Key, Value]:
    """What is grouped by keys that end with a group size: the rest of the key as it appears, and rising group sizes."""
    rows = list(dict.fromkeys(key[:-1] for key in grouped))
    return {key: grouped[key] for key in sorted(grouped, key=lambda key: (rows.index(key[:-1]), key[-1]))}


def panel_title(panel: Panel) -> str:
    """What a panel shows."""
    model, order, group_size = panel
    return f"{model}, order: {order_label(order)}, G = {group_size}"


def panel_grid(shown: Collection[Panel], label: str) -> tuple[Figure, dict[Panel, Axes]]:
    """A figure with titled axes for each panel, which share the vertical axis that is labelled.

    Where every model and order has the same two to four group sizes, these are the columns; else there are up to three.
    """
    rows, sizes = {panel[:2] for panel in shown}, {panel[2] for panel in shown}
    is_table = 1 < len(sizes) <= 4 and len(shown) == len(rows) * len(sizes)
    columns = len(sizes) if is_table else min(3, len(shown))
    height = math.ceil(len(shown) / columns)
    figure = new_figure(max(5.2, 3.7 * columns), 3.1 * height + 0.9)
    grid = figure.subplots(height, columns, squeeze=False, sharey=True)
    for axes in grid[:, 0]:
        axes.set_ylabel(label)
    for axes in list(grid.flat)[len(shown) :]:
        axes.set_visible(False)
    placed = dict(zip(shown, grid.flat, strict=False))
    for panel, axes in placed.items():
        axes.set_title(panel_title(panel))
    return figure, placed


def legend_above(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], inches: float = METHOD_INCHES
) -> None:
    """One legend above all panels, in as many rows as the figure's width asks for with entries of so many inches."""
    columns = max(2, int(figure.get_figwidth() / inches))
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), columns))
