"""GRPO, Dr. GRPO, DAPO's shaping, EntropyMech's selection, aggregation: values by hand."""

from __future__ import annotations

import math

import pytest
import torch

from ebpo.algorithms.entropy_mech import clip_cov_tokens, covariance, kl_cov_tokens, token_count
from ebpo.algorithms.grpo import dr_grpo_advantages, grpo_advantages, soft_overlong_penalty
from ebpo.algorithms.losses import aggregation_weights, clipped_surrogate, kl_k3

NAN = float("nan")


def test_grpo_by_hand():
    # (1, 0, 0, 0): mean 1/4, std sqrt(3/4 / 3) = 1/2.
    advantages = grpo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.int64), 1e-6)
    torch.testing.assert_close(
        advantages, torch.tensor([1.5, -0.5, -0.5, -0.5], dtype=torch.float64), rtol=1e-5, atol=0
    )


def test_dr_grpo_by_hand():
    advantages = dr_grpo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.int64))
    assert advantages.tolist() == [0.75, -0.25, -0.25, -0.25]


@pytest.mark.parametrize("value", [0.0, 0.1, 0.35, 1.0])
def test_a_saturated_group_has_advantage_exactly_zero(value):
    # Seven float32 values of 0.1 have a standard deviation of 8e-9, which must not be divided by.
    group = torch.zeros(7, dtype=torch.int64)
    assert grpo_advantages(torch.full((7,), value), group, 1e-6).abs().max() == 0
    assert dr_grpo_advantages(torch.full((7,), value), group).abs().max() == 0


def test_interleaved_groups_are_told_apart_by_id():
    rewards, ids = torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([5, 9, 5, 9])
    assert dr_grpo_advantages(rewards, ids).tolist() == [0.5, 0, -0.5, 0]


def test_unscorable_completions_do_not_move_their_siblings():
    ids = torch.zeros(3, dtype=torch.int64)
    advantages = dr_grpo_advantages(torch.tensor([1.0, NAN, 0.0]), ids)
    assert advantages.tolist() == [0.5, 0, -0.5]


def test_overlong_penalty_at_its_edges():
    # L = 10, buffer 4: free up to 6, then a quarter per token.
    lengths = torch.tensor([0, 6, 7, 9, 10, 11])
    assert soft_overlong_penalty(lengths, 10, 4, 1.0).tolist() == [0, 0, -0.25, -0.75, -1, -1]


def test_clipping_acts_where_it_should():
    logp = torch.log(torch.tensor([[1.5, 0.5], [1.5, 0.5]]))
    result = clipped_surrogate(logp, torch.zeros(2, 2), torch.tensor([1.0, -1.0]), 0.2, 0.28)
    torch.testing.assert_close(result.loss, torch.tensor([[-1.28, -0.5], [1.5, 0.8]]))
    assert result.clipped_high.tolist() == [[True, False], [False, False]]
    assert result.clipped_low.tolist() == [[False, False], [False, True]]


def test_loss_value_is_zero_at_ratio_one_but_its_gradient_is_not():
    logp = torch.zeros(2, 1, requires_grad=True)
    loss = clipped_surrogate(logp, torch.zeros(2, 1), torch.tensor([1.0, -1.0]), 0.2, 0.2).loss.sum()
    loss.backward()
    assert loss.item() == 0
    assert logp.grad is not None
    assert logp.grad.flatten().tolist() == [-1, 1]


def test_k3_estimates_the_exact_kl_on_five_tokens():
    torch.manual_seed(0)
    policy, reference = torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    logp, logq = torch.log_softmax(policy, 0), torch.log_softmax(reference, 0)
    exact = (logp.exp() * (logp - logq)).sum()
    assert (logp.exp() * kl_k3(logp, logq)).sum() == pytest.approx(float(exact))
    assert (kl_k3(logp, logq) >= 0).all()


MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("seq_mean_token_mean", [[1 / 4, 1 / 4, 0], [1 / 2, 0, 0], [0, 0, 0]]),
        ("token_mean", [[1 / 3, 1 / 3, 0], [1 / 3, 0, 0], [0, 0, 0]]),
        ("constant", [[1 / 20, 1 / 20, 0], [1 / 20, 0, 0], [0, 0, 0]]),
    ],
)
def test_weights_by_hand(aggregation, expected):
    torch.testing.assert_close(aggregation_weights(MASK, aggregation, 10), torch.tensor(expected))


@pytest.mark.parametrize("aggregation", ["seq_mean_token_mean", "token_mean", "constant"])
def test_an_empty_batch_has_finite_weights(aggregation):
    assert aggregation_weights(torch.zeros(2, 3, dtype=torch.bool), aggregation, 10).abs().max() == 0


def test_covariance_by_hand():
    # Advantages 1, 1, -1 with log-probs -1, -2, -3: means 1/3 and -2.
    cov = covariance(
        torch.tensor([[-1.0, -2.0, 9.0], [-3.0, 9.0, 9.0], [9.0] * 3]), torch.tensor([1.0, -1.0, 5.0]), MASK
    )
    expected = [[2 / 3 * 1, 0, 0], [-4 / 3 * -1, 0, 0], [0, 0, 0]]
    torch.testing.assert_close(cov, torch.tensor(expected, dtype=torch.float64))


def test_clip_cov_draws_only_inside_the_bounds_and_is_seeded():
    cov = torch.tensor([[0.5, 2.0, 3.0, 4.0, 6.0]])
    candidates = torch.tensor([[True, True, True, False, True]])
    draws = [
        clip_cov_tokens(cov, candidates, 1, 1.0, 5.0, torch.Generator().manual_seed(seed)).tolist()[0]
        for seed in (0, 0, *range(20))
    ]
    assert draws[0] == draws[1]
    assert {d.index(True) for d in draws} == {1, 2}


def test_kl_cov_takes_the_largest():
    cov = torch.tensor([[1.0, 5.0, 9.0], [7.0, 99.0, 99.0], [99.0] * 3])
    assert kl_cov_tokens(cov, MASK, 2).tolist() == [[False, True, False], [True, False, False], [False] * 3]


def test_at_least_one_token_is_selected_per_optimizer_batch():
    assert token_count(2e-4, 8192) == 1
    assert token_count(2e-4, 100) == 1
    assert token_count(2e-3, 8192) == math.floor(16.384)
