"""Exact bias and variance of the policy gradient, against brute force over completions and the trained estimator."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import torch

from ebpo.algorithms.ebpo import ebpo_advantages as trained_advantages
from ebpo.algorithms.settings import EBPOSettings
from ebpo.theory.bandits import exact_gradient, make_bandits
from ebpo.theory.gradient import (
    bias_along_history,
    ebpo_advantages,
    estimators,
    exact,
    fixed_baseline,
    history_of,
    least_variance_baseline,
    leave_one_out,
    mean_baseline,
    policies,
    simulate,
)
from ebpo.theory.history import History, grpo_advantages


def test_enumeration_of_every_completion_with_the_trained_estimator():
    # Two prompts, three arms, G = 2: 3^4 batches, each scored by the estimator that trains, from an empty history.
    bandits = make_bandits(np.array([0.3, 0.8]), 3, 1, np.random.default_rng(0))
    size, ids = 2, torch.tensor([0, 0, 1, 1])
    mean, square = np.zeros((2, 3)), 0.0
    for arms in itertools.product(range(3), repeat=4):
        chance = np.prod([bandits.probability[i // 2, arm] for i, arm in enumerate(arms)])
        rewards = torch.tensor([float(bandits.correct[i // 2, arm]) for i, arm in enumerate(arms)], dtype=torch.float64)
        advantages, _, _ = trained_advantages(rewards, ids)
        estimate = np.zeros((2, 3))
        for i, arm in enumerate(arms):
            estimate[i // 2] += advantages[i].item() * (np.eye(3)[arm] - bandits.probability[i // 2]) / 4
        mean += chance * estimate
        square += chance * (estimate**2).sum()
    advantages = partial(ebpo_advantages, history=History.empty(size, (1,)), settings=EBPOSettings(), normalise=True)
    moments = exact_gradient(bandits, size, advantages)
    np.testing.assert_allclose(moments.mean, mean, atol=1e-12)
    assert moments.variance == pytest.approx(square - (mean**2).sum())


@pytest.mark.parametrize("baseline", [0.0, 0.4, 1.0])
def test_a_fixed_baseline_has_no_bias(baseline):
    for bandits in policies(0).values():
        moments = exact_gradient(bandits, 2, partial(fixed_baseline, baseline=np.full(4, baseline)))
        np.testing.assert_allclose(moments.mean, bandits.gradient / 4, atol=1e-14)


def test_leaving_one_out_is_the_group_mean_rescaled():
    counts = np.arange(5.0)
    for mean, other in zip(mean_baseline(counts, 4), leave_one_out(counts, 4), strict=True):
        np.testing.assert_allclose(other, mean * 4 / 3)


def test_group_mean_shortens_the_gradient_and_does_not_turn_it():
    bandits = policies(0)["64 arms"]
    np.testing.assert_allclose(exact_gradient(bandits, 4, mean_baseline).mean, 0.75 * bandits.gradient / 4, atol=1e-14)


def test_raw_ebpo_with_a_fixed_prior_shortens_the_gradient_alone():
    bandits = policies(0)["64 arms"]
    history = history_of(bandits.theta, 4, 1e6)
    advantages = partial(ebpo_advantages, history=history, settings=EBPOSettings(update="after"), normalise=False)
    scale = 1 - (1 - float(history.shrinkage()[0])) / 4
    np.testing.assert_allclose(exact_gradient(bandits, 4, advantages).mean, scale * bandits.gradient / 4, atol=1e-14)


def test_the_least_variance_baseline_of_two_arms_is_one_minus_theta():
    bandits = policies(0)["2 arms"]
    np.testing.assert_allclose(least_variance_baseline(bandits), 1 - bandits.theta)
    best = exact_gradient(bandits, 2, partial(fixed_baseline, baseline=1 - bandits.theta))
    assert best.variance == pytest.approx(0, abs=1e-12)


def test_no_other_constant_has_less_variance():
    bandits = policies(0)["64 arms"]
    best = least_variance_baseline(bandits)
    least = exact_gradient(bandits, 2, partial(fixed_baseline, baseline=best)).variance
    for prompt, shift in itertools.product(range(4), (-0.05, 0.05)):
        other = best + shift * (np.arange(4) == prompt)
        assert exact_gradient(bandits, 2, partial(fixed_baseline, baseline=other)).variance > least


def test_the_bias_of_scoring_with_the_own_batch_falls_like_one_over_the_history():
    frame = bias_along_history(4, 0)
    own = frame[(frame["update"] == "before") & ~frame["normalise"]].set_index("groups").direction_error
    assert own[4096] / own[16384] == pytest.approx(4, rel=0.01)


def test_scored_with_the_past_raw_ebpo_keeps_the_direction():
    frame = bias_along_history(4, 0)
    assert (frame[frame["update"] == "after"].direction_error < 1e-9).all()


def test_the_batch_normalisation_leaves_a_bias_that_no_history_removes():
    frame = bias_along_history(4, 0)
    own = frame[(frame["update"] == "before") & frame["normalise"]].set_index("groups").direction_error
    assert own[16384] > 0.01
    assert own[16384] == pytest.approx(own[1024], rel=0.01)


def test_grpo_turns_the_gradient():
    frame = exact((4,), 0).set_index(["policy", "estimator"])
    assert frame.direction_error["64 arms", "grpo"] > 0.01
    assert frame.direction_error["64 arms", "group_mean"] < 1e-9


def test_sampling_meets_the_enumeration():
    frame = simulate(40, 100, 4, seed=1)
    assert ((frame.simulated - frame.analytic).abs() <= 4.5 * frame.standard_error + 1e-12).all()


def test_every_estimator_is_finite_where_all_groups_are_saturated():
    bandits = policies(0)["2 arms"]
    for name, advantages in estimators(bandits, 4).items():
        for values in advantages(np.zeros((1, 4)), 4):
            assert np.isfinite(values).all(), name
    assert grpo_advantages(np.zeros(4), 4)[1].tolist() == [0, 0, 0, 0]
