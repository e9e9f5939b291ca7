"""A policy that gets better: pass rates drift, and a prior that remembers everything lags behind.

Batches of M groups whose mean pass rate grows by delta a group. With a forgetting factor rho = 2^(-M/h) a batch, the
prior's mean lags by M rho / (1 - rho) groups (the current batch included; about h / ln 2) and keeps a variance of
v/M (1 - rho) / (1 + rho), v being the variance of a group mean. The error delta^2 lag^2 + variance is least near

    h* = (v ln(2)^3 / (4 delta^2))^(1/3) groups.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ebpo.algorithms.settings import EBPOSettings
from ebpo.theory.history import BETA_BINOMIAL, DEBIASED, PUBLISHED, History, ebpo_baseline
from ebpo.theory.montecarlo import Array, estimate, generator, row

CONCENTRATION = 2.0
HALF_LIVES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
_VARIANTS: dict[str, EBPOSettings] = {
    "baseline": PUBLISHED,
    "baseline_debiased": DEBIASED,
    "baseline_beta_binomial": BETA_BINOMIAL,
}


def lag(half_life: float, prompts: int) -> float:
    """Mean age, in groups, of what the prior remembers, in the steady state with update=before."""
    factor: float = 0.5 ** (prompts / half_life)
    return prompts * factor / (1 - factor)


def steady_error(half_life: float, drift: float, variance: float, prompts: int) -> float:
    """Mean squared error of the prior's mean against the current mean pass rate, in the steady state.

    Args:
        half_life: in groups.
        drift: change of the mean pass rate per group.
        variance: v, of a group mean, tau2 + sigma2 / G.
        prompts: M.
    """
    factor: float = 0.5 ** (prompts / half_life)
    noise = variance / prompts * (1 - factor) / (1 + factor)
    return (drift * lag(half_life, prompts)) ** 2 + noise


def tracking_error(half_life: float, means: Array, variances: Array, prompts: int) -> float:
    """The same after a given past, exact: no steady state, no constant drift.

    Args:
        half_life: in groups; infinite for plain Welford.
        means: [t] mean pass rate of each batch, the current one last.
        variances: [t] v of each batch.
        prompts: M.
    """
    ages = np.arange(len(means))[::-1]
    weights = 0.5 ** (prompts / half_life * ages)
    weights = weights / weights.sum()
    return float((weights @ (means - means[-1])) ** 2 + weights**2 @ variances / prompts)


def best_half_life(drift: float, variance: float) -> float:
    """h* in groups, for h well above M; infinite without drift."""
    if drift == 0:
        return float("inf")
    return float((variance * np.log(2) ** 3 / (4 * drift**2)) ** (1 / 3))


def welford_best_at(drift: float, variance: float) -> float:
    """Groups after which plain Welford is at its best, (2 v / delta^2)^(1/3) = 2 h* / ln 2; infinite without drift.

    Its error there is that of h*; from there on it grows with the square of the groups.
    """
    return float("inf") if drift == 0 else float((2 * variance / drift**2) ** (1 / 3))


def _within(means: Array) -> Array:
    """sigma2 of Beta pass rates with these means."""
    return means * (1 - means) * CONCENTRATION / (CONCENTRATION + 1)


def group_mean_variance(means: Array, size: int) -> Array:
    """v = tau2 + sigma2 / G of Beta pass rates with these means and a + b = `CONCENTRATION`."""
    sigma2 = _within(means)
    return means * (1 - means) - sigma2 + sigma2 / size


def late_steps(steps: int) -> NDArray[np.bool_]:
    """[T] the last tenth of a run."""
    return np.arange(steps) >= steps - max(steps // 10, 1)


def late_error(half_life: float, means: Array, size: int, prompts: int) -> float:
    """`tracking_error` averaged over the last tenth of a run with these mean pass rates, [T]."""
    variances = group_mean_variance(means, size)
    ends = np.flatnonzero(late_steps(len(means))) + 1
    return float(np.mean([tracking_error(half_life, means[:end], variances[:end], prompts) for end in ends]))


def means_over_time(total: float, steps: int, start: float) -> Array:
    """[T] mean pass rate of each batch, growing linearly by `total` in all.

    Raises:
        ValueError: it would leave (0, 1).
    """
    if not 0 < start <= start + total < 1:
        raise ValueError(f"a mean that grows from {start} by {total} leaves (0, 1)")
    return start + total * np.arange(steps) / max(steps - 1, 1)


def simulate(
    replications: int, steps: int, prompts: int, size: int, totals: tuple[float, ...], seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tracking error of every half-life under every drift.

    Args:
        replications: independent runs.
        steps: batches of a run.
        prompts: M.
        size: G.
        totals: growth of the mean pass rate over the run, from 0.2; pass rates are Beta with a + b = 2 around it.
        seed: of the simulation.

    Returns:
        errors: total, half_life (inf: plain Welford), quantity (`prior`: squared error of mu_glob in the last tenth of
            the run, analytic exact; `baseline`, `baseline_debiased`, `baseline_beta_binomial`: MSE of V over the run,
            analytic NaN; `grpo`, once per total: MSE of the group mean, exact) and the columns of `row`. The prior's
            mean is the same in every variant of a half-life.
        curves: of the fastest drift: half_life, step, the true mean, and the columns of `estimate` for mu_glob.
    """
    errors, curves = [], []
    for total in totals:
        rng = generator(seed, "drift", str(total))
        mu = means_over_time(total, steps, 0.2)
        a = CONCENTRATION * np.broadcast_to(mu[None, :, None], (replications, steps, prompts))
        theta = rng.beta(a, CONCENTRATION - a)
        means = rng.binomial(size, theta) / size
        late = late_steps(steps)
        for half_life in (*HALF_LIVES, np.inf):
            tracked, squared = _follow(means, theta, size, None if np.isinf(half_life) else float(half_life))
            analytic = late_error(half_life, mu, size, prompts)
            labels = {"total": total, "half_life": half_life}
            prior = ((tracked - mu) ** 2)[:, late].mean(1)
            errors.append(row(analytic, prior, quantity="prior", **labels))
            for quantity, values in squared.items():
                errors.append(row(np.nan, values.mean(1), quantity=quantity, **labels))
            if np.isinf(half_life):
                plain = ((means - theta) ** 2).mean((1, 2))
                errors.append(row(float(_within(mu).mean()) / size, plain, quantity="grpo", **labels))
            if total == max(totals):
                for step in range(steps):
                    line = {"half_life": half_life, "step": step + 1, "truth": float(mu[step])}
                    curves.append({**line, **estimate(tracked[:, step])})
    return pd.DataFrame(errors), pd.DataFrame(curves)


def _follow(means: Array, theta: Array, size: int, half_life: float | None) -> tuple[Array, dict[str, Array]]:
    """mu_glob [R, T], and the MSE of the baseline [R, T] by variant."""
    replications, steps, _ = means.shape
    history = History.empty(size, (replications, 1))
    tracked = np.zeros((replications, steps))
    squared = {name: np.zeros((replications, steps)) for name in _VARIANTS}
    for step in range(steps):
        now, truth = means[:, step], theta[:, step]
        history = history.updated(now, half_life=half_life)
        tracked[:, step] = history.mean[:, 0]
        for name, settings in _VARIANTS.items():
            squared[name][:, step] = ((ebpo_baseline(now, history, settings) - truth) ** 2).mean(1)
    return tracked, squared
