"""The Beta prior is recovered, the smoothing is its posterior mean, buckets are quantiles that never part ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpo.clustering.beta_binomial import BetaPrior, fit_prior, quantile_buckets


@pytest.mark.parametrize(("a", "b"), [(2.0, 6.0), (0.5, 0.5), (5.0, 1.0)])
def test_a_simulated_prior_is_recovered(a, b):
    rng = np.random.default_rng(0)
    rollouts = np.full(20_000, 16)
    prior = fit_prior(rng.binomial(rollouts, rng.beta(a, b, len(rollouts))), rollouts)
    # About four standard errors at this size.
    assert prior.a == pytest.approx(a, rel=0.06)
    assert prior.b == pytest.approx(b, rel=0.06)


def test_problems_with_unscorable_rollouts_count_with_their_own_number():
    rng = np.random.default_rng(1)
    rollouts = rng.integers(4, 17, 20_000)
    prior = fit_prior(rng.binomial(rollouts, rng.beta(2.0, 6.0, len(rollouts))), rollouts)
    assert prior.a == pytest.approx(2.0, rel=0.08)
    assert prior.b == pytest.approx(6.0, rel=0.08)


def test_the_smoothed_rate_is_the_posterior_mean():
    # One of 20 pseudo-counted and real rollouts, and nine of twelve.
    smoothed = BetaPrior(1.0, 3.0).posterior_mean(np.array([0, 8]), np.array([16, 8]))
    assert smoothed == pytest.approx([0.05, 0.75])


def test_smoothing_beats_the_raw_rate_in_squared_error():
    rng = np.random.default_rng(2)
    theta, rollouts = rng.beta(2.0, 6.0, 5_000), np.full(5_000, 4)
    correct = rng.binomial(rollouts, theta)
    smoothed = fit_prior(correct, rollouts).posterior_mean(correct, rollouts)
    assert ((smoothed - theta) ** 2).mean() < 0.6 * ((correct / rollouts - theta) ** 2).mean()


def test_rates_that_do_not_vary_are_pulled_together():
    rng = np.random.default_rng(3)
    rollouts = np.full(5_000, 16)
    correct = rng.binomial(rollouts, 0.3)
    smoothed = fit_prior(correct, rollouts).posterior_mean(correct, rollouts)
    assert np.ptp(smoothed) < 0.1 * np.ptp(correct / rollouts)


@pytest.mark.parametrize(("solved", "low", "high"), [(0, 0.0, 0.01), (16, 0.99, 1.0)])
def test_a_set_that_is_never_or_always_solved_has_a_finite_prior(solved, low, high):
    correct, rollouts = np.full(50, solved), np.full(50, 16)
    smoothed = fit_prior(correct, rollouts).posterior_mean(correct, rollouts)
    assert ((smoothed >= low) & (smoothed <= high)).all()


@pytest.mark.parametrize(
    ("correct", "rollouts"), [([], []), ([1], [0]), ([-1], [4]), ([5], [4])], ids=["none", "zero", "negative", "more"]
)
def test_impossible_counts_are_refused(correct, rollouts):
    with pytest.raises(ValueError, match="difficulty"):
        fit_prior(np.array(correct, dtype=int), np.array(rollouts, dtype=int))


def test_buckets_are_quantiles_with_the_easiest_first():
    assert quantile_buckets(np.array([0.1, 0.9, 0.2, 0.8, 0.5, 0.4]), 3).tolist() == [2, 0, 2, 0, 1, 1]


def test_equal_rates_share_the_bucket_of_their_middle():
    # Ranks 0 to 3 are equal: their middle, 1.5 of 6, falls into the first of two halves.
    assert quantile_buckets(np.array([0.5, 0.5, 0.5, 0.5, 0.1, 0.0]), 2).tolist() == [0, 0, 0, 0, 1, 1]


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=50), st.integers(1, 8))
def test_a_bucket_is_a_number_in_range_and_never_easier_than_its_rates_say(rates, buckets):
    found = quantile_buckets(np.array(rates), buckets)
    assert set(found) <= set(range(buckets))
    pairs = sorted(zip(rates, found.tolist(), strict=True), key=lambda pair: -pair[0])
    assert [bucket for _, bucket in pairs] == sorted(found.tolist())
    assert len(set(pairs)) == len(set(rates))
