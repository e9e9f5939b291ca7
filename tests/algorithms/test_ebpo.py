"""Hand-computed values of Algorithm 1, its options, and the faults of public trainers that must not be ours."""

from __future__ import annotations

import itertools

import pytest
import torch
from pydantic import ValidationError

from ebpo import EBPOBaseline, EBPOState, ebpo_advantages
from ebpo.algorithms.ebpo import GLOBAL, Prior
from ebpo.algorithms.groups import group_rewards
from ebpo.algorithms.settings import EBPOSettings

NAN = float("nan")


def ids(*sizes: int) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))


def test_algorithm_1_by_hand():
    # Groups (1, 0, 0, 0) and (1, 1, 1, 0): means 1/4 and 3/4; all rewards: mean 1/2, variance 8 * 1/4 / 7 = 2/7;
    # tau2 = 2 * (1/4)^2 / 1 = 1/8; sigma2 / G = 1/14; S = (1/14) / (1/14 + 1/8) = 4/11.
    # V_1 = 7/11 * 1/4 + 4/11 * 1/2 = 15/44, V_2 = 29/44.
    rewards = torch.tensor([1, 0, 0, 0, 1, 1, 1, 0], dtype=torch.float64)
    advantages, state, metrics = ebpo_advantages(rewards, ids(4, 4))
    assert metrics["mu_glob"] == 0.5
    assert metrics["sigma2"] == pytest.approx(2 / 7)
    assert metrics["tau2"] == pytest.approx(1 / 8)
    assert metrics["shrinkage"] == pytest.approx(4 / 11)
    raw = rewards - torch.tensor([15 / 44] * 4 + [29 / 44] * 4, dtype=torch.float64)
    expected = (raw - raw.mean()) / (raw.std() + 1e-6)
    torch.testing.assert_close(advantages, expected)
    assert state.priors[GLOBAL].rewards.count == 8
    assert state.priors[GLOBAL].group_means.count == 2


def test_an_all_fail_group_is_penalised_by_s_times_mu_glob():
    rewards = torch.tensor([0, 0, 0, 0, 1, 1, 1, 0], dtype=torch.float64)
    advantages, _, metrics = ebpo_advantages(rewards, ids(4, 4))
    expected = -metrics["shrinkage"] * metrics["mu_glob"]
    assert metrics["raw_advantage_all_0_groups"] == pytest.approx(expected)
    assert expected < 0
    assert (advantages[:4] < 0).all()


def test_a_batch_saturated_alike_has_no_normalised_advantage_but_a_raw_one():
    # Note (c): the constant raw advantage -S * mu_glob is removed by its own batch mean.
    _, state, _ = ebpo_advantages(torch.tensor([1.0, 0.0, 1.0, 1.0]), ids(2, 2))
    advantages, _, metrics = ebpo_advantages(torch.zeros(4), ids(2, 2), state)
    assert metrics["raw_advantage_all_0_groups"] < 0
    assert advantages.abs().max() == 0


@pytest.mark.parametrize("value", [0.0, 0.1, 0.35, 1.0])
def test_constant_rewards_give_exactly_zero(value):
    advantages, state = torch.zeros(0), None
    for _ in range(5):
        advantages, state, metrics = ebpo_advantages(torch.full((12,), value), ids(4, 4, 4), state)
    assert advantages.abs().max() == 0
    assert metrics["sigma2"] == 0 == metrics["tau2"]


def test_shrinkage_stays_in_the_unit_interval():
    generator = torch.Generator().manual_seed(0)
    state = None
    for _ in range(50):
        rewards = (torch.rand(16, generator=generator) < torch.rand(1, generator=generator)).double()
        _, state, metrics = ebpo_advantages(rewards, ids(4, 4, 4, 4), state)
        assert 0 <= metrics["shrinkage"] <= 1


def test_advantages_follow_a_permutation_of_rows():
    generator = torch.Generator().manual_seed(1)
    rewards, groups = (torch.rand(24, generator=generator) < 0.4).double(), ids(4, 4, 4, 4, 4, 4)
    order = torch.randperm(24, generator=generator)
    plain, _, _ = ebpo_advantages(rewards, groups)
    permuted, _, _ = ebpo_advantages(rewards[order], groups[order])
    torch.testing.assert_close(permuted, plain[order], rtol=0, atol=1e-12)


