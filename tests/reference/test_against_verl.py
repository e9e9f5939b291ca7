"""Our advantages, losses and aggregations against verl's core_algos on the same tensors; `make test-verl`.

Where we differ on purpose, the test names the fault (letters as in the list of known faults) and asserts the
difference.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("verl", reason="verl has its own environment: make test-verl")

import verl
from hydra import compose, initialize_config_dir
from verl.trainer.ppo import core_algos
from verl.utils.config import omega_conf_to_dataclass

from ebpo.algorithms.entropy_mech import token_count
from ebpo.algorithms.grpo import dr_grpo_advantages, grpo_advantages
from ebpo.algorithms.losses import Aggregation, aggregation_weights, clipped_surrogate, kl_k3
from ebpo.algorithms.registry import select_tokens, token_loss
from ebpo.algorithms.settings import EntropyMechSettings

pytestmark = pytest.mark.verl

EPSILON = 1e-6  # verl's default, and ours


def verl_advantages(
    rewards: Sequence[float], groups: Sequence[int], estimator: str = "grpo", scale: bool = True
) -> Tensor:
    """Advantages [N] of verl's estimator for outcome rewards, in float32 as verl computes them."""
    scores = torch.zeros(len(rewards), 3)
    scores[:, -1] = torch.tensor(rewards)
    found, _ = core_algos.get_adv_estimator_fn(estimator)(
        token_level_rewards=scores,
        response_mask=torch.ones(len(rewards), 3),
        index=np.array(groups, dtype=object),
        epsilon=EPSILON,
        norm_adv_by_std_in_grpo=scale,
    )
    return found[:, 0].double()


def ours(rewards: Sequence[float], groups: Sequence[int]) -> Tensor:
    return grpo_advantages(torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups), EPSILON)


BINARY = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
GROUPS = [3, 3, 7, 7, 3, 3, 7, 7, 1, 1]


@pytest.mark.parametrize("estimator", ["grpo", "grpo_vectorized"])
def test_grpo_advantages_are_verls(estimator: str) -> None:
    torch.testing.assert_close(ours(BINARY, GROUPS), verl_advantages(BINARY, GROUPS, estimator), rtol=1e-5, atol=1e-6)


def test_dr_grpo_advantages_are_verls() -> None:
    rewards = np.random.default_rng(0).normal(size=10).tolist()
    found = dr_grpo_advantages(torch.tensor(rewards, dtype=torch.float64), torch.tensor(GROUPS))
    torch.testing.assert_close(found, verl_advantages(rewards, GROUPS, scale=False), rtol=1e-5, atol=1e-6)


def test_a3_equal_rewards_give_verl_a_rounding_error_and_us_0() -> None:
    assert verl_advantages([0.1] * 7, [0] * 7).abs().min() > 1e-3
    assert ours([0.1] * 7, [0] * 7).eq(0).all()


@pytest.mark.parametrize("estimator", ["grpo", "grpo_vectorized"])
def test_a5_a_group_of_one_gets_its_raw_reward_in_verl_and_0_here(estimator: str) -> None:
    rewards, groups = [1.0, 0.0, 1.0], [0, 1, 1]
    assert verl_advantages(rewards, groups, estimator)[0] == pytest.approx(1.0, abs=1e-5)
    assert ours(rewards, groups)[0] == 0


def test_a10_an_unscorable_completion_poisons_its_group_in_verl_and_not_here() -> None:
    rewards, groups = [math.nan, 1.0, 0.0, 1.0, 0.0], [0, 0, 0, 1, 1]
    assert verl_advantages(rewards, groups)[:3].isnan().all()
    found = ours(rewards, groups)
    assert found[0] == 0
    torch.testing.assert_close(found[1:3], ours([1.0, 0.0], [0, 0]))


