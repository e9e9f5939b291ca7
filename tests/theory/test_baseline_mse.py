"""T2: the closed forms of the baselines' error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpo.theory.baseline_mse import (
    analytic_mse,
    conditional_mse,
    conservative_below,
    first_order_excess,
    limiting_shrinkage,
    linear_mse,
    offset_tolerated,
    optimal_shrinkage,
    posterior_mean_mse,
    posterior_means,
    search_counter_examples,
    simulate,
    simulate_convergence,
    simulate_short_history,
    worse_than_grpo_above,
)
from ebpo.theory.history import DEBIASED, PUBLISHED, History
from ebpo.theory.montecarlo import coverage
from ebpo.theory.priors import GROUP_SIZES, PRIORS, beta, point_mass

VARIANCES = st.floats(1e-4, 10)
SIZES = st.sampled_from(GROUP_SIZES)


@given(VARIANCES, VARIANCES, SIZES)
def test_the_least_mse_is_that_of_t2(sigma2, tau2, size):
    best = optimal_shrinkage(sigma2, tau2, size)
    assert linear_mse(best, sigma2, tau2, size) == pytest.approx((1 - best) * sigma2 / size)
    for other in (0.9 * best, min(1.1 * best, 1.0)):
        assert linear_mse(other, sigma2, tau2, size) >= linear_mse(best, sigma2, tau2, size) * (1 - 1e-12)


@given(VARIANCES, VARIANCES, SIZES, st.floats(0, 1))
def test_a_weight_beats_the_group_mean_exactly_below_twice_the_best(sigma2, tau2, size, weight):
    gain = sigma2 / size - linear_mse(weight, sigma2, tau2, size)
    threshold = 2 * optimal_shrinkage(sigma2, tau2, size) - weight
    if weight > 1e-3 and abs(threshold) > 1e-6:
        assert (gain > 0) == (threshold > 0)


@given(VARIANCES, SIZES)
def test_algorithm_1_fails_above_the_threshold(ratio, size):
    shrinkage = limiting_shrinkage("ebpo", 1.0, ratio, size)
    worse = linear_mse(shrinkage, 1.0, ratio, size) - 1 / size
    distance = ratio - worse_than_grpo_above(size)
    if abs(distance) > 1e-6:
        assert (worse > 0) == (distance > 0)


@given(VARIANCES, SIZES)
def test_algorithm_1_is_conservative_up_to_one_over_root_g(ratio, size):
    published, best = limiting_shrinkage("ebpo", 1.0, ratio, size), optimal_shrinkage(1.0, ratio, size)
    distance = ratio - conservative_below(size)
    if abs(distance) > 1e-6:
        assert (published < best) == (distance < 0)


@given(VARIANCES, VARIANCES, st.sampled_from(GROUP_SIZES[1:]))
def test_the_variance_inside_groups_never_fails_and_is_always_conservative(sigma2, tau2, size):
    weight = limiting_shrinkage("ebpo_pooled", sigma2, tau2, size)
    assert weight < optimal_shrinkage(sigma2, tau2, size)
    assert linear_mse(weight, sigma2, tau2, size) < sigma2 / size


def test_algorithm_1_at_equal_pass_rates_keeps_a_quarter_of_the_error():
    # tau2 = 0: it takes the noise of the means, sigma2 / G, for a spread of prompts, so S = 1/2 where 1 is right.
    assert analytic_mse(point_mass(0.3), 4)["ebpo"] == pytest.approx(0.21 / 4 / 4)
    assert analytic_mse(point_mass(0.3), 4)["oracle_linear"] == 0


def test_a_polarised_prior_is_a_counter_example():
    values = analytic_mse(beta(0.1, 0.1), 4)
    # tau2 / sigma2 = 5, S = 6 / 27: (21/27)^2 / 4 + 5 (6/27)^2 against 1/4, in units of sigma2.
    assert values["ebpo"] / values["grpo"] == pytest.approx(4 * ((21 / 27) ** 2 / 4 + 5 * (6 / 27) ** 2))
    assert values["ebpo"] > 1.5 * values["grpo"]


def test_every_counter_example_of_the_search_lies_above_the_threshold():
    found = search_counter_examples()
    assert len(found) > 1000
    assert (found.tau2_over_sigma2 > found.group_size.map(worse_than_grpo_above)).all()


@pytest.mark.parametrize(("a", "b"), [(4, 4), (0.5, 0.5), (1, 5)])
@pytest.mark.parametrize("size", [1, 4, 64])
def test_for_beta_pass_rates_the_posterior_mean_is_linear(a, b, size):
    counts = np.arange(size + 1)
    np.testing.assert_allclose(posterior_means(beta(a, b), size), (a + counts) / (a + b + size))
    assert posterior_mean_mse(beta(a, b), size) == pytest.approx(analytic_mse(beta(a, b), size)["oracle_linear"])


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: prior.name)
def test_beta_binomial_and_debiased_moments_have_the_same_limit(prior):
    values = analytic_mse(prior, 8)
    assert values["beta_binomial"] == pytest.approx(values["ebpo_debiased"])
    assert values["ebpo_debiased"] == pytest.approx(values["oracle_linear"])


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: prior.name)
def test_the_limits_are_those_of_the_estimator(prior):
    history = History.of_moments(4, 1e9, prior.mean, prior.sigma2, prior.tau2)
    for name, settings in (("ebpo", PUBLISHED), ("ebpo_debiased", DEBIASED)):
        expected = limiting_shrinkage(name, prior.sigma2, prior.tau2, 4)
        assert history.shrinkage(settings)[0] == pytest.approx(expected, rel=1e-6)


def test_prompts_that_never_or_always_succeed_pay():
    at_the_edges = conditional_mse(np.array([0.0, 1.0]), 0.4, 0.5, 4)
    np.testing.assert_allclose(at_the_edges, 0.16 * 0.25)
    np.testing.assert_allclose(conditional_mse(np.array([0.0, 1.0]), 0.0, 0.5, 4), 0)


def test_the_errors_at_each_pass_rate_add_up_to_the_whole():
    prior = beta(2, 3)
    values = conditional_mse(prior.theta, 0.3, prior.mean, 4)
    assert prior.expectation(values) == pytest.approx(linear_mse(0.3, prior.sigma2, prior.tau2, 4))


def test_at_the_tolerated_offset_both_errors_are_equal():
    offset = offset_tolerated(0.4, 0.2, 0.01, 4)
    assert linear_mse(0.4, 0.2, 0.01, 4, offset) == pytest.approx(0.2 / 4)


def test_simulation_of_known_priors_meets_the_closed_form():
    frame = simulate(200, 2, 16, seed=1, sizes=(1, 2, 4, 16))
    known = frame[frame.moments == "known"]
    # Estimators of a prior and size share their rewards, so rows are no independent trials.
    assert coverage(known) > 0.88
    assert ((known.simulated - known.analytic).abs() <= 4.5 * known.standard_error + 1e-12).all()


def test_the_online_prior_comes_near_the_limit_at_the_first_order_rate():
    frame = simulate_convergence(800, 16, 32, 4, seed=2, priors=(beta(4, 4, "unimodal"),))
    own = frame[(frame.estimator == "ebpo_debiased") & (frame["update"] == "after") & (frame.groups >= 160)]
    assert len(own) >= 4
    assert ((own.simulated - own.analytic).abs() < 3 * own.standard_error + 0.15 * own.analytic).all()


def test_the_first_order_excess_falls_like_one_over_n():
    prior = beta(4, 4)
    assert first_order_excess(prior, 4, 100) == pytest.approx(10 * first_order_excess(prior, 4, 1000))
    assert np.isnan(first_order_excess(point_mass(0.5), 4, 100))


def test_a_single_first_group_is_scored_like_grpo():
    frame = simulate_short_history(50, seed=0)
    first = frame[(frame.prompts == 1) & (frame.step == 1)]
    assert len(first) == 12
    assert (first.simulated == 0).all()


def test_a_tiny_history_is_a_counter_example():
    frame = simulate_short_history(400, seed=0)
    tiny = frame[(frame.prior == "u_shaped") & (frame.prompts == 1) & (frame.step == 2) & (frame["update"] == "after")]
    assert (tiny.low > 0).all()