def test_an_unscorable_completion_leaves_every_statistic():
    with_it, state, metrics = ebpo_advantages(torch.tensor([1.0, 0.0, NAN, 0.0, 0.0]), ids(3, 2))
    without, state2, metrics2 = ebpo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), ids(2, 2))
    assert with_it[2] == 0
    torch.testing.assert_close(with_it[[0, 1, 3, 4]], without)
    assert state == state2
    assert metrics == metrics2


def test_an_entirely_unscorable_batch_changes_nothing():
    _, state, _ = ebpo_advantages(torch.tensor([1.0, 0.0]), ids(2))
    advantages, after, _ = ebpo_advantages(torch.tensor([NAN, NAN]), ids(2), state)
    assert advantages.tolist() == [0, 0]
    assert after == state


def test_groups_of_one_are_compared_with_the_prior():
    # tau2 = sigma2, so S = 1/2: V = (r + mu) / 2 and raw = (r - mu) / 2.
    advantages, _, metrics = ebpo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), ids(1, 1, 1, 1))
    assert metrics["shrinkage"] == pytest.approx(0.5)
    assert advantages[0] > 0 > advantages[1]


def test_ragged_groups_shrink_by_their_own_size():
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    _, state, _ = ebpo_advantages(rewards, ids(2, 4))
    sigma2, tau2 = state.priors[GLOBAL].variances(EBPOSettings())
    small, large = sigma2 / 2, sigma2 / 4
    _, _, metrics = ebpo_advantages(rewards, ids(2, 4))
    assert metrics["shrinkage"] == pytest.approx((small / (small + tau2) + large / (large + tau2)) / 2)


def test_update_after_scores_with_the_prior_of_the_past():
    _, state, _ = ebpo_advantages(torch.tensor([1.0, 0.0, 1.0, 1.0]), ids(2, 2))
    _, after, metrics = ebpo_advantages(torch.tensor([0.0, 0.0, 1.0, 0.0]), ids(2, 2), state, update="after")
    assert metrics["mu_glob"] == 0.75
    assert after.priors[GLOBAL].rewards.mean == 0.5


def test_update_after_on_the_first_batch_is_the_group_mean():
    advantages, _, _ = ebpo_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), ids(2, 2), update="after")
    assert advantages[2] == advantages[3] == 0


def test_pooled_variance_is_the_one_inside_groups():
    # Inside (1, 0): 1/2; inside (1, 1): 0; pooled over 2 degrees of freedom: 1/4.
    _, state, metrics = ebpo_advantages(torch.tensor([1.0, 0.0, 1.0, 1.0]), ids(2, 2), within="pooled")
    assert metrics["sigma2"] == pytest.approx(1 / 4)


def test_debiased_between_variance_is_clamped_at_zero():
    # tau2 = Var(1/2, 1/2) = 0, pooled = 1/2, so the debiased value would be -1/4.
    _, _, metrics = ebpo_advantages(torch.tensor([1.0, 0.0, 0.0, 1.0]), ids(2, 2), between="debiased")
    assert metrics["tau2"] == 0
    assert metrics["shrinkage"] == 1


def test_half_life_forgets_half_after_that_many_groups():
    _, state, _ = ebpo_advantages(torch.zeros(8), ids(4, 4), half_life=2)
    _, state, _ = ebpo_advantages(torch.ones(8), ids(4, 4), state, half_life=2)
    # weights 8 * 1/2 of zeros and 8 of ones
    assert state.priors[GLOBAL].rewards.mean == pytest.approx(8 / 12)


def test_one_prior_per_cluster():
    rewards = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    clusters = {0: "easy", 1: "easy", 2: "hard", 3: "hard"}
    _, state, metrics = ebpo_advantages(rewards, ids(2, 2, 2, 2), scope="cluster", clusters=clusters)
    assert metrics["mu_glob/easy"] == 0.75
    assert metrics["mu_glob/hard"] == 0.25
    assert set(state.priors) == {"easy", "hard"}
    with pytest.raises(ValueError, match="needs a cluster for every group"):
        ebpo_advantages(rewards, ids(2, 2, 2, 2), scope="cluster", clusters={0: "easy"})


