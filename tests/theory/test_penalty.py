"""T1 and T3: closed forms of the penalty, before and after the batch normalisation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ebpo.algorithms.ebpo import ebpo_advantages
from ebpo.theory.history import History, ebpo_baseline, normalised
from ebpo.theory.penalty import (
    MEANS,
    family,
    normalised_penalty,
    raw_penalty,
    raw_variance,
    saturated_advantage,
    saturated_batches,
    simulate,
)
from ebpo.theory.priors import beta


def moments(name: str, mean: float) -> tuple[float, float, float]:
    prior = beta(*family(name, mean))
    return prior.mean, prior.sigma2, prior.tau2


def test_the_raw_penalty_is_linear_where_a_plus_b_is_constant():
    # tau2 / sigma2 = 1/2 at every mean, so S = (3/2) / (2 + 5/2) = 1/3.
    for mean in MEANS:
        assert raw_penalty(*moments("fixed_concentration", mean), 4) == pytest.approx(-mean / 3)


def test_the_raw_penalty_is_not_monotone_where_tau2_is_constant():
    at = {mean: raw_penalty(*moments("fixed_tau2", mean), 4) for mean in (0.5, 0.9, 0.95)}
    assert at[0.9] < at[0.5] < 0
    assert at[0.95] > at[0.9]


def test_penalty_is_negative_once_anything_succeeded():
    for mean in MEANS:
        for name in ("fixed_concentration", "fixed_tau2"):
            assert raw_penalty(*moments(name, mean), 4) < 0
            assert normalised_penalty(*moments(name, mean), 4) < 0


def test_variance_of_the_raw_advantages():
    rng = np.random.default_rng(0)
    prior, size, shrinkage = beta(1, 2), 4, 0.3
    theta = prior.draw(rng, (400_000,))
    rewards = rng.random((400_000, size)) < theta[:, None]
    means = rewards.mean(1)
    raw = rewards - ((1 - shrinkage) * means + shrinkage * prior.mean)[:, None]
    assert raw.var() == pytest.approx(raw_variance(shrinkage, prior.sigma2, prior.tau2, size), rel=5e-3)


def test_in_a_saturated_batch_the_shrinkage_cancels():
    counts = np.array([4.0, 0.0, 0.0, 0.0])
    advantages = []
    for sigma2, tau2 in ((0.2, 0.01), (0.05, 0.2)):
        history = History.of_moments(4, 1e9, 0.4, sigma2, tau2)
        baseline = ebpo_baseline(counts / 4, history)
        success, failure = normalised(1 - baseline, -baseline, counts, 4, epsilon=0.0)
        advantages.append((success[0], failure[1]))
    np.testing.assert_allclose(advantages[0], advantages[1])
    assert advantages[0][1] == pytest.approx(saturated_advantage(0.25, 16))


def test_saturated_batches_of_the_trained_estimator():
    _, state, _ = ebpo_advantages(torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64), torch.tensor([0, 0, 1, 1]))
    ids = torch.arange(4).repeat_interleave(4)
    rewards = torch.tensor([1.0] * 4 + [0.0] * 12, dtype=torch.float64)
    advantages, _, _ = ebpo_advantages(rewards, ids, state)
    assert advantages[-1].item() == pytest.approx(saturated_advantage(0.25, 16), rel=1e-4)


def test_batches_that_are_saturated_alike_get_nothing_after_the_normalisation():
    frame = saturated_batches(0.5, 8, 4)
    alike = frame[frame.share.isin([0.0, 1.0])]
    assert (alike.normalised == 0).all()
    assert (alike.raw.abs() > 0.1).all()
    assert (frame.grpo == 0).all()
    np.testing.assert_allclose(frame.normalised, frame.analytic, rtol=1e-4)


def test_simulation_meets_the_closed_form():
    frame = simulate(20, 2048, 2048, 4, seed=3)
    assert ((frame.simulated - frame.analytic).abs() <= 4.5 * frame.standard_error + 2e-3 * frame.analytic.abs()).all()
    assert (frame[frame.quantity == "grpo"].simulated == 0).all()


def test_families_name_what_is_allowed():
    with pytest.raises(ValueError, match="allowed: 'fixed_concentration', 'fixed_tau2'"):
        family("linear", 0.5)
    with pytest.raises(ValueError, match=r"mean 0\.001"):
        family("fixed_tau2", 0.001)
