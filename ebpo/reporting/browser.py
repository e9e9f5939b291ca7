"""What the report's run browser shows: curves and completions of every run, as data for its script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ebpo.reporting.labels import method_label, order_label
from ebpo.reporting.runs import Run

POINTS = 200
_CURVES = {
    "reward": "Training reward",
    "validation/pass@1": "Validation pass@1",
    "validation/maj@{n}": "Validation maj@{n}",
    "validation/pass@{n}": "Validation pass@{n}",
    "grad_norm": "Gradient norm",
    "entropy": "Entropy, nats per token",
    "kl_step": "KL(π_t ‖ π_t+1)",
    "groups/all_0": "Share of groups without success",
    "groups/all_1": "Share of groups without failure",
    "completion/length": "Completion length, tokens",
    "ebpo/shrinkage": "EBPO: shrinkage S",
    "ebpo/mu_glob": "EBPO: global mean μ_glob",
}


def browser_data(
    runs: Sequence[Run], examples: Mapping[str, Sequence[Mapping[str, Any]]], colours: Mapping[str, str], samples: int
) -> dict[str, Any]:
    """Curves, facts and completions of every run.

    Args:
        runs: all runs.
        examples: folder of a run -> rows of `ebpo.evaluation.examples.example_completions`.
        colours: method -> colour.
        samples: completions per validation problem.

    Returns:
        `curves`: the titles, and `runs`: name, colour, facts (label, text), for each curve [steps, values] with at
        most `POINTS` points or null, and examples.
    """
    curves = {key.format(n=samples): title.format(n=samples) for key, title in _CURVES.items()}
    shown = []
    for run in runs:
        identity = run.id
        name = f"{method_label(identity.method)}, {order_label(identity.order)}, G = {identity.group_size}"
        shown.append(
            {
                "name": f"{identity.model}: {name}, seed {identity.seed}",
                "colour": colours[identity.method],
                "facts": run_facts(run),
                "curves": [_points(run.series(key)) for key in curves],
                "examples": [dict(row) for row in examples[identity.folder]],
            }
        )
    return {"curves": list(curves.values()), "runs": shown}


def run_facts(run: Run) -> dict[str, str]:
    """Facts of a run in words; what was not recorded is a dash."""
    reward, total = run.series("reward"), run.series("completions_total")
    seconds, best = run.summary.get("seconds"), run.summary.get("best_step")
    return {
        "Steps": f"{int(run.metrics.index.max())} of {run.steps}",
        "Best validation at step": "–" if best is None else str(best),
        "Final reward": f"{reward.iloc[-1]:.3f}" if len(reward) else "–",
        "Completions sampled": f"{int(total.iloc[-1]):,}" if len(total) else "–",
        "Wall time, h:mm:ss": "–" if seconds is None else _duration(float(seconds)),
        "Resumed at step": ", ".join(str(step) for step in run.summary.get("resumed_at", [])) or "–",
        "Digest of configuration and inputs": str(run.summary.get("digest", "–"))[:12],
    }


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


def _points(values: pd.Series[float]) -> list[list[float]] | None:
    if values.empty:
        return None
    every = -(-len(values) // POINTS)
    # The last point is kept, whatever the stride.
    kept = values.iloc[::-1].iloc[::every].iloc[::-1]
    return [kept.index.to_list(), [float(f"{value:.4g}") for value in kept]]
