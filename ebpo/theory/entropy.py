"""T4: what an update costs in entropy, under GRPO and EBPO, on softmax bandits.

To first order a policy-gradient step of size eta changes the entropy of prompt q by -eta rho_q C_q in expectation, with
C_q = Cov_pi(log pi, pi (r - theta_q)) and rho_q = `expected_weight`. T4 replaces rho_q by 1/sigma_q for GRPO, by
1/sigma_batch for EBPO, takes 1/sigma and C as independent, and compares E[1/sigma_q] with 1/sigma_batch. Here the three
steps are checked one by one. With binary rewards C_q is small where sigma_q is, so they are not independent.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from scipy import special

from ebpo.algorithms.entropy_mech import token_count
from ebpo.algorithms.settings import EntropyMechSettings
from ebpo.theory.bandits import (
    Advantages,
    Bandits,
    entropy_change,
    expected_square,
    expected_weight,
    group_step,
    make_bandits,
)
from ebpo.theory.baseline_mse import limiting_shrinkage
from ebpo.theory.gradient import mean_baseline
from ebpo.theory.history import History, ebpo_baseline, grpo_advantages, normalised
from ebpo.theory.montecarlo import Array, estimate, generator, row
from ebpo.theory.penalty import raw_variance
from ebpo.theory.priors import PRIORS, beta

ALGORITHMS = ("grpo", "dr_grpo", "dapo", "entropy_mech", "ebpo")
# Pass rates of exactly 0 or 1 are no softmax policy's.
_EDGE = 1e-6


def ebpo_limit(theta: Array, size: int) -> tuple[Advantages, float]:
    """EBPO's advantage in a large batch after a long history, which a group's own successes decide, and sigma_batch.

    Args:
        theta: [M] pass rates of the prompts.
        size: G.
    """
    mu, sigma2, tau2 = float(theta.mean()), float((theta * (1 - theta)).mean()), float(theta.var())
    shrinkage = limiting_shrinkage("ebpo", sigma2, tau2, size)
    std = float(np.sqrt(raw_variance(shrinkage, sigma2, tau2, size)))
    return partial(_shrunk, shrinkage=shrinkage, mu=mu, std=std), std


def _shrunk(counts: Array, size: int, shrinkage: float, mu: float, std: float) -> tuple[Array, Array]:
    baseline = (1 - shrinkage) * counts / size + shrinkage * mu
    return (1 - baseline) / std, -baseline / std


def grpo_weight_limit(size: int) -> float:
    """(G - 1) / sqrt(G): rho of GRPO as theta tends to 0 or 1, where 1/sigma_q grows without bound. Needs G >= 2."""
    return float((size - 1) / np.sqrt(size))


def least_ebpo_weight(size: int) -> float:
    """2 sqrt(1 - 1/G), below which rho of EBPO cannot fall, whatever S and the pass rates (large batch, long history).

    rho = (1 - (1 - S)/G) / sigma_batch. sigma2 + tau2 <= 1/4 gives sigma_batch^2 <= (1 - 1/G + S^2/G) / 4, and the
    quotient grows with S. For G <= 5 this is at least GRPO's largest rho: at the same learning rate EBPO then takes the
    longer expected step on every prompt.
    """
    return float(2 * np.sqrt(1 - 1 / size))


def weight_curves(sizes: tuple[int, ...]) -> pd.DataFrame:
    """rho(theta) of GRPO, 1/sigma_q, and rho of EBPO on uniform pass rates.

    Rows of group_size, theta, grpo, inverse_sigma, ebpo.
    """
    theta = np.linspace(0.005, 0.995, 199)
    uniform = (np.arange(2000) + 0.5) / 2000
    frames = []
    for size in sizes:
        limit, _ = ebpo_limit(uniform, size)
        values = {
            "grpo": expected_weight(theta, size, grpo_advantages),
            "inverse_sigma": 1 / np.sqrt(theta * (1 - theta)),
            "ebpo": expected_weight(theta, size, limit),
        }
        frames.append(pd.DataFrame({"group_size": size, "theta": theta, **values}))
    return pd.concat(frames, ignore_index=True)


def batch_std_exceeds(shrinkage: float, sigma2: float, tau2: float, size: int) -> bool:
    """Whether sigma_batch >= sqrt(E[sigma_q^2]) with the n - 1 standard deviation inside groups.

    sigma_batch^2 - sigma2 = S^2 (tau2 + sigma2/G) - sigma2/G, so exactly if S^2 >= S*: never at S = S* < 1.
    """
    return raw_variance(shrinkage, sigma2, tau2, size) >= sigma2


def one_step(replications: int, prompts: int, sizes: tuple[int, ...], seed: int) -> pd.DataFrame:
    """Expected entropy change of one update, per unit of learning rate and per unit of update norm.

    Args:
        replications: independent batches.
        prompts: bandits of a batch, with 16 arms of which 4 are right; pass rates are drawn from each prior.
        sizes: G.
        seed: of the simulation.

    Returns:
        Rows of prior, group_size, algorithm (`grpo`, `ebpo`), matching (`step_size`, `update_norm`) and the columns of
        `row` for the mean change of entropy per prompt (nats). Analytic is exact for GRPO per learning rate, and the
        limit of large batches otherwise.
    """
    rows = []
    for prior in PRIORS:
        for size in sizes:
            rng = generator(seed, "entropy", prior.name, size)
            theta = np.clip(prior.draw(rng, (prompts,)), _EDGE, 1 - _EDGE)
            bandits = make_bandits(theta, 16, 4, rng)
            limit, _ = ebpo_limit(theta, size)
            history = History.of_moments(
                size, 1e6, float(theta.mean()), float((theta * (1 - theta)).mean()), float(theta.var())
            )
            drawn = bandits.sample(rng, size, (replications,))
            counts = (drawn * bandits.correct).sum(-1)
            baseline = ebpo_baseline(counts / size, history)
            for name, advantages, (success, failure) in (
                ("grpo", grpo_advantages, grpo_advantages(counts, size)),
                ("ebpo", limit, normalised(1 - baseline, -baseline, counts, size)),
            ):
                step = group_step(drawn, bandits, size, success, failure)
                change = entropy_change(bandits.probability, step).mean(1)
                norm = np.sqrt((step**2).sum((1, 2)) / prompts)
                analytic = -float((expected_weight(theta, size, advantages) * bandits.covariance).mean())
                root = float(np.sqrt(expected_square(bandits, size, advantages).mean()))
                labels = {"prior": prior.name, "group_size": size, "algorithm": name}
                rows.append(row(analytic, change, matching="step_size", **labels))
                rows.append(row(analytic / root, change / norm, matching="update_norm", **labels))
    return pd.DataFrame(rows)


def premises(prompts: int, sizes: tuple[int, ...], seed: int) -> pd.DataFrame:
    """The three steps of T4 one by one, exact given the prompts.

    Returns:
        Rows of prior, group_size with
        inverse_sigma: E[1/sigma_q] (theta in [1e-6, 1 - 1e-6]), grpo_weight: E[rho_q], ebpo_weight: rho of EBPO,
        sigma_batch, root_mean_sigma2: sqrt(E[sigma_q^2]), mean_sigma: E[sigma_q],
        claimed: (1/sigma_batch) / E[1/sigma_q], T4's bound on EBPO's decay over GRPO's,
        independent: ebpo_weight / E[rho_q], the same with the weights that samples give,
        actual: E[rho C] of EBPO over GRPO's, correlation: of rho_GRPO and C, cost: E[C] (negative where progress on
        mostly failing prompts raises the entropy, so that there is no decay to bound).
    """
    rows = []
    for prior in PRIORS:
        for size in sizes:
            rng = generator(seed, "premises", prior.name)
            theta = np.clip(prior.draw(rng, (prompts,)), _EDGE, 1 - _EDGE)
            bandits = make_bandits(theta, 16, 4, rng)
            limit, batch = ebpo_limit(theta, size)
            grpo, ebpo = (expected_weight(theta, size, a) for a in (grpo_advantages, limit))
            sigma, cost = np.sqrt(theta * (1 - theta)), bandits.covariance
            inverse = float((1 / sigma).mean())
            varies = float(grpo.std()) > 1e-9
            rows.append(
                {
                    "prior": prior.name,
                    "group_size": size,
                    "inverse_sigma": inverse,
                    "grpo_weight": float(grpo.mean()),
                    "ebpo_weight": float(ebpo.mean()),
                    "sigma_batch": batch,
                    "root_mean_sigma2": float(np.sqrt((sigma**2).mean())),
                    "mean_sigma": float(sigma.mean()),
                    "claimed": 1 / batch / inverse,
                    "independent": float(ebpo.mean() / grpo.mean()),
                    "actual": float((ebpo * cost).mean() / (grpo * cost).mean()),
                    "cost": float(cost.mean()),
                    "correlation": float(np.corrcoef(grpo, cost)[0, 1]) if varies else 0.0,
                }
            )
    return pd.DataFrame(rows)


def _clip_cov(
    drawn: Array, bandits: Bandits, success: Array, failure: Array, rng: np.random.Generator, size: int
) -> Array:
    """Arm counts without the completions that Clip-Cov detaches, drawn from those with a covariance in its range."""
    settings = EntropyMechSettings()
    advantages = np.where(bandits.correct, success[..., None], failure[..., None])
    logp = np.log(bandits.probability)
    total = drawn.sum((1, 2), keepdims=True)
    mean_advantage, mean_logp = ((drawn * values).sum((1, 2), keepdims=True) / total for values in (advantages, logp))
    cov = (advantages - mean_advantage) * (logp - mean_logp)
    left = drawn.copy()
    for _ in range(token_count(settings.clip_cov_fraction, drawn.shape[1] * size)):
        eligible = left * ((cov > settings.clip_cov_low) & (cov < settings.clip_cov_high))
        # The smallest of n exponential times wins with probability proportional to n.
        times = np.where(eligible > 0, rng.exponential(size=left.shape) / np.maximum(eligible, 1), np.inf)
        flat = times.reshape(len(left), -1)
        chosen = flat.argmin(1)
        found = np.isfinite(flat.min(1))
        left.reshape(len(left), -1)[np.flatnonzero(found), chosen[found]] -= 1
    return left


def train(replications: int, steps: int, prompts: int, size: int, rate: float, norm: float, seed: int) -> pd.DataFrame:
    """Entropy and pass rate of bandits trained by each algorithm, on-policy, one update a batch.

    Every step samples every prompt. With one update a batch the ratio is 1 and no ratio clip acts. DAPO's mean runs
    over its non-saturated groups (one round, no refill). KL-Cov is left out: its penalty has no gradient at a ratio
    of 1.

    Args:
        replications: independent runs from the same policies.
        steps: updates.
        prompts: bandits of 16 arms, 4 of them right; pass rates start from Beta(1, 2).
        size: G.
        rate: learning rate on the logits of a prompt, when step sizes are matched.
        norm: root mean square over prompts of a step's norm, when update norms are matched.
        seed: of the simulation.

    Returns:
        Rows of algorithm, matching, step, quantity (`entropy`, `pass_rate`, and for grpo and ebpo `first_order`, the
        entropy by summed first-order changes, and `bound`, T4's prediction with the same factor on the update), and the
        columns of `estimate`. No closed form is known for a whole run.
    """
    start = generator(seed, "train")
    theta = np.clip(beta(1, 2).draw(start, (prompts,)), 0.01, 0.99)
    first = make_bandits(theta, 16, 4, start)
    recorded = set(np.unique(np.linspace(0, steps, 41).round().astype(int)).tolist())
    rows = []
    for matching in ("step_size", "update_norm"):
        for algorithm in ALGORITHMS:
            rng = generator(seed, "train", algorithm, matching)
            logits = np.broadcast_to(np.log(first.probability), (replications, *first.probability.shape)).copy()
            history = History.empty(size, (replications, 1))
            follow = algorithm in ("grpo", "ebpo")
            traces = {name: first.entropy.mean() + np.zeros(replications) for name in ("first_order", "bound")}
            for step in range(steps + 1):
                bandits = replace(first, probability=special.softmax(logits, axis=-1))
                if step in recorded:
                    values = {"entropy": bandits.entropy.mean(1), "pass_rate": bandits.theta.mean(1)}
                    for quantity, sample in {**values, **(traces if follow else {})}.items():
                        rows.append(
                            {
                                "algorithm": algorithm, "matching": matching, "step": step, "quantity": quantity,
                                **estimate(sample),
                            }
                        )  # fmt: skip
                drawn = bandits.sample(rng, size)
                counts = (drawn * bandits.correct).sum(-1)
                if algorithm == "ebpo":
                    history = history.updated(counts / size)
                    baseline = ebpo_baseline(counts / size, history)
                    success, failure = normalised(1 - baseline, -baseline, counts, size)
                elif algorithm == "dr_grpo":
                    success, failure = mean_baseline(counts, size)
                else:
                    success, failure = grpo_advantages(counts, size)
                kept = drawn
                if algorithm == "entropy_mech":
                    kept = _clip_cov(drawn, bandits, success, failure, rng, size)
                update = group_step(kept, bandits, size, success, failure)
                if algorithm == "dapo":
                    mixed = ((counts > 0) & (counts < size)).sum(1)
                    update *= (prompts / np.maximum(mixed, 1))[:, None, None]
                factor = np.full(replications, rate)
                if matching == "update_norm":
                    length = np.sqrt((update**2).sum((1, 2)) / prompts)
                    factor = np.where(length > 0, norm / np.where(length > 0, length, 1), 0)
                update = update * factor[:, None, None]
                if follow:
                    traces["first_order"] = traces["first_order"] + entropy_change(bandits.probability, update).mean(1)
                    used = baseline if algorithm == "ebpo" else None
                    inverse = _inverse_scale(bandits, used, counts, size)
                    traces["bound"] = traces["bound"] - factor * inverse * bandits.covariance.mean(1)
                logits = logits + update
    return pd.DataFrame(rows)


def _inverse_scale(bandits: Bandits, baseline: Array | None, counts: Array, size: int) -> Array:
    """[R] T4's factor: E[1/sigma_q] for GRPO (no baseline is given), 1/sigma_batch for EBPO, 0 without variance."""
    if baseline is None:
        theta = np.clip(bandits.theta, _EDGE, 1 - _EDGE)
        return np.asarray((1 / np.sqrt(theta * (1 - theta))).mean(1))
    mean = (counts / size - baseline).mean(1, keepdims=True)
    squares = counts * (1 - baseline - mean) ** 2 + (size - counts) * (baseline + mean) ** 2
    std = np.sqrt(squares.sum(1) / (counts.shape[1] * size - 1))
    # A batch of equal raw advantages has advantages of 0.
    return np.where(std > 1e-12, 1 / np.where(std > 1e-12, std, 1.0), 0.0)
