"""T5: a prior per topic, and streams that let a single prior learn one.

Var(theta) = E[Var(theta | topic)] + Var(E[theta | topic]). A prior that knows the topic pays for the first term only.
The paper keeps one prior and orders the data by topic instead. Plain Welford weighs all groups alike: in block b of
equal blocks, a share u into it, its mean is still (b - 1) / (b - 1 + u) of the way back at the earlier blocks' mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ebpo.algorithms.settings import EBPOSettings
from ebpo.theory.baseline_mse import limiting_shrinkage, linear_mse, optimal_shrinkage
from ebpo.theory.history import DEBIASED, PUBLISHED, History, ebpo_baseline
from ebpo.theory.montecarlo import Array, estimate, generator, row

# Nine topics, as in the paper, whose pass rates are Beta with these means and this a + b inside a topic.
TOPIC_MEANS = np.linspace(0.1, 0.9, 9)
CONCENTRATION = 8.0
STREAMS = ("random", "topic", "interleaved")


@dataclass(frozen=True)
class Decomposition:
    """Law of total variance of pass rates over equally likely topics."""

    inside: float
    between: float
    total: float


def decompose(means: Array = TOPIC_MEANS, concentration: float = CONCENTRATION) -> Decomposition:
    """E[Var(theta | topic)], Var(E[theta | topic]) and Var(theta), the last from its own second moment."""
    variance = means * (1 - means) / (concentration + 1)
    second = (variance + means**2).mean()
    return Decomposition(float(variance.mean()), float(means.var()), float(second - means.mean() ** 2))


def optimal_mse(size: int, means: Array = TOPIC_MEANS, concentration: float = CONCENTRATION) -> dict[str, float]:
    """MSE of the group mean, and of optimal shrinkage towards one prior (`global`) and one per topic (`cluster`)."""
    tau2 = means * (1 - means) / (concentration + 1)
    sigma2 = means * (1 - means) - tau2
    whole = decompose(means, concentration)
    shared = optimal_shrinkage(float(sigma2.mean()), whole.total, size)
    own = [
        linear_mse(optimal_shrinkage(float(s), float(t), size), float(s), float(t), size)
        for s, t in zip(sigma2, tau2, strict=True)
    ]
    return {
        "grpo": float(sigma2.mean()) / size,
        "global": linear_mse(shared, float(sigma2.mean()), whole.total, size),
        "cluster": float(np.mean(own)),
    }


def lag_share(block: int, into: float) -> float:
    """Weight of the earlier blocks in plain Welford's mean, (b - 1) / (b - 1 + u).

    Args:
        block: b, from 1.
        into: u in (0, 1], the share of block b already seen.
    """
    return (block - 1) / (block - 1 + into)


def topics_of(stream: str, steps: int, prompts: int, replications: int, rng: np.random.Generator) -> np.ndarray:
    """[R, T, M] topic of every prompt: drawn anew in each replication.

    `random`: independent; `topic`: block after block, the topics' order drawn; `interleaved`: every topic in turn.

    Raises:
        ValueError: the stream is unknown, or the steps are no multiple of the number of topics.
    """
    topics = len(TOPIC_MEANS)
    if stream not in STREAMS:
        raise ValueError(f"stream {stream!r} is not known; allowed: {', '.join(STREAMS)}")
    if steps % topics:
        raise ValueError(f"steps {steps} must be a multiple of the {topics} topics")
    if stream == "random":
        return rng.integers(topics, size=(replications, steps, prompts))
    orders = rng.permuted(np.tile(np.arange(topics), (replications, 1)), axis=1)
    if stream == "topic":
        return np.repeat(orders, steps // topics, axis=1)[:, :, None] + np.zeros(prompts, dtype=np.int64)
    turn = np.arange(steps * prompts).reshape(steps, prompts) % topics
    return orders[:, turn]


def variants(half_life: float) -> dict[str, EBPOSettings]:
    """Priors of the comparison; `ebpo` is Algorithm 1."""
    return {
        "ebpo": PUBLISHED,
        "ebpo_debiased": DEBIASED,
        "half_life": PUBLISHED.model_copy(update={"half_life": half_life}),
        "half_life_debiased": DEBIASED.model_copy(update={"half_life": half_life}),
        "cluster": PUBLISHED.model_copy(update={"scope": "cluster"}),
        "cluster_debiased": DEBIASED.model_copy(update={"scope": "cluster"}),
    }


def simulate(
    replications: int, steps: int, prompts: int, size: int, half_life: float, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Error of the prior and of the baseline over time, on three streams, scored as Algorithm 1 does (update=before).

    Args:
        replications: independent streams, topics' order included.
        steps: batches; a multiple of nine.
        prompts: M of a batch.
        size: G.
        half_life: of the forgetting variants, in groups.
        seed: of the simulation.

    Returns:
        curves: stream, estimator, step and the columns of `estimate` for the prior's error, the root mean square over
            the batch of (mu_glob - mean pass rate of the prompt's topic).
        summary: stream, estimator, quantity (`mse`: E[(V - theta)^2], `effective_mse`: the same for the baseline that
            the batch normalisation leaves, V + mean(raw), `prior_error`), the run's average, and the columns of `row`.
            `analytic` of `mse` is the optimum of a global or a cluster prior; NaN otherwise.
    """
    optimum = optimal_mse(size)
    curves, summary = [], []
    eye = np.eye(len(TOPIC_MEANS))
    for stream in STREAMS:
        rng = generator(seed, "clustering", stream)
        topics = topics_of(stream, steps, prompts, replications, rng)
        mu = TOPIC_MEANS[topics]
        theta = rng.beta(CONCENTRATION * mu, CONCENTRATION * (1 - mu))
        means = rng.binomial(size, theta) / size
        summary.append(_line(stream, "grpo", "mse", optimum["grpo"], ((means - theta) ** 2).mean((1, 2))))
        for name, settings in variants(half_life).items():
            clusters = settings.scope == "cluster"
            history = History.empty(size, (replications, len(TOPIC_MEANS) if clusters else 1))
            squared, effective, error = (np.zeros((replications, steps)) for _ in range(3))
            for step in range(steps):
                members = eye[topics[:, step]] if clusters else None
                now, truth = means[:, step], theta[:, step]
                history = history.updated(now, members, settings.half_life)
                baseline = ebpo_baseline(now, history, settings, members)
                prior = history.mean if members is None else np.einsum("rmc,rc->rm", members, history.mean)
                squared[:, step] = ((baseline - truth) ** 2).mean(1)
                centre = (now - baseline).mean(1, keepdims=True)
                effective[:, step] = ((baseline + centre - truth) ** 2).mean(1)
                error[:, step] = np.sqrt(((prior - mu[:, step]) ** 2).mean(1))
            for step in range(steps):
                labels = {"stream": stream, "estimator": name, "step": step + 1}
                curves.append({**labels, **estimate(error[:, step])})
            best = optimum["cluster" if clusters else "global"]
            summary.append(_line(stream, name, "mse", best, squared.mean(1)))
            summary.append(_line(stream, name, "effective_mse", np.nan, effective.mean(1)))
            summary.append(_line(stream, name, "prior_error", np.nan, error.mean(1)))
    return pd.DataFrame(curves), pd.DataFrame(summary)


