"""Prints the table of docs/evaluation.md: how often nominal 95 % intervals of one policy's score cover the truth.

python tests/evaluation/coverage_of_intervals.py
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from ebpo.evaluation.intervals import Floats, bca

SIMULATIONS, RESAMPLES, SAMPLES = 2_000, 1_000, 8
SETTINGS = [(30, 0.1), (30, 0.3), (75, 0.1), (75, 0.4), (75, 0.9), (375, 0.4)]


def pass_rates(rng: np.random.Generator, problems: int, mean: float) -> Floats:
    """c / n of `SAMPLES` completions of problems whose pass rates are Beta(mean, 1 - mean): [problems, SIMULATIONS]."""
    truth = rng.beta(mean, 1 - mean, (problems, SIMULATIONS))
    return rng.binomial(SAMPLES, truth) / SAMPLES


def covered(low: Floats, high: Floats, mean: float) -> float:
    """Share of the intervals that hold the mean."""
    return float(((low <= mean) & (mean <= high)).mean())


def percentile(values: Floats) -> tuple[Floats, Floats]:
    """Percentile bootstrap over problems, resamples shared by the simulations."""
    rng, problems = np.random.default_rng(0), len(values)
    weights = rng.multinomial(problems, np.full(problems, 1 / problems), size=RESAMPLES) / problems
    low, high = np.quantile(weights @ values, [0.025, 0.975], axis=0)
    return low, high


def main() -> None:
    print("| problems, mean | BCa | percentile | Student's t | completions as independent |")
    print("|---|--:|--:|--:|--:|")
    for problems, mean in SETTINGS:
        values = pass_rates(np.random.default_rng(1), problems, mean)
        centre, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(problems)
        naive = np.sqrt(centre * (1 - centre) / (problems * SAMPLES))
        t = stats.t.ppf(0.975, problems - 1)
        _, _, low, high = bca([values], 0.95, RESAMPLES, 0)
        found = [
            covered(low, high, mean),
            covered(*percentile(values), mean),
            covered(centre - t * error, centre + t * error, mean),
            covered(centre - 1.96 * naive, centre + 1.96 * naive, mean),
        ]
        print(f"| {problems}, {mean} | " + " | ".join(f"{share:.3f}" for share in found) + " |")


if __name__ == "__main__":
    main()
