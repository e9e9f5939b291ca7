"""T2: how far a baseline V lies from the prompt's pass rate, MSE = E[(V - theta)^2].

A baseline that is linear in the group mean, V = (1 - S) m + S mu_0 with fixed S and mu_0, has for any distribution of
theta, bounded or not, normal or not,

    MSE(S) = (1 - S)^2 sigma2 / G + S^2 (tau2 + (mu_0 - mu)^2),

which is smallest, (1 - S*) sigma2 / G, at mu_0 = mu and S* = (sigma2/G) / (sigma2/G + tau2). T2 is this minimum. It is
beaten by nothing linear, and it needs the true sigma2, tau2 and mu. Algorithm 1 does not estimate these: its sigma2 is
the total variance sigma2 + tau2, its tau2 the variance of group means tau2 + sigma2/G.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from ebpo.algorithms.settings import EBPOSettings
from ebpo.theory.history import BETA_BINOMIAL, DEBIASED, POOLED, PUBLISHED, History, ebpo_baseline
from ebpo.theory.montecarlo import Array, generator, row
from ebpo.theory.priors import GROUP_SIZES, PRIORS, PassRates, beta

# The options of EBPO as the tables name them.
VARIANTS: dict[str, EBPOSettings] = {
    "ebpo": PUBLISHED,
    "ebpo_pooled": POOLED,
    "ebpo_debiased": DEBIASED,
    "beta_binomial": BETA_BINOMIAL,
}


def linear_mse(shrinkage: float, sigma2: float, tau2: float, size: int, offset: float = 0.0) -> float:
    """MSE of V = (1 - S) m + S (mu + offset); see the module's equation."""
    return (1 - shrinkage) ** 2 * sigma2 / size + shrinkage**2 * (tau2 + offset**2)


def optimal_shrinkage(sigma2: float, tau2: float, size: int) -> float:
    """S*; 0 where nothing varies."""
    noise = sigma2 / size
    return noise / (noise + tau2) if noise + tau2 > 0 else 0.0


def limiting_shrinkage(variant: str, sigma2: float, tau2: float, size: int) -> float:
    """S of EBPO's option after infinitely many groups.

    Args:
        variant: `ebpo`: both variances as in Algorithm 1; `ebpo_pooled`: within=pooled, so tau2 alone is inflated;
            `ebpo_debiased`: within=pooled, between=debiased; `beta_binomial`.
        sigma2, tau2: of the population.
        size: G. Groups of one show no variance inside: `ebpo_pooled` and `ebpo_debiased` then do not shrink, and
            `beta_binomial` takes every difference for noise.
    """
    if variant == "ebpo":
        return optimal_shrinkage(sigma2 + tau2, tau2 + sigma2 / size, size)
    if size == 1:
        return 1.0 if variant == "beta_binomial" else 0.0
    if variant == "ebpo_pooled":
        return optimal_shrinkage(sigma2, tau2 + sigma2 / size, size)
    return optimal_shrinkage(sigma2, tau2, size)


def worse_than_grpo_above(size: int) -> float:
    """The ratio tau2/sigma2 above which Algorithm 1 has a larger MSE than the group mean, with perfect moments.

    A weight S beats the group mean exactly if S < 2 S*. With x = tau2/sigma2 Algorithm 1 has
    S = (1 + x) / (2 + (G + 1) x), and S* = 1 / (1 + G x), so it fails where G x^2 - (G + 1) x - 3 > 0.
    """
    return float(((size + 1) + np.sqrt((size + 1) ** 2 + 12 * size)) / (2 * size))


def conservative_below(size: int) -> float:
    """The ratio tau2/sigma2 up to which Algorithm 1 shrinks less than S*, that is 1 / sqrt(G); above it, more."""
    return float(size**-0.5)


def offset_tolerated(shrinkage: float, sigma2: float, tau2: float, size: int) -> float:
    """How far mu_glob may lie from the mean of the prompts that it scores before V is worse than the group mean.

    Args:
        shrinkage: S in (0, 1].
        sigma2, tau2: of these prompts.
        size: G.

    Returns:
        sqrt((2 - S) / S * sigma2/G - tau2); 0 where V is worse even at no offset.
    """
    return float(np.sqrt(max((2 - shrinkage) / shrinkage * sigma2 / size - tau2, 0.0)))


