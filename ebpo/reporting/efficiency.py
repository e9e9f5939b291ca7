"""Sample efficiency: validation accuracy against the completions sampled so far, discarded ones included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ebpo.reporting.runs import Run

PANEL = ["model", "order", "group_size"]


def efficiency_curves(runs: Sequence[Run]) -> pd.DataFrame:
    """Accuracy of each run's validations against what it had sampled by then.

    Returns:
        Rows of model, order, group_size, method, seed, step, completions (sampled for training, dynamic sampling's
        discarded ones included), pass_at_1 of the validation problems in [0, 1].

    Raises:
        ValueError: a run recorded no validation, or not how many completions it had sampled.
    """
    frames = []
    for run in runs:
        accuracy, total = run.series("validation/pass@1"), run.series("completions_total")
        for key, series in (("validation/pass@1", accuracy), ("completions_total", total)):
            if series.empty:
                raise ValueError(f"{run.id.folder}: metrics.jsonl has no {key}")
        # Before the first step nothing was sampled; a step without the metric sampled nothing.
        sampled = total.reindex(run.metrics.index).ffill().fillna(0.0)
        frame = pd.DataFrame({"completions": sampled.loc[accuracy.index].astype("int64"), "pass_at_1": accuracy})
        identity = run.id.model_dump()
        names = [*PANEL, "method", "seed"]
        frames.append(frame.rename_axis("step").reset_index().assign(**identity)[[*names, "step", *frame.columns]])
    return pd.concat(frames, ignore_index=True)


def efficiency_targets(curves: pd.DataFrame) -> pd.DataFrame:
    """Completions until a method reaches a target accuracy, within each model, order and group size.

    The target is half-way from the first validation to the best that any method reaches (means over seeds): a level
    that the comparison itself sets. A run reaches it where its curve, linear between validations, first meets it.

    Returns:
        Rows of model, order, group_size, method, target, seeds, reached (seeds that got there), completions (mean over
        the seeds; NaN unless all got there), completions_sd (over seeds; NaN for one), final (accuracy at the last
        validation, mean over seeds), completions_final.
    """
    rows = []
    for panel, own in curves.groupby(PANEL, sort=False):
        means = own.groupby(["method", "step"], sort=False)["pass_at_1"].mean()
        first = own[own["step"] == own["step"].min()]["pass_at_1"].mean()
        target = float((first + means.max()) / 2)
        for method, runs in own.groupby("method", sort=False):
            found = np.array([completions_to_reach(run, target) for _, run in runs.groupby("seed")])
            last = runs[runs["step"] == runs["step"].max()]
            reached = ~np.isnan(found)
            rows.append(
                {
                    **dict(zip(PANEL, panel, strict=True)),
                    "method": method,
                    "target": target,
                    "seeds": len(found),
                    "reached": int(reached.sum()),
                    "completions": float(found.mean()),
                    "completions_sd": float(found.std(ddof=1)) if len(found) > 1 else float("nan"),
                    "final": float(last["pass_at_1"].mean()),
                    "completions_final": float(last["completions"].mean()),
                }
            )
    return pd.DataFrame(rows)


def completions_to_reach(run: pd.DataFrame, target: float) -> float:
    """Completions at which a run's curve first meets the target; NaN if it never does."""
    ordered = run.sort_values("step")
    completions, accuracy = ordered["completions"].to_numpy(float), ordered["pass_at_1"].to_numpy(float)
    above = np.flatnonzero(accuracy >= target)
    if not len(above):
        return float("nan")
    i = int(above[0])
    if i == 0:
        return float(completions[0])
    share = (target - accuracy[i - 1]) / (accuracy[i] - accuracy[i - 1])
    return float(completions[i - 1] + share * (completions[i] - completions[i - 1]))