def test_a_cluster_absent_from_a_batch_keeps_its_prior():
    _, state, _ = ebpo_advantages(torch.tensor([1.0, 0.0]), ids(2), scope="cluster", clusters={0: "a"})
    _, after, _ = ebpo_advantages(torch.tensor([1.0, 1.0]), ids(2), state, scope="cluster", clusters={0: "b"})
    assert after.priors["a"] == state.priors["a"]


def test_beta_binomial_recovers_the_pseudo_count():
    # theta ~ Beta(2, 6): a + b = 8, so S = 8 / (8 + 4).
    generator = torch.Generator().manual_seed(0)
    theta = torch.distributions.Beta(2.0, 6.0)
    torch.manual_seed(0)
    rates = theta.sample((50_000,)).double()
    rewards = (torch.rand(50_000, 4, generator=generator, dtype=torch.float64) < rates.unsqueeze(1)).double()
    _, _, metrics = ebpo_advantages(rewards.flatten(), ids(*[4] * 50_000), prior="beta_binomial")
    assert metrics["shrinkage"] == pytest.approx(8 / 12, abs=0.02)


@pytest.mark.parametrize(
    "options",
    [
        dict(zip(("within", "between", "scope", "half_life", "update"), values, strict=True))
        for values in itertools.product(
            ("total", "pooled"), ("raw", "debiased"), ("global", "cluster"), (None, 8.0), ("before", "after")
        )
    ],
    ids=str,
)
def test_every_valid_combination_is_finite(options):
    generator = torch.Generator().manual_seed(2)
    clusters = {i: "ab"[i % 2] for i in range(6)}
    state = None
    for _ in range(4):
        rewards = (torch.rand(24, generator=generator) < 0.3).double()
        advantages, state, metrics = ebpo_advantages(rewards, ids(*[4] * 6), state, clusters=clusters, **options)
        assert torch.isfinite(advantages).all()
        assert 0 <= metrics["shrinkage"] <= 1


@pytest.mark.parametrize(
    "options",
    [{"within": "mean"}, {"half_life": 0}, {"prior": "beta_binomial", "within": "pooled"}, {"halflife": 3}],
    ids=str,
)
def test_invalid_options_are_refused(options):
    with pytest.raises(ValidationError):
        ebpo_advantages(torch.tensor([1.0, 0.0]), ids(2), **options)


def test_an_interrupted_baseline_continues_exactly():
    generator = torch.Generator().manual_seed(3)
    batches = [(torch.rand(16, generator=generator) < 0.5).double() for _ in range(10)]
    straight, first = EBPOBaseline(half_life=64), EBPOBaseline(half_life=64)
    for batch in batches:
        expected = straight(batch, ids(*[4] * 4))
    for batch in batches[:5]:
        first(batch, ids(*[4] * 4))
    second = EBPOBaseline(half_life=64)
    second.load_state_dict(first.state_dict())
    for batch in batches[5:]:
        resumed = second(batch, ids(*[4] * 4))
    assert torch.equal(expected, resumed)
    assert straight.state == second.state


def test_state_of_ebpo_survives_json():
    import json

    _, state, _ = ebpo_advantages(torch.tensor([1.0, 0.0, 0.0]), ids(2, 1))
    assert EBPOState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


@pytest.mark.parametrize("rewards", [torch.tensor([]), torch.zeros(2, 2), torch.tensor([1.0, float("inf")])])
def test_malformed_rewards_are_refused(rewards):
    with pytest.raises(ValueError, match="rewards"):
        group_rewards(rewards, torch.arange(rewards.numel()).view(rewards.shape))


def test_prior_of_two_shards_equals_prior_of_the_whole():
    rewards, groups = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]), ids(2, 2, 2)
    grouped = group_rewards(rewards, groups)
    whole = Prior().updated(grouped, torch.tensor([True, True, True]), None)
    first = Prior().updated(grouped, torch.tensor([True, False, False]), None)
    both = first.updated(grouped, torch.tensor([False, True, True]), None)
    for name in ("rewards", "group_means", "within"):
        assert getattr(both, name).m2 == pytest.approx(getattr(whole, name).m2, abs=1e-12)
        assert getattr(both, name).mean == pytest.approx(getattr(whole, name).mean, abs=1e-12)
