"""Pass rates under a Beta prior that is fitted to all problems: the empirical Bayes estimate of each one's rate.

correct_i ~ Binomial(rollouts_i, theta_i), theta_i ~ Beta(a, b); (a, b) by maximum likelihood of the beta-binomial
counts; the smoothed rate is the posterior mean (a + correct_i) / (a + b + rollouts_i).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import betabinom

# Bounds of logit(a / (a + b)) and log(a + b): beyond them the likelihood is flat, as where no problem was ever solved,
# or where the rates vary no more than their sampling does.
_MEAN_BOUND = (-9.0, 9.0)
_SIZE_BOUND = (-6.0, 9.0)


@dataclass(frozen=True)
class BetaPrior:
    """Beta(a, b), both > 0."""

    a: float
    b: float

    def posterior_mean(self, correct: np.ndarray, rollouts: np.ndarray) -> np.ndarray:
        """Smoothed rates, in (0, 1)."""
        return np.asarray((self.a + correct) / (self.a + self.b + rollouts))


def fit_prior(correct: np.ndarray, rollouts: np.ndarray) -> BetaPrior:
    """The Beta prior of greatest likelihood.

    Args:
        correct, rollouts: [N] int, 0 <= correct <= rollouts, rollouts >= 1.

    Raises:
        ValueError: there is no problem, a count is out of range, or the search fails.
    """
    if not len(correct):
        raise ValueError("difficulty: a prior needs at least one problem")
    if (rollouts < 1).any() or (correct < 0).any() or (correct > rollouts).any():
        raise ValueError("difficulty: counts out of range; allowed: 0 <= correct <= rollouts and rollouts >= 1")
    # Equal counts have equal likelihood: a handful of terms, however many problems.
    pairs, weight = np.unique(np.stack([correct, rollouts], axis=1), axis=0, return_counts=True)

    def prior(parameters: np.ndarray) -> BetaPrior:
        mean, size = expit(parameters[0]), np.exp(parameters[1])
        return BetaPrior(float(mean * size), float((1 - mean) * size))

    def loss(parameters: np.ndarray) -> float:
        guess = prior(parameters)
        terms = betabinom.logpmf(pairs[:, 0], pairs[:, 1], guess.a, guess.b)
        return -float((weight * terms).sum()) / float(weight.sum())

    mean = np.clip(correct.sum() / rollouts.sum(), 1e-3, 1 - 1e-3)
    start = np.array([np.log(mean / (1 - mean)), 1.0])
    result = minimize(loss, start, method="L-BFGS-B", bounds=[_MEAN_BOUND, _SIZE_BOUND])
    if not np.isfinite(result.fun):
        raise ValueError(f"difficulty: the Beta prior could not be fitted ({result.message})")
    return prior(result.x)


def quantile_buckets(rates: np.ndarray, buckets: int) -> np.ndarray:
    """Bucket of each problem, [N] int: 0 the easiest (highest rates), cut at quantiles.

    Problems of equal rate are never parted: together they go where the middle one of them would. So buckets may differ
    in size, and a bucket may be empty, where many rates are equal.
    """
    _, group, sizes = np.unique(-rates, return_inverse=True, return_counts=True)
    middle = np.cumsum(sizes) - (sizes + 1) / 2  # mean 0-based rank of the group's members
    return np.asarray(np.floor(buckets * (middle + 0.5) / len(rates)).astype(int)[group])