def tensors(seed: int = 0) -> dict[str, Tensor]:
    """Six rows of up to eight tokens, in float64: log-probs near each other, so that both clips are active."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    old = -1 - normal(6, 8).abs()
    lengths = torch.tensor([8, 3, 5, 1, 7, 4])
    return {
        "old": old,
        "logp": old + 0.4 * normal(6, 8),
        "reference": old + 0.3 * normal(6, 8),
        "advantages": normal(6),
        "mask": torch.arange(8) < lengths.unsqueeze(1),
    }


MODES: dict[Aggregation, str] = {
    "seq_mean_token_mean": "seq-mean-token-mean",
    "token_mean": "token-mean",
    "constant": "seq-mean-token-sum-norm",
}


@pytest.mark.parametrize(("aggregation", "mode"), MODES.items())
@pytest.mark.parametrize("blank", [0, 2], ids=["all rows", "two rows without loss tokens"])
def test_aggregations_are_verls(aggregation: Aggregation, mode: str, blank: int) -> None:
    given = tensors()
    mask = given["mask"].clone()
    mask[:blank] = False
    own = (aggregation_weights(mask, aggregation, 20).double() * given["logp"]).sum()
    theirs = core_algos.agg_loss(given["logp"], mask, mode, loss_scale_factor=20)
    torch.testing.assert_close(own, theirs, rtol=1e-6, atol=1e-8)


def test_c4_verls_default_divisor_of_dr_grpo_is_the_padded_width() -> None:
    given = tensors()
    padded = torch.nn.functional.pad(given["logp"], (0, 8)), torch.nn.functional.pad(given["mask"], (0, 8))
    narrow, wide = (
        core_algos.agg_loss(values, mask, "seq-mean-token-sum-norm")
        for values, mask in ((given["logp"], given["mask"]), padded)
    )
    assert float(narrow) == pytest.approx(2 * float(wide))
    weights = [aggregation_weights(mask, "constant", 20) for mask in (given["mask"], padded[1])]
    assert torch.equal(weights[0], weights[1][:, :8])


def test_a1_verls_trainer_counts_rows_without_loss_tokens() -> None:
    # Its trainer passes the batch size as the denominator (workers/utils/losses.py).
    given = tensors()
    mask = given["mask"].clone()
    mask[:2] = False
    theirs = core_algos.agg_loss(given["logp"], mask, "seq-mean-token-mean", global_batch_size=6)
    own = (aggregation_weights(mask, "seq_mean_token_mean", 20).double() * given["logp"]).sum()
    torch.testing.assert_close(theirs, own * 4 / 6, rtol=1e-6, atol=1e-8)


def actor(*changes: str) -> Any:
    """verl's actor configuration with the given overrides of `actor_rollout_ref.actor`."""
    folder = os.path.join(os.path.dirname(verl.__file__), "trainer", "config")
    needed = ["actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"]
    with initialize_config_dir(folder, version_base=None):
        config = compose("ppo_trainer", [*needed, *(f"actor_rollout_ref.actor.{change}" for change in changes)])
    return omega_conf_to_dataclass(config.actor_rollout_ref.actor)


