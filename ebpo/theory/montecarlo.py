"""Monte-Carlo estimates with their intervals. The unit is the replication, never the prompt or the completion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from ebpo.seeds import derive_seed

Array = NDArray[np.float64]

CONFIDENCE = 0.95


def generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """A stream of random numbers of its own for each purpose."""
    return np.random.default_rng(derive_seed("theory", seed, *purpose))


def estimate(replications: Array, confidence: float = CONFIDENCE) -> dict[str, float]:
    """Mean of independent replications and its Student-t interval.

    Args:
        replications: [R], one number per replication, R at least 2.
        confidence: of the two-sided interval, in (0, 1).

    Returns:
        `simulated`, `standard_error`, `low`, `high`, `replications`.

    Raises:
        ValueError: fewer than two replications, or a value that is not finite.
    """
    values = np.asarray(replications, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise ValueError(f"a Monte-Carlo interval needs two or more finite replications in 1-D, got {values.shape}")
    mean, error = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    half = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return {
        "simulated": mean,
        "standard_error": error,
        "low": mean - half,
        "high": mean + half,
        "replications": len(values),
    }


def row(analytic: float, replications: Array, **labels: Any) -> dict[str, Any]:
    """A line of a result table: what it is, the analytic value (NaN: none is known), the simulated one."""
    return {**labels, "analytic": float(analytic), **estimate(replications)}


def coverage(frame: pd.DataFrame) -> float:
    """Share of rows whose interval holds the analytic value; about 0.95 where the closed form is exact.

    Rows without any variance must agree up to rounding.
    """
    inside = frame["analytic"].between(frame["low"] - 1e-12, frame["high"] + 1e-12)
    return float(inside.mean())
