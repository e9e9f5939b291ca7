"""Sample efficiency and validation as tables for readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ebpo.reporting.labels import method_label, order_label
from ebpo.reporting.table import Cell, Column, Table

_POLICY = [("model", "Model"), ("method", "Method"), ("order", "Order")]


def efficiency_table(targets: pd.DataFrame) -> Table:
    """Completions until each method reaches its target, from `ebpo.reporting.efficiency.efficiency_targets`."""
    rows = []
    for row in targets.to_dict("records"):
        reached = f"{row['reached']} of {row['seeds']}"
        spread = row["completions_sd"]
        needed = "" if np.isnan(row["completions"]) else f"{row['completions']:,.0f}"
        needed += "" if not needed or np.isnan(spread) else f" (sd {spread:,.0f})"
        shown = [reached, needed, f"{row['completions_final']:,.0f}"]
        rows.append(
            (*_policy(row), Cell(100 * row["target"]), *(Cell(text=x) for x in shown), Cell(100 * row["final"]))
        )
    headers = [("target", "Target"), ("reached", "Seeds that reach it"), ("completions", "Completions until then")]
    headers += [("completions_final", "Completions in all"), ("final", "Final")]
    caption = "Completions sampled until validation pass@1 first meets the target, in percent; discarded ones included."
    notes = (
        "The target of a model, order and group size is half-way from the first validation to the best that any of its "
        "methods reaches, means over seeds; empty where a seed never gets there. Curves are linear in between.",
    )
    return Table("efficiency_targets", _columns(headers), tuple(rows), caption, notes)


def validation_table(summary: pd.DataFrame, samples: int) -> Table:
    """The best and the final validation, means over seeds, from `ebpo.reporting.validation.validation_summary`."""
    keys = [f"{when}_{key}" for key in (f"maj_at_{samples}", f"pass_at_{samples}") for when in ("best", "final")]
    rows = []
    for identity, own in summary.groupby(["model", "method", "order", "group_size"], sort=False):
        row = dict(zip(("model", "method", "order", "group_size"), identity, strict=True))
        low, high = own["best_step"].min(), own["best_step"].max()
        steps = f"{low}" if low == high else f"{low} to {high}"
        values = [Cell(100 * float(own[key].mean())) for key in dict.fromkeys(keys)]
        rows.append((*_policy(row), Cell(text=str(len(own))), Cell(text=steps), *values))
    headers = [("seeds", "Seeds"), ("best_step", "Best at step")]
    titles = {f"maj_at_{samples}": f"maj@{samples}", f"pass_at_{samples}": f"pass@{samples}"}
    for key in dict.fromkeys(keys):
        when, _, metric = key.partition("_")
        headers.append((key, f"{titles[metric]}, {when}"))
    caption = f"Validation at the best checkpoint (first of the largest maj@{samples}) and at the end, in percent."
    note = "The best of several noisy validations is too high by chance: compare methods on the benchmarks, not here."
    return Table("validation", _columns(headers), tuple(rows), caption, (note,))


def _policy(row: Mapping[Any, Any]) -> tuple[Cell, ...]:
    labels = (method_label(str(row["method"])), order_label(str(row["order"])))
    keys = (str(row["method"]), str(row["order"]))
    named = [Cell(text=label, key=key) for label, key in zip(labels, keys, strict=True)]
    return (Cell(text=str(row["model"])), *named, Cell(text=str(row["group_size"])))


def _columns(headers: list[tuple[str, str]]) -> tuple[Column, ...]:
    first = [Column(key, header, numeric=False) for key, header in _POLICY]
    return (*first, Column("group_size", "G"), *(Column(key, header) for key, header in headers))