def with_gradient(given: dict[str, Tensor], loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    logp = given["logp"].clone().requires_grad_()
    value = loss(logp)
    value.backward()
    return value.detach(), logp.grad


def verl_loss(mode: str, config: Any, given: dict[str, Tensor], rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
    """(loss, gradient with respect to all log-probs) of verl's policy loss on some rows, aggregated by token mean."""

    def loss(logp: Tensor) -> Tensor:
        value, _ = core_algos.get_policy_loss_fn(mode)(
            old_log_prob=given["old"][rows],
            log_prob=logp[rows],
            advantages=given["advantages"][rows].unsqueeze(-1).expand_as(given["old"][rows]).clone(),
            response_mask=given["mask"][rows].double(),
            loss_agg_mode="token-mean",
            config=config,
        )
        return value

    return with_gradient(given, loss)


def token_mean(per_token: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, aggregation_weights(mask, "token_mean", 20).double() * per_token, 0.0).sum()


def test_the_clipped_surrogate_is_verls_without_its_dual_clip() -> None:
    given = tensors()
    config = actor("clip_ratio_low=0.2", "clip_ratio_high=0.28", "clip_ratio_c=1e6")
    theirs, their_gradient = verl_loss("vanilla", config, given)
    own, gradient = with_gradient(
        given,
        lambda logp: token_mean(
            clipped_surrogate(logp, given["old"], given["advantages"], 0.2, 0.28).loss, given["mask"]
        ),
    )
    torch.testing.assert_close(own, theirs, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(gradient, their_gradient, rtol=1e-5, atol=1e-8)


def test_verls_default_dual_clip_bounds_the_loss_of_bad_completions() -> None:
    given = tensors()
    given["advantages"] = -given["advantages"].abs()
    given["logp"] = given["old"] + 2
    dual, _ = verl_loss("vanilla", actor(), given)
    without, _ = verl_loss("vanilla", actor("clip_ratio_c=1e6"), given)
    assert float(dual) == pytest.approx(float(without) * 3 / math.e**2, rel=1e-5)


def test_the_kl_estimate_is_verls_low_var_kl() -> None:
    given = tensors()
    theirs = core_algos.kl_penalty(given["logp"], given["reference"], "low_var_kl")
    torch.testing.assert_close(kl_k3(given["logp"], given["reference"]), theirs)


def test_verl_cuts_the_kl_estimate_at_10() -> None:
    logp, reference = torch.tensor([-9.0]), torch.tensor([-1.0])
    assert float(core_algos.kl_penalty(logp, reference, "low_var_kl")) == 10
    assert float(kl_k3(logp, reference)) == pytest.approx(math.exp(8) - 9)


def entropy_mech_loss(settings: EntropyMechSettings, given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    logp, old, advantages, mask = (given[name] for name in ("logp", "old", "advantages", "mask"))
    selected = select_tokens(settings, logp, old, advantages, mask, torch.Generator().manual_seed(0))
    assert selected is not None
    assert 0 < int(selected.sum()) < int(mask.sum())
    return with_gradient(
        given, lambda current: token_mean(token_loss(settings, current, old, advantages, selected).loss, mask)
    )


def test_kl_cov_is_verls() -> None:
    given = tensors()
    settings = EntropyMechSettings(variant="kl_cov", kl_cov_fraction=0.2, kl_cov_coef=0.7)
    theirs, their_gradient = verl_loss(
        "kl_cov", actor("policy_loss.kl_cov_ratio=0.2", "policy_loss.ppo_kl_coef=0.7"), given
    )
    own, gradient = entropy_mech_loss(settings, given)
    torch.testing.assert_close(own, theirs, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(gradient, their_gradient, rtol=1e-5, atol=1e-8)


CLIP_COV = EntropyMechSettings(clip_cov_fraction=1.0, clip_cov_low=0.1, clip_cov_high=0.8, clip_low=0.2, clip_high=0.2)
CLIP_COV_CHANGES = (
    "policy_loss.clip_cov_ratio=1.0",
    "policy_loss.clip_cov_lb=0.1",
    "policy_loss.clip_cov_ub=0.8",
    "clip_ratio_low=0.2",
    "clip_ratio_high=0.2",
)


def test_the_gradient_of_clip_cov_is_verls_where_every_eligible_token_is_taken() -> None:
    # With all of them taken, the random draw plays no part.
    given = tensors()
    _, their_gradient = verl_loss("clip_cov", actor(*CLIP_COV_CHANGES), given)
    _, gradient = entropy_mech_loss(CLIP_COV, given)
    torch.testing.assert_close(gradient, their_gradient, rtol=1e-5, atol=1e-8)


def test_verl_drops_the_value_of_clip_cov_tokens_and_we_keep_it() -> None:
    # Detached tokens still are part of the loss that is logged.
    given = tensors()
    theirs, _ = verl_loss("clip_cov", actor(*CLIP_COV_CHANGES), given)
    own, _ = entropy_mech_loss(CLIP_COV, given)
    assert float((own - theirs).abs()) > 1e-3


def test_c8_verl_selects_more_tokens_the_smaller_its_micro_batches() -> None:
    # One token of 28 at a fraction of 1 %; verl takes at least one in each of its micro-batches of one row.
    given = tensors()
    settings = EntropyMechSettings(variant="kl_cov", kl_cov_fraction=0.01)
    config = actor("policy_loss.kl_cov_ratio=0.01", "policy_loss.ppo_kl_coef=1.0")
    plain = -torch.exp(given["logp"] - given["old"]) * given["advantages"].unsqueeze(-1)

    def penalised(rows: slice) -> int:
        loss, _ = verl_loss("kl_cov", config, given, rows)
        sums = float(loss) * int(given["mask"][rows].sum()) - float(plain[rows][given["mask"][rows]].sum())
        return int(sums > 1e-9)

    assert penalised(slice(None)) == 1
    assert sum(penalised(slice(row, row + 1)) for row in range(6)) == 6
    assert token_count(settings.kl_cov_fraction, int(given["mask"].sum())) == 1
