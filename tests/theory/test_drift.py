"""Tracking a moving mean: closed forms against the trained moments, and the recommended half-life."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ebpo.algorithms.ebpo import Prior
from ebpo.algorithms.groups import group_rewards
from ebpo.theory.drift import (
    best_half_life,
    lag,
    late_error,
    means_over_time,
    simulate,
    steady_error,
    tracking_error,
    welford_best_at,
)
from ebpo.theory.history import History


def test_lag_of_the_trained_moments():
    # Rewards that grow by 1 a batch of 4 groups: after many batches the prior's mean trails by lag / 4 batches.
    prior = Prior()
    for batch in range(400):
        groups = group_rewards(torch.full((8,), float(batch)), torch.arange(4).repeat_interleave(2))
        prior = prior.updated(groups, torch.ones(4, dtype=torch.bool), half_life=32.0)
    assert 399 - prior.rewards.mean == pytest.approx(lag(32, 4) / 4)


def test_lag_tends_to_the_half_life_over_log_two():
    assert lag(1e5, 4) == pytest.approx(1e5 / np.log(2), rel=1e-3)


def test_exact_error_tends_to_the_steady_state():
    means, variances = 0.2 + 1e-4 * np.arange(3000), np.full(3000, 0.1)
    exact = tracking_error(200, means, variances, 32)
    assert exact == pytest.approx(steady_error(200, 1e-4 / 32, 0.1, 32), rel=1e-6)


def test_without_forgetting_it_is_welford():
    means, variances = 0.2 + 1e-3 * np.arange(50), np.full(50, 0.1)
    exact = tracking_error(np.inf, means, variances, 32)
    # A lag of (T - 1) / 2 batches, and the variance of a mean over 50 * 32 groups.
    assert exact == pytest.approx((1e-3 * 49 / 2) ** 2 + 0.1 / (50 * 32))


@pytest.mark.parametrize("drift", [1e-6, 1e-5])
def test_recommended_half_life_has_the_least_error(drift):
    best = best_half_life(drift, 0.1)
    errors = [steady_error(best * factor, drift, 0.1, 1) for factor in (0.9, 1.0, 1.1)]
    assert errors[1] == min(errors)


def test_half_or_twice_the_best_half_life_costs_little():
    # At h* a third of the squared error is the lag's: 1/3 * 4 + 2/3 / 2 at twice h*, 1/3 / 4 + 2/3 * 2 at half of it.
    best = best_half_life(1e-6, 0.1)
    errors = [steady_error(best * factor, 1e-6, 0.1, 1) for factor in (0.5, 1.0, 2.0)]
    assert np.sqrt(errors[0] / errors[1]) == pytest.approx(np.sqrt(17 / 12), rel=1e-2)
    assert np.sqrt(errors[2] / errors[1]) == pytest.approx(np.sqrt(5 / 3), rel=1e-2)


def test_eight_times_the_drift_quarters_the_half_life():
    assert best_half_life(8e-5, 0.1) == pytest.approx(best_half_life(1e-5, 0.1) / 4)


def test_without_drift_nothing_should_be_forgotten():
    assert best_half_life(0.0, 0.1) == np.inf == welford_best_at(0.0, 0.1)


def test_welford_at_its_best_equals_the_recommended_half_life():
    drift, variance = 1e-6, 0.1
    groups, half_life = welford_best_at(drift, variance), best_half_life(drift, variance)
    assert groups == pytest.approx(2 * half_life / np.log(2))
    assert (drift * groups / 2) ** 2 + variance / groups == pytest.approx(
        steady_error(half_life, drift, variance, 1), rel=0.01
    )


def test_late_error_is_the_average_over_the_last_tenth():
    means = means_over_time(0.4, 20, 0.2)
    share = means * (1 - means)
    variances = share / 3 + share * 2 / 3 / 4
    expected = np.mean([tracking_error(64, means[:end], variances[:end], 32) for end in (19, 20)])
    assert late_error(64, means, 4, 32) == pytest.approx(expected)


def test_a_prior_per_topic_without_forgetting_lags_as_long_as_a_single_one():
    # 40 batches of one group from each of three topics, whose rewards grow by 1 a batch: both trail by 39 / 2 batches.
    single, split = History.empty(1, (1,)), History.empty(1, (3,))
    for batch in range(40):
        means = np.full(3, float(batch))
        single, split = single.updated(means), split.updated(means, np.eye(3))
    np.testing.assert_allclose(39 - single.mean, 39 / 2)
    np.testing.assert_allclose(39 - split.mean, 39 / 2)


def test_every_variant_of_the_baseline_is_below_the_group_mean():
    errors, _ = simulate(16, 60, 32, 4, (0.4,), seed=2)
    mine = errors[(errors.half_life == 128) & (errors.quantity != "prior")]
    assert set(mine.quantity) == {"baseline", "baseline_debiased", "baseline_beta_binomial"}
    assert (mine.simulated < errors[errors.quantity == "grpo"].simulated.item()).all()


def test_simulation_meets_the_exact_error():
    errors, _ = simulate(40, 60, 32, 4, (0.0, 0.4), seed=1)
    known = errors[errors.analytic.notna()]
    assert len(known) == 20
    assert ((known.simulated - known.analytic).abs() < 4.5 * known.standard_error).all()


def test_a_mean_cannot_leave_the_unit_interval():
    with pytest.raises(ValueError, match=r"leaves \(0, 1\)"):
        means_over_time(0.9, 10, 0.2)
