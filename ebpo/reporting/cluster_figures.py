"""Figures of the clusters: topics against what was known of them, and the base policies' pass rates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ebpo.reporting.style import new_figure, save, style

_METHODS = {
    "zero_shot": "Nearest description",
    "kmeans": "k-means",
    "llm": "Instruct model",
    "given": "As the source gives them",
}
_COUNT, _RAW, _SMOOTHED, _CHOSEN = "#0072B2", "#999999", "#D55E00", "#D55E00"


def draw_topics(confusion: pd.DataFrame, quality: Mapping[str, Any], prefix: Path) -> None:
    """How many problems of each known topic and source (rows) each found topic holds; beside it, the choice of k.

    Args:
        confusion: columns topic, source, and one of counts for each found topic; as topics_confusion.csv.
        quality: as topics.json.
        prefix: PREFIX.svg and PREFIX.png are written.
    """
    rows = [_row_label(topic, source) for topic, source in zip(confusion["topic"], confusion["source"], strict=True)]
    counts = confusion.drop(columns=["topic", "source"])
    silhouettes = {int(k): float(value) for k, value in quality["silhouettes"].items()}
    with style():
        width = 3.2 + 0.62 * counts.shape[1]
        figure = new_figure(width + (3.2 if silhouettes else 0), 2.1 + 0.34 * len(rows))
        if silhouettes:
            left, right = figure.subplots(1, 2, width_ratios=[width, 3.2])
            _draw_silhouettes(right, silhouettes, int(quality["clusters"]))
        else:
            left = figure.subplots()
        _draw_counts(left, counts, rows)
        left.set_title(_agreement(quality))
    save(figure, prefix)


def _row_label(topic: str, source: str) -> str:
    name = source.rsplit("/", 1)[-1].replace("_", " ")
    return name if topic.startswith("(") else f"{topic.replace('_', ' ')}: {name}"


def _agreement(quality: Mapping[str, Any]) -> str:
    agreement = [
        f"{label} {quality[key]:.2f}"
        for key, label in (("adjusted_rand", "with topics"), ("adjusted_rand_of_sources", "with sources"))
        if quality[key] is not None
    ]
    title = f"{_METHODS[quality['method']]}: {quality['clusters']} topics"
    # The figure may be as narrow as two topics, so the agreement has a line for each comparison.
    return "\n".join([title, *(f"adjusted Rand index {text}" for text in agreement)])


def _draw_counts(axes: Axes, counts: pd.DataFrame, rows: list[str]) -> None:
    values = counts.to_numpy(dtype=float)
    shares = values / values.sum(axis=1, keepdims=True)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(counts.shape[1]), [str(c).replace("_", " ") for c in counts.columns], rotation=40, ha="right")
    axes.set_yticks(range(len(rows)), rows)
    axes.grid(visible=False)
    for (i, j), value in np.ndenumerate(values):
        if value:
            colour = "white" if shares[i, j] > 0.5 else "black"
            axes.text(j, i, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xlabel("topic found")
    axes.set_ylabel("known: topic and source")


def _draw_silhouettes(axes: Axes, silhouettes: Mapping[int, float], chosen: int) -> None:
    axes.plot(list(silhouettes), list(silhouettes.values()), color=_COUNT, marker="o", markersize=4)
    axes.plot([chosen], [silhouettes[chosen]], color=_CHOSEN, marker="o", markersize=8, linestyle="none")
    axes.set_title(f"k = {chosen}: the smallest within 2.5 %\nof the largest silhouette")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("number of clusters k")
    axes.set_ylabel("mean silhouette")


def draw_difficulty(
    tables: Mapping[str, pd.DataFrame], summaries: Mapping[str, Mapping[str, Any]], prefix: Path
) -> None:
    """Histograms of each model's pass rates, raw and smoothed, with the limits of its difficulty buckets.

    Args:
        tables: model -> its difficulty.parquet.
        summaries: model -> its difficulty.json.
        prefix: PREFIX.svg and PREFIX.png are written.
    """
    with style():
        figure = new_figure(6.4, 0.4 + 3.0 * len(tables))
        panels = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
        for axes, (model, table) in zip(panels, tables.items(), strict=True):
            _draw_rates(axes, table, summaries[model])
            axes.set_title(_rates_title(model, summaries[model]))
        panels[-1].set_xlabel("pass rate of the base policy")
    save(figure, prefix)


def _rates_title(model: str, summary: Mapping[str, Any]) -> str:
    prior = summary["prior"]
    return (
        f"{model}: {summary['rollouts']} rollouts, {summary['all_fail']} never solved, "
        f"{summary['all_pass']} always;\nprior Beta({prior['a']:.2f}, {prior['b']:.2f})"
    )


def _draw_rates(axes: Axes, table: pd.DataFrame, summary: Mapping[str, Any]) -> None:
    # One bin for every possible raw rate, centred on it.
    rollouts = int(summary["rollouts"])
    edges = [(k - 0.5) / rollouts for k in range(rollouts + 2)]
    axes.hist(table["pass_rate"], bins=edges, color=_RAW, label="raw", alpha=0.7)
    # A point for every smoothed rate that occurs: bins would hold now one of them, now two.
    rates, problems = np.unique(table["smoothed"].round(6), return_counts=True)
    axes.vlines(rates, 0, problems, color=_SMOOTHED, linewidth=1)
    axes.plot(rates, problems, color=_SMOOTHED, marker="o", markersize=4, linestyle="none", label="smoothed")
    limits = sorted(bucket["smoothed"] for bucket in summary["buckets"])
    for number, (lower, upper) in enumerate(itertools.pairwise(limits)):
        # Between the hardest of one bucket and the easiest of the next.
        axes.axvline(
            (lower[1] + upper[0]) / 2, color="black", linestyle=":", linewidth=1, label=None if number else "buckets"
        )
    axes.set_ylabel("problems")
    axes.legend()