def _line(stream: str, estimator: str, quantity: str, analytic: float, values: Array) -> dict[str, object]:
    return row(analytic, values, stream=stream, estimator=estimator, quantity=quantity)


def simulate_known_priors(replications: int, prompts: int, size: int, seed: int) -> pd.DataFrame:
    """T5 with known moments: the MSE of one prior and of one per topic, where the closed form is exact.

    Returns:
        Rows of quantity (`inside`, `between`, `total` variance; `grpo`, `global`, `cluster` MSE) and the columns of
        `row`. The variances are unbiased estimates from the prompts of a replication.
    """
    rng = generator(seed, "known_priors")
    per_topic = prompts // len(TOPIC_MEANS)
    mu = TOPIC_MEANS[:, None]
    theta = rng.beta(CONCENTRATION * mu, CONCENTRATION * (1 - mu), (replications, len(TOPIC_MEANS), per_topic))
    means = rng.binomial(size, theta) / size
    parts, optimum = decompose(), optimal_mse(size)
    tau2 = TOPIC_MEANS * (1 - TOPIC_MEANS) / (CONCENTRATION + 1)
    sigma2 = TOPIC_MEANS * (1 - TOPIC_MEANS) - tau2
    own = np.array([optimal_shrinkage(s, t, size) for s, t in zip(sigma2.tolist(), tau2.tolist(), strict=True)])
    shared = optimal_shrinkage(float(sigma2.mean()), parts.total, size)
    inside = theta.var(2, ddof=1).mean(1)
    # The spread of topic averages holds a share 1/n of the variance inside.
    between = theta.mean(2).var(1) - inside / per_topic * (1 - 1 / len(TOPIC_MEANS))
    squared = {
        "grpo": means - theta,
        "global": (1 - shared) * means + shared * TOPIC_MEANS.mean() - theta,
        "cluster": (1 - own[:, None]) * means + (own * TOPIC_MEANS)[:, None] - theta,
    }
    values = {
        "inside": (parts.inside, inside),
        "between": (parts.between, between),
        "total": (parts.total, inside + between),
        **{name: (optimum[name], (errors**2).mean((1, 2))) for name, errors in squared.items()},
    }
    return pd.DataFrame([row(analytic, sample, quantity=name) for name, (analytic, sample) in values.items()])


def by_topic(replications: int, prompts: int, size: int, seed: int) -> pd.DataFrame:
    """A counter-example by heterogeneity: the published prior over all topics, scored topic by topic.

    Args:
        replications: independent samples.
        prompts: of each topic.
        size: G.
        seed: of the simulation.

    Returns:
        Rows of topic_mean, estimator (`grpo`, `ebpo`) and the columns of `row` for the MSE inside the topic; mu_glob
        and S are the limits of a random stream over all topics, and analytic is exact.
    """
    parts = decompose()
    overall = float(TOPIC_MEANS.mean())
    shrinkage = limiting_shrinkage("ebpo", overall * (1 - overall) - parts.total, parts.total, size)
    rows = []
    for mean in TOPIC_MEANS.tolist():
        rng = generator(seed, "by_topic", f"{mean:.3f}")
        theta = rng.beta(CONCENTRATION * mean, CONCENTRATION * (1 - mean), (replications, prompts))
        means = rng.binomial(size, theta) / size
        tau2 = mean * (1 - mean) / (CONCENTRATION + 1)
        sigma2 = mean * (1 - mean) - tau2
        for name, weight in (("grpo", 0.0), ("ebpo", shrinkage)):
            errors = ((1 - weight) * means + weight * overall - theta) ** 2
            analytic = linear_mse(weight, sigma2, tau2, size, overall - mean)
            rows.append(row(analytic, errors.mean(1), topic_mean=mean, estimator=name))
    return pd.DataFrame(rows)
