"""EBPO inside the real verl: `make test-verl` runs these in verl's own environment."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("verl", reason="verl has its own environment: make test-verl")

import verl
from exported_run import METHODS, export, problems, settings_of
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf, open_dict
from transformers import AutoTokenizer
from verl import DataProto
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback, build_checkpoint_callback
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.reward import load_reward_manager
from verl.trainer.ppo.utils import create_rl_dataset, need_critic, need_reference_policy
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils.config import omega_conf_to_dataclass, validate_config

from ebpo.algorithms.ebpo import EBPOBaseline, EBPOState
from ebpo.algorithms.settings import EntropyMechSettings
from ebpo.integrations.verl import METRICS_FILE, PRIOR_FILE, Driver, PriorCheckpoint, driver
from ebpo.integrations.verl_export import command

pytestmark = pytest.mark.verl

CONFIGURATIONS = os.path.join(os.path.dirname(verl.__file__), "trainer", "config")
CALLBACK = "trainer.checkpoint_callback_class=ebpo.integrations.verl.PriorCheckpoint"


def forget() -> None:
    driver.__dict__.update(Driver().__dict__)


@pytest.fixture(autouse=True)
def fresh_driver() -> None:
    """Every test begins without a prior."""
    forget()


def composed(*changes: str) -> DictConfig:
    """verl's PPO configuration, composed by hydra as verl's own main does."""
    with initialize_config_dir(CONFIGURATIONS, version_base=None):
        return compose("ppo_trainer", overrides=list(changes))


def batch(rewards: Sequence[float], uids: Sequence[str], lengths: Sequence[int] | None = None) -> DataProto:
    """A verl batch: the reward of a row at its last token; a row of length 0 has no loss token."""
    lengths = lengths or [1 + i % 3 for i in range(len(rewards))]
    mask = torch.tensor([[1] * n + [0] * (4 - n) for n in lengths])
    scores = torch.zeros(len(rewards), 4)
    for row, (reward, length) in enumerate(zip(rewards, lengths, strict=True)):
        scores[row, max(length - 1, 0)] = reward
    return DataProto.from_dict(
        tensors={"token_level_rewards": scores, "response_mask": mask},
        non_tensors={"uid": np.array(uids, dtype=object)},
    )


def advantages(data: DataProto, algorithm: Any = None) -> torch.Tensor:
    return compute_advantage(data, adv_estimator="ebpo", config=algorithm).batch["advantages"]


def steps(seed: int, count: int) -> list[tuple[list[float], list[str]]]:
    generator = np.random.default_rng(seed)
    return [
        (generator.integers(0, 2, 12).astype(float).tolist(), [f"{step}-{row // 4}" for row in range(12)])
        for step in range(count)
    ]


@pytest.mark.slow
def test_importing_verl_with_its_external_module_hook_registers_the_estimator() -> None:
    program = (
        "import verl; from verl.trainer.ppo.core_algos import get_adv_estimator_fn as f; print(f('ebpo').__name__)"
    )
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "ebpo.integrations.verl"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "compute_ebpo_advantage"


def test_advantages_through_verls_compute_advantage_are_ours() -> None:
    baseline = EBPOBaseline()
    for rewards, uids in steps(0, 5):
        data = batch(rewards, uids)
        found = advantages(data)
        groups = torch.tensor([sorted(set(uids)).index(uid) for uid in uids])
        expected = baseline(torch.tensor(rewards, dtype=torch.float64), groups)
        assert torch.allclose(found.double(), expected.unsqueeze(-1) * data.batch["response_mask"], atol=1e-6)
        assert torch.equal(data.batch["returns"], found)
    assert driver.state.priors["global"].rewards.count == 60


def test_the_current_trainer_of_verl_gets_the_same_advantages() -> None:
    rewards, uids = steps(1, 1)[0]
    keys = [f"{uid}_{row}_0" for row, uid in enumerate(uids)]
    current = compute_advantage_for_multi_trajectories(batch(rewards, uids), batch_keys=keys, adv_estimator="ebpo")
    forget()
    assert torch.equal(current.batch["advantages"], advantages(batch(rewards, uids)))


def test_groups_follow_the_uid_not_the_row() -> None:
    rewards, uids = steps(2, 1)[0]
    order = np.random.default_rng(3).permutation(12)
    straight = advantages(batch(rewards, uids, [2] * 12))
    forget()
    permuted = advantages(batch([rewards[i] for i in order], [uids[i] for i in order], [2] * 12))
    assert torch.allclose(permuted, straight[torch.from_numpy(order)], atol=1e-6)


def test_verls_padding_rows_leave_every_statistic() -> None:
    rewards, uids = steps(4, 1)[0]
    lengths = [2] * 12
    without = advantages(batch(rewards, uids, lengths))
    state = driver.state
    forget()
    # verl appends rows with reward 0, no loss token and one uid of their own (padding_utils.py).
    padded = advantages(batch([*rewards, 0.0, 0.0], [*uids, "pad", "pad"], [*lengths, 0, 0]))
    assert torch.equal(padded[:12], without)
    assert padded[12:].eq(0).all()
    assert driver.state == state


def test_an_unscorable_completion_gets_0_and_leaves_every_statistic() -> None:
    rewards = [math.nan, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    uids = ["a"] * 4 + ["b"] * 4
    data = batch(rewards, uids)
    found = advantages(data)
    expected = EBPOBaseline()(torch.tensor(rewards, dtype=torch.float64), torch.tensor([0] * 4 + [1] * 4))
    assert torch.allclose(found.double(), expected.unsqueeze(-1) * data.batch["response_mask"], atol=1e-6)
    assert driver.state.priors["global"].rewards.count == 7
    assert driver.metrics["unscorable"] == 1 / 8


def test_an_unscorable_completion_leaves_verls_loss_finite() -> None:
    data = batch([math.nan, 1.0, 0.0, 0.0], ["a"] * 4)
    found = advantages(data)
    actor = composed(
        "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
    ).actor_rollout_ref.actor
    logp = torch.full((4, 4), -1.0, requires_grad=True)
    loss, _ = get_policy_loss_fn("vanilla")(
        old_log_prob=logp.detach(),
        log_prob=logp,
        advantages=found,
        response_mask=data.batch["response_mask"],
        config=omega_conf_to_dataclass(actor),
    )
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert bool(torch.isfinite(logp.grad).all())


def test_options_come_from_the_algorithm_section() -> None:
    algorithm = composed("algorithm.adv_estimator=ebpo", "+algorithm.ebpo.half_life=3").algorithm
    baseline = EBPOBaseline(half_life=3)
    for rewards, uids in steps(5, 3):
        groups = torch.tensor([sorted(set(uids)).index(uid) for uid in uids])
        baseline(torch.tensor(rewards, dtype=torch.float64), groups)
        advantages(batch(rewards, uids), algorithm)
    assert driver.state.priors["global"].rewards.count == pytest.approx(
        baseline.state.priors["global"].rewards.count, abs=1e-12
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("+algorithm.ebpo.halflife=3", r"algorithm\.ebpo\.halflife: no such option; allowed: within, between"),
        ("+algorithm.ebpo.clip_low=0.1", r"algorithm\.ebpo\.clip_low: no such option"),
        ("+algorithm.ebpo.half_life=-1", r"algorithm\.ebpo\.half_life: Input should be greater than 0 \(given: -1\)"),
        ("+algorithm.ebpo.scope=cluster", r"algorithm\.ebpo\.scope: verl tells an estimator the group"),
        ("algorithm.adv_estimator=grpo", r"algorithm\.adv_estimator: 'grpo' has no prior to save"),
    ],
)
def test_wrong_options_stop_verl_before_it_starts_workers(change: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_checkpoint_callback(composed("algorithm.adv_estimator=ebpo", CALLBACK, change))


def checkpointing(folder: Path, *changes: str) -> CheckpointCallback:
    config = composed("algorithm.adv_estimator=ebpo", CALLBACK, f"trainer.default_local_dir={folder}", *changes)
    return build_checkpoint_callback(config)


def save(callback: CheckpointCallback, folder: Path, step: int) -> Path:
    """verl's own saving of a checkpoint, with stand-ins for its workers and its data."""
    trainer = SimpleNamespace(
        config=callback.config,
        global_steps=step,
        actor_rollout_wg=SimpleNamespace(save_checkpoint=lambda *_, **__: None),
        use_critic=False,
        train_dataloader=SimpleNamespace(state_dict=dict),
        trainer_mode="sync",
        checkpoint_callback=callback,
    )
    PPOTrainer._save_checkpoint(trainer)
    return folder / f"global_step_{step}"


