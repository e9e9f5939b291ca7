"""Our advantages and losses against TRL's on the same tensors.

Where we differ on purpose, the test names the fault (letters as in the list of known faults) and asserts the
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("trl", reason="trl is the extra `trl`, and not in verl's environment")

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from ebpo.algorithms.grpo import dr_grpo_advantages, grpo_advantages
from ebpo.algorithms.losses import Aggregation, aggregation_weights, clipped_surrogate, kl_k3
from ebpo.rollouts.batch import Batch, logprobs_in_chunks, make_batch, token_logprobs
from ebpo.rollouts.protocol import Completion

MAX_LENGTH = 12
TRL_EPSILON = 1e-4  # grpo_trainer.py, added to the group's standard deviation
BETA = 0.05
CLIP_LOW, CLIP_HIGH = 0.2, 0.28

AGGREGATION_OF: dict[str, Aggregation] = {
    "grpo": "seq_mean_token_mean",
    "dr_grpo": "constant",
    "dapo": "token_mean",
}


def build(folder: Path, policy: Path, reward: Any = None, **changes: Any) -> GRPOTrainer:
    torch.set_num_threads(1)
    options = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": MAX_LENGTH,
        "max_steps": 1,
        "epsilon": CLIP_LOW,
        "epsilon_high": CLIP_HIGH,
        "use_bias_correction_kl": False,
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "disable_tqdm": True,
        **changes,
    }
    return GRPOTrainer(
        model=str(policy),
        reward_funcs=reward or (lambda prompts, **_: [0.0] * len(prompts)),
        args=GRPOConfig(**options),
        train_dataset=Dataset.from_dict({"prompt": ["What is 2 plus 2?\n", "What is 3 plus 3?\n"]}),
    )


def trl_advantages(folder: Path, policy: Path, rewards: Sequence[float | None], scale: str, size: int = 4) -> Tensor:
    """The advantages that GRPOTrainer hands to its loss for these rewards, [N] float32."""
    found: list[Tensor] = []

    class Recorder(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            output = super()._generate_and_score_completions(inputs)
            found.append(output["advantages"])
            return output

    trainer = build(
        folder,
        policy,
        lambda prompts, **_: list(rewards),
        max_completion_length=1,
        scale_rewards=scale,
        num_generations=size,
        per_device_train_batch_size=len(rewards),
    )
    trainer.__class__ = Recorder
    trainer.train()
    return found[0]


def ours(rewards: Sequence[float | None], size: int = 4) -> tuple[Tensor, Tensor]:
    exact = torch.tensor([torch.nan if r is None else r for r in rewards], dtype=torch.float64)
    return exact, torch.arange(len(rewards)) // size


REWARDS: dict[str, list[float | None]] = {
    "binary": [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
    "saturated": [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0],
    "real": [0.3, -1.2, 0.8, 0.0, 2.0, 0.5, 0.5, 0.1],
    "unscorable": [None, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, None],
}


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
def test_grpo_advantages_are_trls_at_its_epsilon(
    tmp_path: Path, policy_folder: Path, rewards: list[float | None]
) -> None:
    found = trl_advantages(tmp_path, policy_folder, rewards, "group")
    torch.testing.assert_close(found.double(), grpo_advantages(*ours(rewards), TRL_EPSILON), rtol=1e-5, atol=1e-5)


def test_our_published_epsilon_differs_from_trls(tmp_path: Path, policy_folder: Path) -> None:
    rewards = REWARDS["binary"]
    found = trl_advantages(tmp_path, policy_folder, rewards, "group").double()
    difference = (grpo_advantages(*ours(rewards), 1e-6) / found - 1).abs()
    # (std + 1e-4) / (std + 1e-6) - 1 with standard deviations between 0.5 and 0.6
    assert 1.5e-4 < float(difference.min()) < float(difference.max()) < 2.1e-4


@pytest.mark.parametrize("rewards", REWARDS.values(), ids=REWARDS)
def test_dr_grpo_advantages_are_trls(tmp_path: Path, policy_folder: Path, rewards: list[float | None]) -> None:
    found = trl_advantages(tmp_path, policy_folder, rewards, "none")
    torch.testing.assert_close(found.double(), dr_grpo_advantages(*ours(rewards)), rtol=1e-5, atol=1e-6)


def test_a3_equal_rewards_give_trl_a_rounding_error_and_us_0(tmp_path: Path, policy_folder: Path) -> None:
    # Seven times 0.1 in float32: the mean is off by an ulp, and so is the "standard deviation".
    rewards: list[float | None] = [0.1] * 7
    assert trl_advantages(tmp_path, policy_folder, rewards, "group", size=7).ne(0).all()
    assert grpo_advantages(*ours(rewards, size=7), TRL_EPSILON).eq(0).all()


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory, policy_folder: Path) -> GRPOTrainer:
    """A trainer in float64, in evaluation mode: its loss is that of one whole batch."""
    made = build(tmp_path_factory.mktemp("trl"), policy_folder, beta=BETA)
    made.model.double().eval()
    return made


def rows() -> Batch:
    """Eight completions of lengths 1 to 7 after prompts of lengths 3 to 6."""
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> list[int]:
        return torch.randint(5, 500, (count,), generator=generator).tolist()

    prompts = [tokens(3 + i % 4) for i in range(8)]
    return make_batch(prompts, [Completion(tokens(1 + 5 * i % 7), "", "stop") for i in range(8)], 0, "cpu")


def loss_inputs(trainer: GRPOTrainer, batch: Batch) -> dict[str, Tensor]:
    """What `_compute_loss` takes: old and reference log-probs near the policy's, random advantages."""
    width = batch.mask.shape[1]
    unmasked = Batch(batch.input_ids, batch.attention_mask, torch.ones_like(batch.mask))
    current, _ = logprobs_in_chunks(trainer.model, unmasked, 1.0, 8)
    generator = torch.Generator().manual_seed(1)

    def near(distance: float) -> Tensor:
        return current + distance * torch.randn(current.shape, generator=generator, dtype=current.dtype)

    return {
        "prompt_ids": batch.input_ids[:, :-width],
        "prompt_mask": batch.attention_mask[:, :-width],
        "completion_ids": batch.input_ids[:, -width:],
        "completion_mask": batch.mask.long(),
        "old_per_token_logps": near(0.4),
        "ref_per_token_logps": near(0.2),
        "advantages": torch.randn(8, generator=generator, dtype=torch.float64),
        "num_items_in_batch": batch.mask.sum(),
    }