def posterior_mean_mse(prior: PassRates, size: int) -> float:
    """E[Var(theta | k)] = tau2 - Var(E[theta | k]), the least MSE of any function of the k successes, by quadrature."""
    evidence = stats.binom.pmf(np.arange(size + 1)[:, None], size, prior.theta[None, :]) @ prior.weight
    return prior.tau2 - float(evidence @ (posterior_means(prior, size) - prior.mean) ** 2)


def posterior_means(prior: PassRates, size: int) -> Array:
    """E[theta | k] for k = 0..G, [G + 1]; the prior mean for a count that cannot occur."""
    counts = np.arange(size + 1)
    joint = stats.binom.pmf(counts[:, None], size, prior.theta[None, :]) * prior.weight
    evidence = joint.sum(1)
    safe = np.where(evidence > 0, evidence, 1.0)
    return np.where(evidence > 0, joint @ prior.theta / safe, prior.mean)


def analytic_mse(prior: PassRates, size: int) -> dict[str, float]:
    """MSE of every estimator with the population's moments known.

    `leave_one_out` is the mean of the G - 1 other completions; it does not exist for G = 1.
    """
    sigma2, tau2 = prior.sigma2, prior.tau2
    values = {"grpo": sigma2 / size}
    if size > 1:
        values["leave_one_out"] = sigma2 / (size - 1)
    for variant in VARIANTS:
        values[variant] = linear_mse(limiting_shrinkage(variant, sigma2, tau2, size), sigma2, tau2, size)
    values["oracle_linear"] = linear_mse(optimal_shrinkage(sigma2, tau2, size), sigma2, tau2, size)
    values["oracle_posterior"] = posterior_mean_mse(prior, size)
    return values


def conditional_mse(theta: Array, shrinkage: float, mu: float, size: int) -> Array:
    """MSE at a given pass rate, (1 - S)^2 theta (1 - theta) / G + S^2 (theta - mu)^2; S = 0 is GRPO's."""
    return np.asarray((1 - shrinkage) ** 2 * theta * (1 - theta) / size + shrinkage**2 * (theta - mu) ** 2)