@pytest.mark.parametrize("mode", ["auto", "resume_path"])
def test_resume_continues_bit_for_bit(tmp_path: Path, mode: str) -> None:
    data = steps(6, 10)
    straight = [advantages(batch(*step)) for step in data]
    state = driver.state

    callback = checkpointing(tmp_path)
    for step in data[:5]:
        advantages(batch(*step))
    checkpoint = save(callback, tmp_path, 5)
    forget()
    checkpointing(tmp_path, f"trainer.resume_mode={mode}", f"trainer.resume_from_path={checkpoint}")
    resumed = [advantages(batch(*step)) for step in data[5:]]
    assert all(torch.equal(a, b) for a, b in zip(resumed, straight[5:], strict=True))
    assert driver.state == state


def test_without_resume_the_prior_is_empty(tmp_path: Path) -> None:
    callback = checkpointing(tmp_path)
    advantages(batch(*steps(7, 1)[0]))
    save(callback, tmp_path, 1)
    checkpointing(tmp_path, "trainer.resume_mode=disable")
    assert driver.state == EBPOState()


def test_a_checkpoint_without_the_prior_is_refused_by_name(tmp_path: Path) -> None:
    checkpoint = save(checkpointing(tmp_path), tmp_path, 5)
    (checkpoint / PRIOR_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=r"global_step_5/ebpo_prior\.json: missing"):
        checkpointing(tmp_path)