def gradient(model: torch.nn.Module, loss: Tensor) -> Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def losses(trainer: GRPOTrainer, loss_type: str, batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(TRL's loss, its gradient, our loss, our gradient) on one batch, with KL penalty and both clips active."""
    model, inputs = trainer.model, loss_inputs(trainer, batch)
    trainer.loss_type = loss_type
    theirs = trainer._compute_loss(model, inputs)
    their_gradient = gradient(model, theirs)
    logp = token_logprobs(model, batch, 1.0)
    surrogate = clipped_surrogate(logp, inputs["old_per_token_logps"], inputs["advantages"], CLIP_LOW, CLIP_HIGH)
    assert bool((surrogate.clipped_low & batch.mask).any())
    assert bool((surrogate.clipped_high & batch.mask).any())
    weights = aggregation_weights(batch.mask, AGGREGATION_OF[loss_type], MAX_LENGTH)
    per_token = surrogate.loss + BETA * kl_k3(logp, inputs["ref_per_token_logps"])
    own = torch.where(batch.mask, weights * per_token, 0.0).sum()
    return theirs.detach().double(), their_gradient, own.detach().double(), gradient(model, own)


@pytest.mark.parametrize("loss_type", AGGREGATION_OF)
def test_the_loss_and_its_gradient_are_trls(trainer: GRPOTrainer, loss_type: str) -> None:
    theirs, their_gradient, own, own_gradient = losses(trainer, loss_type, rows())
    torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(own_gradient, their_gradient, rtol=1e-4, atol=1e-6)
    assert float(own_gradient.abs().max()) > 1e-3


def test_trls_default_multiplies_the_kl_estimate_by_the_ratio(
    trainer: GRPOTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not in GRPO (arXiv 2402.03300, equation 4), nor in verl, which the paper trained with.
    monkeypatch.setattr(trainer.args, "use_bias_correction_kl", True)
    theirs, _, own, _ = losses(trainer, "grpo", rows())
    assert float((theirs - own).abs()) > 1e-4


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo"])
def test_a1_c3_rows_without_loss_tokens_dilute_trls_mean_but_not_ours(trainer: GRPOTrainer, loss_type: str) -> None:
    batch = rows()
    batch.mask[6:] = False
    theirs, their_gradient, own, own_gradient = losses(trainer, loss_type, batch)
    torch.testing.assert_close(theirs, own * 6 / 8, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(their_gradient, own_gradient * 6 / 8, rtol=1e-4, atol=1e-6)


def test_c1_trls_bnpo_depends_on_the_split_into_micro_batches_and_ours_does_not(trainer: GRPOTrainer) -> None:
    batch = rows()
    inputs = loss_inputs(trainer, batch)
    _, _, own, _ = losses(trainer, "dapo", batch)
    trainer.loss_type = "bnpo"

    def bnpo(part: slice) -> float:
        rows_of = {k: v[part] if v.ndim else v for k, v in inputs.items()}
        return float(trainer._compute_loss(trainer.model, rows_of).detach())

    assert bnpo(slice(0, 8)) == pytest.approx(float(own), rel=1e-5)
    assert abs((bnpo(slice(0, 4)) + bnpo(slice(4, 8))) / 2 - float(own)) > 0.01