def shrinkage_curves(sizes: Sequence[int] = (2, 4, 8, 16, 64)) -> pd.DataFrame:
    """Algorithm 1 against the optimum along tau2/sigma2, endless history.

    Returns:
        Rows of group_size, ratio (tau2/sigma2), published and optimal (S), over_optimum and over_grpo (MSE of
        Algorithm 1 relative to the optimum's and to the group mean's).
    """
    rows = []
    for size in sizes:
        for ratio in np.geomspace(0.01, 30, 61):
            sigma2 = 1 / (1 + ratio)
            tau2 = 1 - sigma2
            published, optimal = limiting_shrinkage("ebpo", sigma2, tau2, size), optimal_shrinkage(sigma2, tau2, size)
            mse = linear_mse(published, sigma2, tau2, size)
            rows.append(
                {
                    "group_size": size, "ratio": ratio, "published": published, "optimal": optimal,
                    "over_optimum": mse / linear_mse(optimal, sigma2, tau2, size), "over_grpo": mse / (sigma2 / size),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def conditional_curves(size: int) -> pd.DataFrame:
    """MSE at each pass rate theta of GRPO's mean and of Algorithm 1, endless history: prior, theta, grpo, ebpo."""
    theta = np.linspace(0, 1, 101)
    frames = []
    for prior in PRIORS:
        if prior.name in ("unimodal", "polarised"):
            shrinkage = limiting_shrinkage("ebpo", prior.sigma2, prior.tau2, size)
            weights = {"grpo": 0.0, "ebpo": shrinkage}
            values = {name: conditional_mse(theta, weight, prior.mean, size) for name, weight in weights.items()}
            frames.append(pd.DataFrame({"prior": prior.name, "theta": theta, **values}))
    return pd.concat(frames, ignore_index=True)


def simulate(
    replications: int, steps: int, prompts: int, seed: int, sizes: Sequence[int] = GROUP_SIZES
) -> pd.DataFrame:
    """MSE of every estimator on every prior and group size, with the prior known and learned online.

    Args:
        replications: independent training histories.
        steps: batches of a history; the last one is scored, and as in Algorithm 1 it belongs to the statistics.
        prompts: M of a batch.
        seed: of the simulation.
        sizes: G.

    Returns:
        Rows of prior, group_size, estimator, moments (`known`: the closed form is exact; `online`: the closed form is
        the limit of a long history), analytic, simulated, standard_error, low, high, replications.
    """
    rows = []
    for prior in PRIORS:
        for size in sizes:
            rng = generator(seed, "baseline_mse", prior.name, size)
            theta = prior.draw(rng, (replications, steps, prompts))
            counts = rng.binomial(size, theta)
            last, k = theta[:, -1], counts[:, -1]
            means = k / size
            history = History.empty(size, (replications, 1)).updated(counts.reshape(replications, -1) / size)
            analytic = analytic_mse(prior, size)
            sigma2, tau2 = prior.sigma2, prior.tau2
            known = {"grpo": means, "oracle_posterior": posterior_means(prior, size)[k]}
            for variant in VARIANTS:
                weight = limiting_shrinkage(variant, sigma2, tau2, size)
                known[variant] = (1 - weight) * means + weight * prior.mean
            weight = optimal_shrinkage(sigma2, tau2, size)
            known["oracle_linear"] = (1 - weight) * means + weight * prior.mean
            squared = {("known", name): (baseline - last) ** 2 for name, baseline in known.items()}
            if size > 1:
                # Right completions have k - 1 successes beside them, wrong ones k.
                right, wrong = ((k - drop) / (size - 1) for drop in (1, 0))
                squared["known", "leave_one_out"] = means * (right - last) ** 2 + (1 - means) * (wrong - last) ** 2
            for variant, settings in VARIANTS.items():
                squared["online", variant] = (ebpo_baseline(means, history, settings) - last) ** 2
            for (moments, name), errors in squared.items():
                labels = {"prior": prior.name, "group_size": size, "estimator": name, "moments": moments}
                rows.append(row(analytic[name], errors.mean(1), **labels))
    return pd.DataFrame(rows)


def first_order_excess(prior: PassRates, size: int, groups: float) -> float:
    """Excess MSE of `ebpo_debiased` over the optimum after `groups` independent groups (update=after), to order 1/n.

    (sigma2/G + tau2) Var(S) + S^2 Var(mu_glob): the MSE is flat at its minimum, so that only variances count. S is a
    function of the sample means of m and m^2 (m: group mean), whose covariance quadrature gives; delta method.
    NaN where tau2 is 0, since the clamp at 0 has no derivative, and for groups of one.
    """
    if size == 1 or prior.tau2 < 1e-12:
        return float("nan")
    shares = np.arange(size + 1) / size
    law = stats.binom.pmf(np.arange(size + 1)[:, None], size, prior.theta[None, :]) @ prior.weight
    first, second, third, fourth = (float(law @ shares**power) for power in (1, 2, 3, 4))
    covariance = np.array([[second - first**2, third - first * second], [third - first * second, fourth - second**2]])

    def shrinkage(mean: float, square: float) -> float:
        sigma2 = (mean - square) * size / (size - 1)
        return optimal_shrinkage(sigma2, square - mean**2 - sigma2 / size, size)

    step = 1e-6
    slope = np.array(
        [
            (shrinkage(first + step, second) - shrinkage(first - step, second)) / (2 * step),
            (shrinkage(first, second + step) - shrinkage(first, second - step)) / (2 * step),
        ]
    )
    spread = prior.sigma2 / size + prior.tau2
    best = optimal_shrinkage(prior.sigma2, prior.tau2, size)
    return float((spread * (slope @ covariance @ slope) + best**2 * spread) / groups)


def simulate_convergence(
    replications: int, steps: int, prompts: int, size: int, seed: int, priors: Sequence[PassRates] = PRIORS
) -> pd.DataFrame:
    """How soon the online prior is as good as one learned from all data: excess MSE along a history.

    Returns:
        Rows of prior, estimator, update (`before`, `after`), step, groups (seen by the statistics), limit (MSE after an
        endless history), and the columns of `row` for MSE(online) - MSE(endless history), paired on the same rewards.
        Analytic is `first_order_excess`, for `ebpo_debiased` and `after`; NaN otherwise.
    """
    recorded = sorted({round(step) for step in np.geomspace(1, steps, 14)})
    rows = []
    for prior in priors:
        rng = generator(seed, "convergence", prior.name)
        theta = prior.draw(rng, (replications, steps, prompts))
        means = rng.binomial(size, theta) / size
        history = History.empty(size, (replications, 1))
        limit = analytic_mse(prior, size)
        for step in range(1, steps + 1):
            old, history = history, history.updated(means[:, step - 1])
            if step not in recorded:
                continue
            now, truth = means[:, step - 1], theta[:, step - 1]
            for variant in ("ebpo", "ebpo_debiased"):
                weight = limiting_shrinkage(variant, prior.sigma2, prior.tau2, size)
                endless = ((1 - weight) * now + weight * prior.mean - truth) ** 2
                for update, used in (("before", history), ("after", old)):
                    groups = float(used.groups[0, 0])
                    if groups == 0:
                        continue
                    excess = ((ebpo_baseline(now, used, VARIANTS[variant]) - truth) ** 2 - endless).mean(1)
                    known = variant == "ebpo_debiased" and update == "after"
                    labels = {
                        "prior": prior.name, "estimator": variant, "update": update, "step": step,
                        "groups": groups, "limit": limit[variant],
                    }  # fmt: skip
                    rows.append(row(first_order_excess(prior, size, groups) if known else np.nan, excess, **labels))
    return pd.DataFrame(rows)


def search_counter_examples(sizes: Sequence[int] = GROUP_SIZES[1:]) -> pd.DataFrame:
    """All Beta(a, b) of a grid on which Algorithm 1, with perfect moments, has a larger MSE than the group mean.

    Returns:
        Rows of a, b, group_size, ratio (MSE of EBPO over MSE of GRPO, above 1), tau2_over_sigma2; worst first.
    """
    grid = np.round(np.geomspace(0.02, 20, 31), 3)
    rows = []
    for a in grid:
        for b in grid:
            mean = a / (a + b)
            tau2 = mean * (1 - mean) / (a + b + 1)
            sigma2 = mean * (1 - mean) - tau2
            for size in sizes:
                shrinkage = limiting_shrinkage("ebpo", sigma2, tau2, size)
                ratio = linear_mse(shrinkage, sigma2, tau2, size) / (sigma2 / size)
                if ratio > 1:
                    rows.append({"a": a, "b": b, "group_size": size, "ratio": ratio, "tau2_over_sigma2": tau2 / sigma2})
    return pd.DataFrame(rows).sort_values("ratio", ascending=False, ignore_index=True)


def simulate_short_history(replications: int, seed: int) -> pd.DataFrame:
    """MSE relative to GRPO's in the first batches of a run, paired on the same rewards.

    A tiny history is a second way for "strictly lower" to fail: update=after scores the second batch with the moments
    of the first. Rows of prior, prompts (M), step, update, estimator; simulated is the mean of MSE(EBPO) - MSE(GRPO)
    over replications, so a positive lower end is a counter-example. No closed form (analytic is NaN).
    """
    size, rows = 4, []
    for prior in (beta(4, 4, "unimodal"), beta(0.5, 0.5, "u_shaped"), beta(0.1, 0.1, "polarised")):
        for prompts in (1, 2, 4, 16):
            rng = generator(seed, "short_history", prior.name, prompts)
            theta = prior.draw(rng, (replications, 4, prompts))
            means = rng.binomial(size, theta) / size
            history = History.empty(size, (replications, 1))
            for step in range(1, 5):
                now, truth = means[:, step - 1], theta[:, step - 1]
                old, history = history, history.updated(now)
                plain = ((now - truth) ** 2).mean(1)
                for variant in ("ebpo", "ebpo_debiased"):
                    for update, used in (("before", history), ("after", old)):
                        difference = ((ebpo_baseline(now, used, VARIANTS[variant]) - truth) ** 2).mean(1) - plain
                        labels = {
                            "prior": prior.name, "prompts": prompts, "step": step, "estimator": variant,
                            "update": update, "grpo": prior.sigma2 / size,
                        }  # fmt: skip
                        rows.append(row(np.nan, difference, **labels))
    return pd.DataFrame(rows)