def test_a_prior_of_other_options_is_refused(tmp_path: Path) -> None:
    save(checkpointing(tmp_path), tmp_path, 5)
    with pytest.raises(ValueError, match=r"half_life None, and algorithm\.ebpo\.half_life is 3\.0"):
        checkpointing(tmp_path, "+algorithm.ebpo.half_life=3")


def test_metrics_of_every_batch_are_appended(tmp_path: Path) -> None:
    checkpointing(tmp_path)
    for step in steps(8, 3):
        advantages(batch(*step))
    lines = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
    assert [line["batch"] for line in lines] == [1, 2, 3]
    assert lines[-1]["mu_glob"] == driver.state.priors["global"].rewards.mean


def test_a_prior_that_nobody_saves_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        advantages(batch(*steps(9, 1)[0]))
    assert "EBPO's prior will not be saved: set trainer.checkpoint_callback_class=" in caplog.text


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the exported EBPO run."""
    folder = tmp_path_factory.mktemp("export") / "run"
    done = export(folder, "ebpo")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def configurations(exported: Path) -> dict[str, DictConfig]:
    """Method -> configuration that hydra composes from the arguments of the run's command."""
    return {method: composed(*arguments(settings_of(method), exported)) for method in METHODS}


def arguments(values: dict[str, Any], folder: Path) -> list[str]:
    """What the shell makes of the overrides in the run's command."""
    lines = command(values).replace("$here", str(folder)).splitlines()
    return [shlex.split(line.removesuffix("\\"))[0] for line in lines if line.startswith("  ")][:-1]


