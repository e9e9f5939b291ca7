"""The vectorised estimator against the one that trains, and what the batch normalisation does to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ebpo.algorithms.ebpo import GLOBAL, EBPOState, Prior, ebpo_advantages
from ebpo.algorithms.grpo import grpo_advantages as real_grpo_advantages
from ebpo.algorithms.moments import Moments
from ebpo.algorithms.settings import EBPOSettings
from ebpo.theory.history import History, ebpo_baseline, grpo_advantages, normalised

OPTIONS = [
    EBPOSettings(within=within, between=between, update=update, half_life=half_life, scope=scope)
    for within, between in (("total", "raw"), ("pooled", "raw"), ("pooled", "debiased"), ("total", "debiased"))
    for update, half_life, scope in (("before", None, "global"), ("after", 20.0, "global"), ("before", 20.0, "cluster"))
] + [EBPOSettings(prior="beta_binomial"), EBPOSettings(prior="beta_binomial", half_life=20.0, update="after")]


def label(settings: EBPOSettings) -> str:
    return "-".join(map(str, settings.model_dump(exclude_defaults=True).values())) or "published"


def rewards_of(counts: np.ndarray, size: int) -> torch.Tensor:
    return torch.tensor([[float(i < k) for i in range(size)] for k in counts], dtype=torch.float64).flatten()


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("settings", OPTIONS, ids=label)
def test_the_vectorised_estimator_is_the_one_that_trains(settings, size):
    rng = np.random.default_rng(0)
    prompts, clusters = 6, 3
    state, history = None, History.empty(size, (clusters if settings.scope == "cluster" else 1,))
    for step in range(8):
        theta = rng.beta(1, 2, prompts)
        counts = rng.binomial(size, theta).astype(float)
        if step == 3:
            counts[:] = 0
        topic = rng.integers(clusters, size=prompts)
        members = np.eye(clusters)[topic] if settings.scope == "cluster" else None
        ids = torch.arange(prompts).repeat_interleave(size)
        expected, state, _ = ebpo_advantages(
            rewards_of(counts, size), ids, state, settings=settings, clusters=dict(enumerate(topic.astype(str)))
        )
        old, history = history, history.updated(counts / size, members, settings.half_life)
        used = history if settings.update == "before" else old
        baseline = ebpo_baseline(counts / size, used, settings, members)
        success, failure = normalised(1 - baseline, -baseline, counts, size)
        right = np.arange(size) < counts[:, None]
        advantages = np.where(right, success[:, None], failure[:, None]).flatten()
        np.testing.assert_allclose(advantages, expected.numpy(), atol=1e-9)


def test_replications_do_not_touch_each_other():
    rng = np.random.default_rng(1)
    means = rng.binomial(4, 0.4, (5, 3, 8)) / 4
    together = History.empty(4, (5, 1))
    for step in range(3):
        together = together.updated(means[:, step], half_life=10.0)
    alone = History.empty(4, (1,))
    for step in range(3):
        alone = alone.updated(means[2, step], half_life=10.0)
    np.testing.assert_allclose(together.shrinkage()[2], alone.shrinkage())
    np.testing.assert_allclose(together.mean[2], alone.mean)


def test_grpo_is_the_one_that_trains():
    counts = np.array([0.0, 1.0, 3.0, 4.0])
    success, failure = grpo_advantages(counts, 4)
    expected = real_grpo_advantages(rewards_of(counts, 4), torch.arange(4).repeat_interleave(4), 1e-6)
    right = np.arange(4) < counts[:, None]
    np.testing.assert_allclose(np.where(right, success[:, None], failure[:, None]).flatten(), expected.numpy())


def state_with_mean(mean: float) -> EBPOState:
    """A history with a given mean; all variances stay as they are."""
    return EBPOState(
        {GLOBAL: Prior(Moments(4e6, mean, 8e5), Moments(1e6, mean, 1e5), Moments(3e6, 0, 5e5), Moments(1e6, 0.25, 0))}
    )


def test_the_batch_normalisation_removes_mu_glob():
    # Groups of equal size, one prior: mean(raw) = S (m_batch - mu_glob), so A = (r - (1 - S) m - S m_batch) / std.
    rewards = rewards_of(np.array([0, 1, 2, 4]), 4)
    ids = torch.arange(4).repeat_interleave(4)
    low, high = (ebpo_advantages(rewards, ids, state_with_mean(mean), update="after") for mean in (0.1, 0.9))
    assert high[2]["raw_advantage_all_0_groups"] == pytest.approx(9 * low[2]["raw_advantage_all_0_groups"])
    torch.testing.assert_close(low[0], high[0], rtol=0, atol=1e-12)


def test_mu_glob_stays_where_groups_differ_in_size():
    rewards, ids = torch.tensor([0.0, 0.0, 1.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 1, 1, 1, 1])
    low, high = (ebpo_advantages(rewards, ids, state_with_mean(m), update="after")[0] for m in (0.1, 0.9))
    assert (low - high).abs().max() > 0.05
