"""Hand-computed differences between engine and trainer, their bound, and truncated importance weights."""

from __future__ import annotations

import math

import pytest
import torch

from ebpo.algorithms.rollout_correction import (
    check_logprob_difference,
    importance_weights,
    logprob_difference,
    padded_values,
)

TRAINER = torch.log(torch.tensor([[0.5, 0.2, 0.9], [0.6, 0.1, 0.3]]))
ENGINE = torch.log(torch.tensor([[0.25, 0.4, 0.9], [0.6, 0.9, 0.9]]))
MASK = torch.tensor([[True, True, True], [True, False, False]])


def test_difference_by_hand():
    # |log 1/2|, |log 2|, 0 and 0 over four tokens; the masked tokens, which differ most, do not count.
    metrics = logprob_difference(ENGINE, TRAINER, MASK)
    assert metrics["rollout_logp/mean_abs"] == pytest.approx(math.log(2) / 2)
    assert metrics["rollout_logp/max_abs"] == pytest.approx(math.log(2))


def test_a_batch_without_tokens_has_no_difference():
    assert set(logprob_difference(ENGINE, TRAINER, torch.zeros_like(MASK)).values()) == {0.0}


def test_a_difference_above_the_bound_stops_the_run():
    metrics = logprob_difference(ENGINE, TRAINER, MASK)
    check_logprob_difference(metrics, 0.35, "step 3")
    with pytest.raises(ValueError, match=r"step 3: .* 0\.347 nats in the mean .* allows 0\.34\."):
        check_logprob_difference(metrics, 0.34, "step 3")


def test_a_difference_that_is_not_a_number_stops_the_run():
    broken = ENGINE.clone()
    broken[0, 0] = math.nan
    with pytest.raises(ValueError, match="nan nats"):
        check_logprob_difference(logprob_difference(broken, TRAINER, MASK), 1e9, "step 3")


def test_an_impossible_token_of_the_engine_stops_the_run():
    broken = ENGINE.clone()
    broken[0, 0] = -math.inf
    with pytest.raises(ValueError, match="inf nats"):
        check_logprob_difference(logprob_difference(broken, TRAINER, MASK), 1e9, "step 3")


def test_importance_weights_by_hand():
    # 0.5 / 0.25 = 2 is cut at 1.5; 0.2 / 0.4 = 1/2 is kept, since only the upper end is truncated.
    weights, metrics = importance_weights(TRAINER, ENGINE, MASK, cap=1.5)
    torch.testing.assert_close(weights, torch.tensor([[1.5, 0.5, 1.0], [1.0, 1.0, 1.0]]))
    assert metrics["importance/mean"] == pytest.approx((1.5 + 0.5 + 1 + 1) / 4)
    assert metrics["importance/capped"] == pytest.approx(1 / 4)


def test_importance_weights_carry_no_gradient():
    weights, _ = importance_weights(TRAINER.clone().requires_grad_(), ENGINE, MASK, cap=2.0)
    assert not weights.requires_grad


def test_the_same_distribution_has_weight_one():
    weights, metrics = importance_weights(TRAINER, TRAINER, MASK, cap=2.0)
    assert (weights == 1).all()
    assert metrics == {"importance/mean": 1.0, "importance/capped": 0.0}


def test_importance_sampling_is_unbiased_where_nothing_is_cut():
    # E over the engine's distribution of weight * f equals E over the trainer's of f, exactly, summed over tokens.
    engine, trainer = torch.tensor([[0.5, 0.3, 0.2]]).double(), torch.tensor([[0.2, 0.5, 0.3]]).double()
    value = torch.tensor([[1.0, -2.0, 4.0]]).double()
    weights, _ = importance_weights(trainer.log(), engine.log(), torch.ones(1, 3, dtype=torch.bool), cap=10.0)
    assert float((engine * weights * value).sum()) == pytest.approx(float((trainer * value).sum()))


@pytest.mark.parametrize("cap", [0.0, -1.0, math.nan])
def test_a_cap_that_is_not_positive_is_refused(cap):
    with pytest.raises(ValueError, match="importance_cap"):
        importance_weights(TRAINER, ENGINE, MASK, cap=cap)


def test_padding_follows_the_end_of_a_completion():
    padded = padded_values([[-0.5], [-1.0, -2.0]], 3, "cpu")
    torch.testing.assert_close(padded, torch.tensor([[-0.5, 0, 0], [-1, -2, 0]]))


@pytest.mark.parametrize(
    ("rows", "message"), [([[-1.0], None], "completion 1 has no"), ([[-1.0] * 4], "has 4 numbers")]
)
def test_missing_or_surplus_logprobs_are_named(rows, message):
    with pytest.raises(ValueError, match=message):
        padded_values(rows, 3, "cpu")
