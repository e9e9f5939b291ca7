"""T1 and T3: what a group without success gets, before and after the batch normalisation.

Raw, a wrong completion of an all-0 group gets -S mu_glob. The normalisation subtracts the batch's mean raw advantage,
which with groups of equal size and one prior is S (m_batch - mu_glob), so mu_glob cancels:

    A = (r - (1 - S) m - S m_batch) / (std + epsilon).

The history then acts through S alone. An all-0 group gets -S m_batch / std, a batch of nothing but failures gets 0, and
in a batch of saturated groups, a share p of them all right, S cancels as well: A = -sqrt(p / (1 - p)).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ebpo.theory.baseline_mse import limiting_shrinkage
from ebpo.theory.history import PUBLISHED, History, ebpo_baseline, grpo_advantages, normalised
from ebpo.theory.montecarlo import generator, row
from ebpo.theory.priors import beta

MEANS = tuple(round(0.05 * step, 2) for step in range(1, 20))
# Two ways for pass rates to grow easier: with a constant a + b, or with a constant variance between prompts.
CONCENTRATION = 2.0
FIXED_TAU2 = 0.02


def family(name: str, mean: float) -> tuple[float, float]:
    """(a, b) of the Beta distribution with this mean: `fixed_concentration` or `fixed_tau2`.

    Raises:
        ValueError: the mean leaves no room for the variance, or the family does not exist.
    """
    if name not in ("fixed_concentration", "fixed_tau2"):
        raise ValueError(f"family {name!r} is not known; allowed: 'fixed_concentration', 'fixed_tau2'")
    total = CONCENTRATION if name == "fixed_concentration" else mean * (1 - mean) / FIXED_TAU2 - 1
    if total <= 0:
        raise ValueError(f"mean {mean}: no Beta distribution has variance {FIXED_TAU2} there")
    return mean * total, (1 - mean) * total


def raw_penalty(mu: float, sigma2: float, tau2: float, size: int) -> float:
    """-S mu of Algorithm 1 with the population's moments."""
    return -limiting_shrinkage("ebpo", sigma2, tau2, size) * mu


def raw_variance(shrinkage: float, sigma2: float, tau2: float, size: int) -> float:
    """Variance of the raw advantages of a large batch, sigma2 (1 - 1/G) + S^2 (tau2 + sigma2/G).

    r - m and m - mu are uncorrelated, whatever the distribution of theta.
    """
    return sigma2 * (1 - 1 / size) + shrinkage**2 * (tau2 + sigma2 / size)


def normalised_penalty(mu: float, sigma2: float, tau2: float, size: int) -> float:
    """-S mu / std of a large batch, whose mean is mu."""
    shrinkage = limiting_shrinkage("ebpo", sigma2, tau2, size)
    return float(-shrinkage * mu / np.sqrt(raw_variance(shrinkage, sigma2, tau2, size)))


def saturated_advantage(share: float, rewards: int) -> float:
    """Normalised advantage of an all-0 group in a batch of saturated groups, a share of them all right.

    Args:
        share: p in [0, 1).
        rewards: N of the batch; its standard deviation has N - 1.
    """
    return float(-np.sqrt(share / (1 - share) * (rewards - 1) / rewards))


def simulate(replications: int, history_groups: int, prompts: int, size: int, seed: int) -> pd.DataFrame:
    """The penalty of an all-0 group against the mean pass rate, raw and normalised, GRPO beside EBPO.

    Args:
        replications: independent histories.
        history_groups: groups seen before the batch; the closed form is the limit.
        prompts: M of the batch that is scored.
        size: G.
        seed: of the simulation.

    Returns:
        Rows of family, mean, quantity (`raw`, `normalised`, `grpo`) and the columns of `row`.
    """
    rows = []
    for name in ("fixed_concentration", "fixed_tau2"):
        for mean in MEANS:
            a, b = family(name, mean)
            prior = beta(a, b)
            rng = generator(seed, "penalty", name, str(mean))
            seen = rng.binomial(size, prior.draw(rng, (replications, history_groups))) / size
            counts = rng.binomial(size, prior.draw(rng, (replications, prompts))).astype(np.float64)
            # An all-0 group of its own in front, so that every replication has one to look at.
            counts[:, 0] = 0
            means = counts / size
            history = History.empty(size, (replications, 1)).updated(seen).updated(means)
            baseline = ebpo_baseline(means, history, PUBLISHED)
            _, failure = normalised(1 - baseline, -baseline, counts, size)
            _, grpo = grpo_advantages(counts, size)
            moments = (prior.mean, prior.sigma2, prior.tau2, size)
            for quantity, analytic, values in (
                ("raw", raw_penalty(*moments), -baseline[:, 0]),
                ("normalised", normalised_penalty(*moments), failure[:, 0]),
                ("grpo", 0.0, grpo[:, 0]),
            ):
                rows.append(row(analytic, values, family=name, mean=mean, quantity=quantity))
    return pd.DataFrame(rows)


def saturated_batches(history_mean: float, groups: int, size: int) -> pd.DataFrame:
    """Batches of saturated groups alone, after a long history: raw and normalised advantages, GRPO beside them.

    Args:
        history_mean: mu of the history; its pass rates are uniform around it (tau2 = mu (1 - mu) / 3).
        groups: M of the batch.
        size: G.

    Returns:
        Rows of share (of groups that are all right), completion (`wrong`, `right`), raw, normalised, analytic
        (of the normalised one), grpo. Nothing is random here.
    """
    total = history_mean * (1 - history_mean)
    rows = []
    for right in range(groups + 1):
        counts = np.where(np.arange(groups) < right, float(size), 0.0)
        history = History.of_moments(size, 1e9, history_mean, total * 2 / 3, total / 3)
        baseline = ebpo_baseline(counts / size, history, PUBLISHED)
        success, failure = normalised(1 - baseline, -baseline, counts, size)
        grpo_success, grpo_failure = grpo_advantages(counts, size)
        share, rewards = right / groups, groups * size
        for completion, present, raw, advantage, grpo, analytic in (
            ("wrong", right < groups, -baseline[-1], failure[-1], grpo_failure[-1],
             saturated_advantage(share, rewards) if right < groups else np.nan),
            ("right", right > 0, 1 - baseline[0], success[0], grpo_success[0],
             -saturated_advantage(1 - share, rewards) if right > 0 else np.nan),
        ):  # fmt: skip
            if present:
                rows.append(
                    {
                        "share": share, "completion": completion, "raw": raw, "normalised": advantage,
                        "analytic": analytic, "grpo": grpo,
                    }
                )  # fmt: skip
    return pd.DataFrame(rows)
