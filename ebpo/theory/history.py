"""EBPO's estimator for many replications at once: binary rewards, groups of equal size.

Mirrors `ebpo.algorithms.ebpo` in numpy; tests/theory/test_history.py shows that both agree to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ebpo.algorithms.settings import EBPOSettings
from ebpo.theory.montecarlo import Array

PUBLISHED = EBPOSettings()
POOLED = EBPOSettings(within="pooled")
DEBIASED = EBPOSettings(within="pooled", between="debiased")
BETA_BINOMIAL = EBPOSettings(prior="beta_binomial")


def _ratio(numerator: Array, denominator: Array, otherwise: float) -> Array:
    safe = np.where(denominator > 0, denominator, 1.0)
    return np.where(denominator > 0, numerator / safe, otherwise)


@dataclass(frozen=True)
class History:
    """What EBPO remembers, in every replication and cluster.

    With groups of equal size G the four accumulators of EBPO's `Prior` follow from these three sums.

    Attributes:
        size: G.
        groups: [..., C] weight of the groups seen, per cluster; their number without forgetting.
        mean: [..., C] weighted mean of their rewards.
        group_m2: [..., C] weighted squared deviations of the group means from `mean`.
        within_m2: [..., C] weighted squared deviations of the rewards from their group's mean.
    """

    size: int
    groups: Array
    mean: Array
    group_m2: Array
    within_m2: Array

    @classmethod
    def empty(cls, size: int, shape: tuple[int, ...]) -> History:
        """Nothing seen; shape [..., C]."""
        zero = np.zeros(shape)
        return cls(size, zero, zero, zero, zero)

    @classmethod
    def of_moments(cls, size: int, groups: float, mean: float, sigma2: float, tau2: float) -> History:
        """`groups` groups whose sample moments equal the population's: shape [1], for exact calculations."""
        return cls(
            size,
            np.array([groups]),
            np.array([mean]),
            np.array([(groups - 1) * (tau2 + sigma2 / size)]),
            np.array([groups * (size - 1) * sigma2]),
        )

    def updated(self, means: Array, members: Array | None = None, half_life: float | None = None) -> History:
        """The history after a batch.

        Args:
            means: [..., M] group means of the batch.
            members: [..., M, C], 1 where the group belongs to the cluster; None for a single cluster.
            half_life: in groups of the cluster, None for plain Welford.
        """
        shares = np.ones((*means.shape, 1)) if members is None else members
        count = shares.sum(-2)
        mean = _ratio(np.einsum("...m,...mc->...c", means, shares), count, 0.0)
        deviations = np.einsum("...mc,...mc->...c", (means[..., None] - mean[..., None, :]) ** 2, shares)
        within = np.einsum("...m,...mc->...c", self.size * means * (1 - means), shares)
        factor = 1.0 if half_life is None else 0.5 ** (count / half_life)
        old = self.groups * factor
        total = old + count
        gap = mean - self.mean
        share = _ratio(count, total, 0.0)
        return History(
            self.size,
            total,
            np.where(old > 0, self.mean + gap * share, np.where(count > 0, mean, self.mean)),
            self.group_m2 * factor + deviations + gap**2 * old * share,
            self.within_m2 * factor + within,
        )

    def variances(self, settings: EBPOSettings) -> tuple[Array, Array]:
        """(sigma2, tau2) of the options `within` and `between`, each [..., C]."""
        pooled = _ratio(self.within_m2, self.groups * (self.size - 1), 0.0)
        rewards = np.maximum(self.groups * self.size - 1, 0.0)
        total = _ratio(self.size * self.group_m2 + self.within_m2, rewards, 0.0)
        tau2 = _ratio(self.group_m2, np.maximum(self.groups - 1, 0.0), 0.0)
        if settings.between == "debiased":
            tau2 = np.maximum(tau2 - pooled / self.size, 0.0)
        return (total if settings.within == "total" else pooled), tau2

    def shrinkage(self, settings: EBPOSettings = PUBLISHED) -> Array:
        """S, [..., C] in [0, 1]."""
        if settings.prior == "beta_binomial":
            total = self.mean * (1 - self.mean)
            group_variance = _ratio(self.group_m2, np.maximum(self.groups - 1, 0.0), 0.0)
            theta = (group_variance - total / self.size) / (1 - 1 / self.size) if self.size > 1 else 0.0 * total
            pseudo = np.where((total > 0) & (theta > 0), np.maximum(_ratio(total, theta, np.inf) - 1, 0.0), np.inf)
            finite = np.where(np.isinf(pseudo), 0.0, pseudo)
            return np.where(np.isinf(pseudo), 1.0, finite / (finite + self.size))
        sigma2, tau2 = self.variances(settings)
        return _ratio(sigma2 / self.size, sigma2 / self.size + tau2, 0.0)


def ebpo_baseline(
    means: Array, history: History, settings: EBPOSettings = PUBLISHED, members: Array | None = None
) -> Array:
    """V = (1 - S) m + S mu_glob of each group, [..., M]; the group mean where the cluster has no history."""
    seen = history.groups > 0
    shrinkage = np.where(seen, history.shrinkage(settings), 0.0)
    if members is None:
        return means + shrinkage * (history.mean - means)
    own = np.einsum("...mc,...c->...m", members, shrinkage)
    return np.asarray(means + own * (np.einsum("...mc,...c->...m", members, history.mean) - means))


def normalised(success: Array, failure: Array, counts: Array, size: int, epsilon: float = 1e-6) -> tuple[Array, Array]:
    """Batch normalisation of raw advantages (Algorithm 1, step 7).

    Args:
        success, failure: [..., M] raw advantage of a right and of a wrong completion of each group.
        counts: [..., M] right completions of each group.
        size: G.
        epsilon: added to the standard deviation.

    Returns:
        The advantages of a right and of a wrong completion, [..., M]; 0 where the whole batch is equal.
    """
    rewards = counts.shape[-1] * size
    wrong = size - counts
    mean = (counts * success + wrong * failure).sum(-1, keepdims=True) / rewards
    m2 = (counts * (success - mean) ** 2 + wrong * (failure - mean) ** 2).sum(-1, keepdims=True)
    std = np.sqrt(m2 / (rewards - 1))
    # A batch of equal raw advantages leaves rounding behind: about 1e-33 a completion.
    constant = m2 <= 1e-28 * rewards
    return (
        np.where(constant, 0.0, (success - mean) / (std + epsilon)),
        np.where(constant, 0.0, (failure - mean) / (std + epsilon)),
    )


def grpo_advantages(counts: Array, size: int, epsilon: float = 1e-6) -> tuple[Array, Array]:
    """GRPO's advantages of a right and of a wrong completion, [..., M] each; 0 in saturated groups."""
    means = counts / size
    std = np.sqrt(size * means * (1 - means) / max(size - 1, 1))
    mixed = (counts > 0) & (counts < size)
    return (
        np.where(mixed, (1 - means) / (std + epsilon), 0.0),
        np.where(mixed, -means / (std + epsilon), 0.0),
    )
