"""One look for all figures: a colour per method, a line style per order, settings that make the bytes reproducible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ebpo.files import atomic_path

# Okabe and Ito's palette, which stays apart with any colour vision; grey for what is no method of the comparison.
_COLOURS = {
    "base": "#777777",
    "grpo": "#0072B2",
    "dr_grpo": "#56B4E9",
    "dapo": "#E69F00",
    "entropy_mech": "#009E73",
    "ebpo": "#D55E00",
}
_SPARE = ("#CC79A7", "#000000", "#8C6D31", "#7B4FB5", "#B8B000")
LINES = {"topic": "-", "shuffle": "--", "difficulty": ":", "topic_difficulty": "-.", "interleaved": (0, (5, 1))}
MARKERS = {"topic": "o", "shuffle": "s", "difficulty": "^", "topic_difficulty": "D", "interleaved": "v"}

_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "ebpo",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "savefig.facecolor": "white",
    "figure.constrained_layout.use": True,
}


def method_colours(methods: Sequence[str]) -> dict[str, str]:
    """A colour for each method: fixed for the published ones, in order of appearance for others."""
    spare = [m for m in dict.fromkeys(methods) if m not in _COLOURS]
    return {**_COLOURS, **{m: _SPARE[i % len(_SPARE)] for i, m in enumerate(spare)}}


@contextmanager
def style() -> Iterator[None]:
    """Inside, figures are drawn with the settings above, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        # The backend is no matter of looks, and resetting it would touch pyplot.
        matplotlib.rcParams.update(
            {k: v for k, v in matplotlib.rcParamsDefault.items() if k not in ("backend", "backend_fallback")}
        )
        matplotlib.rcParams.update(_SETTINGS)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure on the Agg canvas, which needs no display; sizes in inches."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def nothing(text: str) -> Figure:
    """A figure that says why there is nothing to draw."""
    figure = new_figure(6, 1.5)
    figure.text(0.5, 0.5, text, ha="center", va="center")
    return figure


def save(figure: Figure, prefix: Path) -> None:
    """Writes PREFIX.svg (text as text) and PREFIX.png, without dates or versions: same figure, same bytes."""
    with style():
        for suffix, metadata in ((".svg", {"Date": None, "Creator": None}), (".png", {"Software": None})):
            with atomic_path(prefix.with_name(prefix.name + suffix)) as partial:
                figure.savefig(partial, metadata=metadata)
