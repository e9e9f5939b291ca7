"""Bias and variance of the policy gradient per baseline, on policies small enough for exact enumeration.

The MSE of T2 is no measure of the gradient: leaving the own reward out of the mean raises the MSE of the baseline, and
gives the same gradient up to the factor G / (G - 1); the baseline with the least variance is not theta.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from ebpo.algorithms.settings import EBPOSettings
from ebpo.theory.bandits import Advantages, Bandits, exact_gradient, group_step, make_bandits
from ebpo.theory.history import DEBIASED, PUBLISHED, History, ebpo_baseline, grpo_advantages, normalised
from ebpo.theory.montecarlo import Array, generator, row

THETA = np.array([0.05, 0.3, 0.6, 0.95])
LONG_HISTORY = 1e6


def fixed_baseline(counts: Array, size: int, baseline: Array) -> tuple[Array, Array]:
    """r - b with b [M] that does not depend on the sample."""
    shape = np.broadcast_to(baseline, counts.shape)
    return 1 - shape, -shape


def mean_baseline(counts: Array, size: int) -> tuple[Array, Array]:
    """r - m, the advantage of Dr. GRPO."""
    return 1 - counts / size, -counts / size


def leave_one_out(counts: Array, size: int) -> tuple[Array, Array]:
    """r - mean of the G - 1 others; equals G / (G - 1) times `mean_baseline`."""
    return (size - counts) / (size - 1), -counts / (size - 1)


def ebpo_advantages(
    counts: Array, size: int, history: History, settings: EBPOSettings, normalise: bool
) -> tuple[Array, Array]:
    """EBPO with a given history; `settings.update` says whether the batch enters it."""
    means = counts / size
    used = history.updated(means) if settings.update == "before" else history
    baseline = ebpo_baseline(means, used, settings)
    if not normalise:
        return 1 - baseline, -baseline
    return normalised(1 - baseline, -baseline, counts, size)


def history_of(theta: Array, size: int, groups: float) -> History:
    """A history of `groups` groups with the exact moments of prompts drawn evenly from theta [M]; empty for 0."""
    if groups == 0:
        return History.empty(size, (1,))
    sigma2 = float((theta * (1 - theta)).mean())
    return History.of_moments(size, groups, float(theta.mean()), sigma2, float(theta.var()))


def estimators(bandits: Bandits, size: int) -> dict[str, Advantages]:
    """Every estimator of the comparison, by name."""
    theta = bandits.theta
    after = EBPOSettings(update="after")
    long, empty = (history_of(theta, size, groups) for groups in (LONG_HISTORY, 0))
    return {
        "none": partial(fixed_baseline, baseline=np.zeros_like(theta)),
        "theta": partial(fixed_baseline, baseline=theta),
        "least_variance": partial(fixed_baseline, baseline=least_variance_baseline(bandits)),
        "group_mean": mean_baseline,
        "leave_one_out": leave_one_out,
        "grpo": grpo_advantages,
        "ebpo_raw_first_batch": partial(ebpo_advantages, history=empty, settings=PUBLISHED, normalise=False),
        "ebpo_raw": partial(ebpo_advantages, history=long, settings=after, normalise=False),
        "ebpo_first_batch": partial(ebpo_advantages, history=empty, settings=PUBLISHED, normalise=True),
        "ebpo": partial(ebpo_advantages, history=long, settings=PUBLISHED, normalise=True),
        "ebpo_debiased": partial(ebpo_advantages, history=long, settings=DEBIASED, normalise=True),
    }


def least_variance_baseline(bandits: Bandits) -> Array:
    """[M] E[r |score|^2] / E[|score|^2] with score = onehot(a) - pi, the constant baseline of least variance.

    It is 1 - theta for two arms, and tends to theta where right and wrong arms have scores of equal norm.
    """
    pi = bandits.probability
    square = 1 - 2 * pi + (pi**2).sum(-1, keepdims=True)
    return np.asarray((pi * square * bandits.correct).sum(-1) / (pi * square).sum(-1))


def policies(seed: int) -> dict[str, Bandits]:
    """Two arms, the smallest policy there is, and 64 arms with scores of nearly equal norm, as of a language model."""
    rng = generator(seed, "gradient", "policies")
    return {"2 arms": make_bandits(THETA, 2, 1, rng), "64 arms": make_bandits(THETA, 64, 16, rng, 0.3)}


def quality(mean: Array, variance: float, truth: Array) -> dict[str, float]:
    """What is left after the learning rate has absorbed the scale.

    Returns:
        scale: factor of the true gradient inside the mean estimate; relative_bias: |mean - truth| / |truth|;
        direction_error: sine of the angle between mean and truth; noise: sqrt(variance) / |mean|.
    """
    length, reference = float(np.linalg.norm(mean)), float(np.linalg.norm(truth))
    scale = float((mean * truth).sum()) / reference**2
    return {
        "scale": scale,
        "relative_bias": float(np.linalg.norm(mean - truth)) / reference,
        "direction_error": float(np.linalg.norm(mean - scale * truth)) / length,
        "noise": float(np.sqrt(max(variance, 0.0))) / length,
    }


def exact(sizes: tuple[int, ...], seed: int) -> pd.DataFrame:
    """Exact quality of each estimator: policy, group_size, estimator and the columns of `quality`, plus variance."""
    rows = []
    for policy, bandits in policies(seed).items():
        truth = bandits.gradient / len(THETA)
        for size in sizes:
            for name, advantages in estimators(bandits, size).items():
                moments = exact_gradient(bandits, size, advantages)
                rows.append(
                    {
                        "policy": policy,
                        "group_size": size,
                        "estimator": name,
                        **quality(moments.mean, moments.variance, truth),
                        "variance": moments.variance,
                    }
                )
    return pd.DataFrame(rows)


def simulate(replications: int, batches: int, size: int, seed: int) -> pd.DataFrame:
    """The same by sampling: scale (unbiased) and variance (unbiased, from `batches` batches a replication)."""
    rows = []
    for policy, bandits in policies(seed).items():
        truth = bandits.gradient / len(THETA)
        rng = generator(seed, "gradient", policy)
        drawn = bandits.sample(rng, size, (replications, batches))
        counts = (drawn * bandits.correct).sum(-1)
        for name, advantages in estimators(bandits, size).items():
            moments = exact_gradient(bandits, size, advantages)
            success, failure = advantages(counts, size)
            steps = group_step(drawn, bandits, size, success, failure) / len(THETA)
            mean = steps.mean(1)
            scale = (mean * truth).sum((-1, -2)) / (truth**2).sum()
            variance = ((steps - mean[:, None]) ** 2).sum((-1, -2)).sum(1) / (batches - 1)
            expected = quality(moments.mean, moments.variance, truth)["scale"]
            for quantity, analytic, values in (("scale", expected, scale), ("variance", moments.variance, variance)):
                rows.append(row(analytic, values, policy=policy, group_size=size, estimator=name, quantity=quantity))
    return pd.DataFrame(rows)


def bias_along_history(size: int, seed: int) -> pd.DataFrame:
    """How the gradient's bias falls with the groups seen before, exact.

    Returns:
        Rows of update (`before`, `after`), normalise, groups and the columns of `quality`; with 64 arms.
    """
    bandits = policies(seed)["64 arms"]
    truth = bandits.gradient / len(THETA)
    rows = []
    for update, normalise in (("before", False), ("after", False), ("before", True)):
        settings = EBPOSettings(update="before" if update == "before" else "after")
        for groups in (0, 4, 16, 64, 256, 1024, 4096, 16384):
            if groups == 0 and update == "after":
                continue
            history = history_of(THETA, size, groups)
            advantages = partial(ebpo_advantages, history=history, settings=settings, normalise=normalise)
            moments = exact_gradient(bandits, size, advantages)
            rows.append(
                {
                    "update": update,
                    "normalise": normalise,
                    "groups": groups,
                    **quality(moments.mean, moments.variance, truth),
                }
            )
    return pd.DataFrame(rows)