@pytest.mark.slow
def test_the_command_starts_verl_with_this_configuration(exported: Path, configurations: dict[str, DictConfig]) -> None:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    # With --cfg, hydra prints the configuration of verl's main instead of training.
    shell = ["bash", str(exported / "run.sh"), "--cfg", "job"]
    done = subprocess.run(shell, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
    assert OmegaConf.to_yaml(OmegaConf.create(done.stdout)) == OmegaConf.to_yaml(configurations["ebpo"])


@pytest.mark.parametrize("method", METHODS)
def test_verl_accepts_the_configuration(configurations: dict[str, DictConfig], method: str) -> None:
    config = configurations[method]
    validate_config(config, need_reference_policy(config), need_critic(config))
    assert not need_critic(config)


@pytest.mark.parametrize(
    ("method", "aggregation", "estimator", "scaled", "loss", "clips", "kl", "gate"),
    [
        ("grpo", "seq-mean-token-mean", "grpo", True, "vanilla", (0.2, 0.2), 0.001, False),
        ("dr_grpo", "seq-mean-token-sum-norm", "grpo", False, "vanilla", (0.2, 0.2), 0.001, False),
        ("dapo", "token-mean", "grpo", True, "vanilla", (0.2, 0.28), None, True),
        ("entropy_mech", "token-mean", "grpo", True, "clip_cov", (1.0, 1.0), 0.001, False),
        ("ebpo", "seq-mean-token-mean", "ebpo", True, "vanilla", (0.2, 0.2), 0.001, False),
    ],
)
def test_the_configuration_is_the_method(
    configurations: dict[str, DictConfig],
    method: str,
    aggregation: str,
    estimator: str,
    scaled: bool,
    loss: str,
    clips: tuple[float, float],
    kl: float | None,
    gate: bool,
) -> None:
    config = configurations[method]
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    assert (actor.loss_agg_mode, algorithm.adv_estimator) == (aggregation, estimator)
    assert (algorithm.norm_adv_by_std_in_grpo, actor.policy_loss.loss_mode) == (scaled, loss)
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == clips
    assert (actor.kl_loss_coef if actor.use_kl_loss else None) == kl
    assert algorithm.filter_groups.enable == gate
    assert config.trainer.total_training_steps == 1000


def test_kl_cov_is_the_other_policy_loss_of_entropy_mech(exported: Path) -> None:
    variant = EntropyMechSettings(variant="kl_cov", kl_cov_fraction=0.01, kl_cov_coef=0.5)
    config = composed(*arguments(settings_of("entropy_mech", settings=variant), exported))
    validate_config(config, need_reference_policy(config), need_critic(config))
    loss = config.actor_rollout_ref.actor.policy_loss
    assert (loss.loss_mode, loss.kl_cov_ratio, loss.ppo_kl_coef) == ("kl_cov", 0.01, 0.5)
    assert callable(get_policy_loss_fn(loss.loss_mode))


def test_dr_grpo_divides_by_the_configured_length(configurations: dict[str, DictConfig]) -> None:
    config = configurations["dr_grpo"]
    assert config.actor_rollout_ref.actor.loss_scale_factor == config.data.max_response_length == 8192


def test_ebpos_callback_is_built_from_its_configuration(configurations: dict[str, DictConfig], tmp_path: Path) -> None:
    config = configurations["ebpo"].copy()
    config.trainer.default_local_dir = str(tmp_path)
    assert isinstance(build_checkpoint_callback(config), PriorCheckpoint)
    assert callable(get_adv_estimator_fn(config.algorithm.adv_estimator))


def test_verls_dataset_reads_the_table(
    exported: Path, configurations: dict[str, DictConfig], policy_folder: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    data = configurations["ebpo"].data.copy()
    with open_dict(data):
        data.cache_dir = str(tmp_path)
    dataset = create_rl_dataset(str(exported / "validation.parquet"), data, tokenizer, None)
    row, known = dataset[0], problems()[0]
    assert len(dataset) == 2
    assert row["reward_model"]["ground_truth"] == known.answer
    assert row["raw_prompt"][0]["content"].startswith(known.problem)


def reward_of(completion: str, row: dict[str, Any], config: DictConfig, policy_folder: Path) -> dict[str, Any]:
    """What verl's reward manager makes of a completion."""
    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    ids = torch.tensor([tokenizer(completion, add_special_tokens=False)["input_ids"]])
    data = DataProto.from_dict(
        tensors={"responses": ids, "attention_mask": torch.ones(1, 3 + ids.shape[1], dtype=torch.int64)},
        non_tensors={key: np.array([row[key]], dtype=object) for key in ("data_source", "reward_model", "extra_info")},
    )
    manager = load_reward_manager(config, tokenizer)
    return asyncio.get_event_loop_policy().get_event_loop().run_until_complete(manager.run_single(data))


def table_row(folder: Path, identifier: str) -> dict[str, Any]:
    rows = pq.read_table(folder / "train.parquet").slice(0, 6).to_pylist()
    return next(row for row in rows if row["extra_info"]["id"] == identifier)


@pytest.mark.parametrize(
    ("identifier", "completion", "score"),
    [
        ("q3", r"So \boxed{6}", 1.0),
        ("q3", r"So \boxed{7}", 0.0),
        ("two", r"\boxed{-2, 2}", 1.0),
        ("two", r"\boxed{2}", 0.0),
        ("pi", r"\boxed{3.141}", 1.0),
    ],
)
def test_verls_reward_manager_grades_with_our_grader(
    exported: Path,
    configurations: dict[str, DictConfig],
    policy_folder: Path,
    identifier: str,
    completion: str,
    score: float,
) -> None:
    row = table_row(exported, identifier)
    result = reward_of(completion, row, configurations["ebpo"], policy_folder)
    assert result["reward_score"] == score
    assert result["reward_extra_info"]["acc"] == score


@pytest.mark.parametrize(("method", "score"), [("ebpo", math.nan), ("grpo", 0.0)])
def test_what_cannot_be_graded_is_nan_for_ebpo_and_0_for_verls_estimators(
    exported: Path,
    configurations: dict[str, DictConfig],
    policy_folder: Path,
    method: str,
    score: float,
) -> None:
    row = table_row(exported, "q3")
    row["reward_model"]["ground_truth"] = ""
    result = reward_of(r"\boxed{6}", row, configurations[method], policy_folder)
    assert result["reward_score"] == pytest.approx(score, nan_ok=True)
    assert result["reward_extra_info"]["verdict"] == "unscorable"
    assert result["reward_extra_info"]["acc"] == 0.0


def test_dapos_overlong_punishment_is_verls_own(
    exported: Path, configurations: dict[str, DictConfig], policy_folder: Path
) -> None:
    config = configurations["dapo"].copy()
    row = table_row(exported, "q3")
    answer = r"So \boxed{6}"
    length = len(AutoTokenizer.from_pretrained(policy_folder)(answer, add_special_tokens=False)["input_ids"])
    # The completion fills half of a buffer of four tokens.
    config.reward.reward_kwargs.max_resp_len = length + 2
    config.reward.reward_kwargs.overlong_buffer_cfg.len = 4
    assert float(reward_of(answer, row, config, policy_folder)["reward_score"]) == pytest.approx(0.5)
