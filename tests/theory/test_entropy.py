"""T4: first-order entropy change against finite differences, expected steps, and where the bound breaks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from ebpo.algorithms import entropy_mech
from ebpo.theory.bandits import (
    entropy_change,
    expected_square,
    expected_weight,
    group_step,
    make_bandits,
)
from ebpo.theory.baseline_mse import optimal_shrinkage
from ebpo.theory.entropy import (
    batch_std_exceeds,
    ebpo_limit,
    grpo_weight_limit,
    least_ebpo_weight,
    one_step,
    premises,
    train,
    weight_curves,
)
from ebpo.theory.history import grpo_advantages
from ebpo.theory.penalty import raw_variance

THETA = np.array([0.05, 0.3, 0.8])


def bandits(seed: int = 0):
    return make_bandits(THETA, 8, 2, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", ["policy gradient", "natural gradient"])
def test_first_order_entropy_change_against_finite_differences(kind):
    policy = bandits()
    advantage = policy.correct - policy.theta[:, None]
    step = advantage * (policy.probability if kind == "policy gradient" else 1.0)
    logits, small = np.log(policy.probability), 1e-5

    def entropy(shift: float) -> np.ndarray:
        return special.entr(special.softmax(logits + shift * step, axis=-1)).sum(-1)

    numeric = (entropy(small) - entropy(-small)) / (2 * small)
    np.testing.assert_allclose(entropy_change(policy.probability, step), numeric, rtol=1e-7)


def test_entropy_change_is_minus_the_covariance_of_log_probability_and_step():
    policy, step = bandits(), np.random.default_rng(1).normal(size=(3, 8))
    for pi, own, change in zip(policy.probability, step, entropy_change(policy.probability, step), strict=True):
        log = np.log(pi)
        covariance = pi @ (log * own) - (pi @ log) * (pi @ own)
        assert change == pytest.approx(-covariance)


def test_gradient_of_the_pass_rate_against_finite_differences():
    policy, small = bandits(), 1e-6
    logits = np.log(policy.probability)
    for arm in range(8):
        moved = logits.copy()
        moved[:, arm] += small
        rate = (special.softmax(moved, axis=-1) * policy.correct).sum(-1)
        np.testing.assert_allclose((rate - policy.theta) / small, policy.gradient[:, arm], atol=1e-6)


def test_bandits_have_the_pass_rates_asked_for():
    np.testing.assert_allclose(bandits().theta, THETA)
    np.testing.assert_allclose(bandits().probability.sum(-1), 1)


@pytest.mark.parametrize("size", [2, 4])
def test_expected_step_and_square_by_sampling(size):
    policy = bandits()
    drawn = policy.sample(np.random.default_rng(2), size, (200_000,))
    counts = (drawn * policy.correct).sum(-1)
    steps = group_step(drawn, policy, size, *grpo_advantages(counts, size))
    expected = expected_weight(THETA, size, grpo_advantages)[:, None] * policy.gradient
    error = steps.std(0) / 200_000**0.5
    assert (np.abs(steps.mean(0) - expected) < 4.5 * error).all()
    squares = (steps**2).sum(-1)
    np.testing.assert_allclose(squares.mean(0), expected_square(policy, size, grpo_advantages), rtol=0.02)


def test_weights_of_fixed_and_mean_baselines():
    ones = np.ones(3)
    fixed = expected_weight(THETA, 4, lambda k, g: (0.7 + 0 * k, -0.3 + 0 * k))
    np.testing.assert_allclose(fixed, ones)
    mean = expected_weight(THETA, 4, lambda k, g: (1 - k / g, -k / g))
    np.testing.assert_allclose(mean, 0.75 * ones)


def test_grpo_with_two_completions_weighs_all_prompts_alike():
    np.testing.assert_allclose(expected_weight(THETA, 2, grpo_advantages), 2**-0.5, rtol=1e-5)


@pytest.mark.parametrize("size", [2, 4, 16])
def test_grpo_weight_at_the_edge(size):
    edge = expected_weight(np.array([1e-7, 1 - 1e-7]), size, grpo_advantages)
    np.testing.assert_allclose(edge, grpo_weight_limit(size), rtol=1e-5)


def test_grpo_weight_is_one_over_sigma_for_large_groups_only():
    theta = np.array([0.1, 0.5])
    inverse = 1 / np.sqrt(theta * (1 - theta))
    np.testing.assert_allclose(expected_weight(theta, 512, grpo_advantages), inverse, rtol=0.01)
    assert expected_weight(theta, 4, grpo_advantages)[0] < 0.5 * inverse[0]


@given(st.floats(0, 1), st.floats(1e-3, 1), st.floats(0, 1), st.sampled_from([2, 3, 4, 5, 8, 64]))
def test_ebpo_weight_has_a_floor(shrinkage, level, share, size):
    # sigma2 + tau2 = level / 4 with a share of it inside groups.
    sigma2, tau2 = level / 4 * share, level / 4 * (1 - share)
    variance = raw_variance(shrinkage, sigma2, tau2, size)
    if variance > 1e-9:
        assert (1 - (1 - shrinkage) / size) / variance**0.5 >= least_ebpo_weight(size) * (1 - 1e-9)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_up_to_five_completions_ebpo_takes_the_longer_step_on_every_prompt(size):
    weights = expected_weight(np.linspace(1e-6, 1 - 1e-6, 4001), size, grpo_advantages)
    assert weights.max() <= least_ebpo_weight(size) + 1e-9


def test_from_six_completions_on_the_floor_no_longer_decides():
    assert grpo_weight_limit(6) > least_ebpo_weight(6)


@given(st.floats(0.01, 1), st.floats(0.001, 1), st.sampled_from([2, 4, 64]))
def test_at_the_best_shrinkage_sigma_batch_lies_below_the_root_mean_square(sigma2, tau2, size):
    assert not batch_std_exceeds(optimal_shrinkage(sigma2, tau2, size), sigma2, tau2, size)
    assert batch_std_exceeds(1.0, sigma2, tau2, size)


def test_limit_of_ebpo_has_the_weight_of_its_shrinkage():
    theta = np.linspace(0.1, 0.9, 9)
    advantages, std = ebpo_limit(theta, 4)
    sigma2, tau2 = (theta * (1 - theta)).mean(), theta.var()
    shrinkage = (sigma2 + tau2) / (2 * sigma2 + 5 * tau2)
    np.testing.assert_allclose(expected_weight(theta, 4, advantages) * std, 1 - (1 - shrinkage) / 4)


def test_where_entropy_falls_ebpo_takes_more_of_it_at_four_completions():
    frame = premises(1024, (4,), seed=0)
    decaying = frame[frame.cost > 0]
    assert set(decaying.prior) >= {"unimodal", "u_shaped", "polarised"}
    assert (decaying.actual > 1.3).all()


def test_one_step_simulation_meets_the_closed_form():
    frame = one_step(40, 256, (4,), seed=5)
    exact = frame[(frame.algorithm == "grpo") & (frame.matching == "step_size")]
    assert ((exact.simulated - exact.analytic).abs() < 4.5 * exact.standard_error).all()
    limits = frame.drop(exact.index)
    margin = 4.5 * limits.standard_error + 0.03 * limits.analytic.abs()
    assert ((limits.simulated - limits.analytic).abs() < margin).all()


def test_training_follows_the_summed_first_order_changes():
    frame = train(8, 40, 32, 4, 0.05, 0.05, seed=6)
    last = frame[(frame.step == 40) & (frame.matching == "step_size")].set_index(["algorithm", "quantity"]).simulated
    for algorithm in ("grpo", "ebpo"):
        assert last[algorithm, "first_order"] == pytest.approx(last[algorithm, "entropy"], abs=0.02)
    assert last["ebpo", "entropy"] < last["grpo", "entropy"] < last["dr_grpo", "entropy"]


def test_matched_norms_move_every_algorithm_alike():
    frame = train(8, 40, 32, 4, 0.2, 0.2, seed=7)
    last = frame[(frame.step == 40) & (frame.matching == "update_norm") & (frame.quantity == "entropy")]
    assert last.simulated.max() - last.simulated.min() < 0.15


def test_t4_with_the_weights_of_samples_needs_independence():
    # E[rho C] = E[rho] E[C] + Cov(rho, C), so a negative correlation of GRPO's rho with C raises EBPO's share.
    frame = premises(1024, (4, 64), seed=0)
    decaying = frame[(frame.cost > 0) & (frame.correlation < 0)]
    assert len(decaying) == 8
    assert (decaying.actual > decaying.independent).all()


def test_prediction_and_first_order_use_the_factor_of_the_matched_norm():
    frame = train(4, 1, 32, 4, 0.2, 0.05, seed=9)
    table = frame[frame.matching == "update_norm"].set_index(["algorithm", "step", "quantity"]).simulated
    for algorithm in ("grpo", "ebpo"):
        assert table[algorithm, 1, "first_order"] == pytest.approx(table[algorithm, 1, "entropy"], abs=2e-4)
    twice = train(4, 1, 32, 4, 0.2, 0.1, seed=9)
    longer = twice[twice.matching == "update_norm"].set_index(["algorithm", "step", "quantity"]).simulated
    for algorithm in ("grpo", "ebpo"):
        for quantity in ("first_order", "bound"):
            fall, double = (own[algorithm, 0, quantity] - own[algorithm, 1, quantity] for own in (table, longer))
            assert double == pytest.approx(2 * fall)


def test_batches_of_equal_raw_advantages_keep_the_prediction_finite():
    # Two prompts and long steps: soon every batch is all right, and sigma_batch is 0.
    frame = train(4, 60, 2, 4, 2.0, 2.0, seed=10)
    assert np.isfinite(frame.simulated).all()
    last = frame[(frame.step == 60) & (frame.quantity == "pass_rate") & (frame.algorithm == "ebpo")]
    assert (last.simulated > 0.99).all()


def test_clip_cov_selects_by_the_covariance_that_trains():
    # The range of covariances is the trained one's: the vectorised mean runs over completions, not over cells.
    policy = bandits()
    drawn = policy.sample(np.random.default_rng(8), 4)
    success, failure = grpo_advantages((drawn * policy.correct).sum(-1), 4)
    advantages = np.where(policy.correct, success[:, None], failure[:, None])
    logp = np.log(policy.probability)
    weights = drawn / drawn.sum()
    cells = (advantages - (weights * advantages).sum()) * (logp - (weights * logp).sum())
    times = drawn.flatten().astype(int)
    real = entropy_mech.covariance(
        torch.tensor(np.repeat(logp.flatten(), times))[:, None],
        torch.tensor(np.repeat(advantages.flatten(), times)),
        torch.ones(times.sum(), 1, dtype=torch.bool),
    )
    np.testing.assert_allclose(np.repeat(cells.flatten(), times), real[:, 0].numpy(), atol=1e-12)


def test_weight_curves_hold_every_group_size():
    assert set(weight_curves((2, 4)).group_size) == {2, 4}
