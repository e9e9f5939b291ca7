"""EBPO inside the real TRL, on the demo's policy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="trl is the extra `trl`, and not in verl's environment")

import trl
from datasets import Dataset
from peft import LoraConfig
from torch.utils.data import SequentialSampler
from trl import GRPOConfig, GRPOTrainer
from trl_processes import train as train_in_processes

from ebpo.algorithms.ebpo import EBPOBaseline, EBPOState
from ebpo.grading import GradeItem, Grader
from ebpo.integrations.trl import STATE_FILE, EBPOConfig, EBPOTrainer

Reward = Callable[..., Sequence[float | None]]


class Recorder(EBPOTrainer):
    """Keeps the advantages that the loss gets, a tensor per generation batch of training."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: list[torch.Tensor] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        if self.model.training:
            self.seen.append(output["advantages"])
        return output


def recording(reward: Reward) -> tuple[Reward, list[list[float | None]]]:
    """The reward function, and the list of the batches that it has graded."""
    batches: list[list[float | None]] = []

    def function(**arguments: Any) -> list[float | None]:
        batches.append(list(reward(**arguments)))
        return batches[-1]

    return function, batches


def by_token(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """1 where the token ids have an odd sum: cheap, and mixed inside groups."""
    return [float(sum(ids) % 2) for ids in completion_ids]


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "max_completion_length": 2,
        "max_steps": 2,
        "learning_rate": 3e-4,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "disable_tqdm": True,
        **changes,
    }


@pytest.fixture
def trainer(tmp_path: Path, policy_folder: Path) -> Callable[..., Recorder]:
    """Builds a trainer on 16 questions; keyword arguments change its configuration."""
    torch.set_num_threads(1)

    def build(
        reward: Reward | list[Reward] = by_token, extra: dict[str, Any] | None = None, **changes: Any
    ) -> Recorder:
        columns = {
            "prompt": [f"What is {n} plus {n}?\n" for n in range(16)],
            "topic": ["low" if n < 8 else "high" for n in range(16)],
        }
        return Recorder(
            model=str(policy_folder),
            reward_funcs=reward,
            args=EBPOConfig(**settings(tmp_path / "run", **changes)),
            train_dataset=Dataset.from_dict(columns),
            **(extra or {}),
        )

    return build


def ids(count: int, size: int = 4) -> torch.Tensor:
    return torch.arange(count) // size


def rewards(batch: Sequence[float | None]) -> torch.Tensor:
    return torch.tensor([torch.nan if r is None else r for r in batch], dtype=torch.float64)


@pytest.mark.slow
def test_training_learns_and_uses_our_advantages(tmp_path: Path, policy_folder: Path) -> None:
    torch.set_num_threads(1)
    questions = [(f"What is {a} plus {b}?\n", str(a + b)) for a in range(3, 11) for b in (4, 7, 12, 25)]
    grader = Grader()

    def accuracy(completions: list[str], answer: list[str], **_: Any) -> list[float | None]:
        verdicts = grader.grade_batch([GradeItem(a, c) for a, c in zip(answer, completions, strict=True)])
        return [{"correct": 1.0, "wrong": 0.0, "unscorable": None}[v.verdict] for v in verdicts]

    function, graded = recording(accuracy)
    trained = Recorder(
        model=str(policy_folder),
        reward_funcs=function,
        args=EBPOConfig(**settings(tmp_path, per_device_train_batch_size=128, max_completion_length=10, max_steps=20)),
        train_dataset=Dataset.from_list([{"prompt": q, "answer": a} for q, a in questions]),
    )
    trained.train()
    grader.close()

    baseline = EBPOBaseline()
    assert len(graded) == len(trained.seen) == 20
    for batch, advantages in zip(graded, trained.seen, strict=True):
        assert torch.allclose(advantages.double(), baseline(rewards(batch), ids(128)), atol=1e-6, rtol=0)
    assert trained.ebpo_state == baseline.state
    curve = [float(rewards(batch).nanmean()) for batch in graded]
    assert sum(curve[-5:]) / 5 > sum(curve[:5]) / 5 + 0.08


def test_metrics_are_in_trls_log(trainer: Callable[..., Recorder]) -> None:
    run = trainer()
    run.train()
    logged = [entry for entry in run.state.log_history if "reward" in entry]
    assert [entry["ebpo/mu_glob"] for entry in logged][-1] == pytest.approx(
        run.ebpo_state.priors["global"].rewards.mean
    )
    assert {"ebpo/shrinkage", "ebpo/sigma2", "ebpo/tau2", "ebpo/unscorable"} <= set(logged[0])


def test_completions_without_a_reward_leave_every_statistic(trainer: Callable[..., Recorder]) -> None:
    scores = [None, 1.0, 0.0, 0.0, None, None, None, None]
    run = trainer(lambda prompts, **_: scores, max_steps=1)
    run.train()
    expected = EBPOBaseline()(rewards(scores), ids(8))
    assert torch.allclose(run.seen[0].double(), expected, atol=1e-6)
    assert run.seen[0][[0, 4, 5, 6, 7]].eq(0).all()
    assert run.ebpo_state.priors["global"].rewards.count == 3


def test_several_reward_functions_are_summed_with_their_weights(trainer: Callable[..., Recorder]) -> None:
    first: list[float | None] = [1.0, 0.0, 1.0, 0.0, None, None, 0.0, 1.0]
    second: list[float | None] = [0.5, 0.5, 0.0, 1.0, None, 1.0, 1.0, 0.0]
    run = trainer([lambda prompts, **_: first, lambda prompts, **_: second], max_steps=1, reward_weights=[1.0, 0.5])
    run.train()
    total = torch.tensor([1.25, 0.25, 1.0, 0.5, torch.nan, 0.5, 0.5, 1.0], dtype=torch.float64)
    assert torch.allclose(run.seen[0].double(), EBPOBaseline()(total, ids(8)), atol=1e-6)


def test_a_reused_generation_batch_enters_the_prior_once(trainer: Callable[..., Recorder]) -> None:
    # 8 optimizer updates of 4 completions: batches of 8, each used in 2 slices x 2 iterations.
    run = trainer(per_device_train_batch_size=4, steps_per_generation=2, num_iterations=2, max_steps=8)
    run.train()
    assert len(run.seen) == 2
    assert run.ebpo_state.priors["global"].rewards.count == 16


def test_evaluation_leaves_the_prior_alone(trainer: Callable[..., Recorder]) -> None:
    run = trainer(extra={"eval_dataset": Dataset.from_dict({"prompt": ["What is 7 plus 7?\n"]})})
    run.train()
    before = run.ebpo_state
    run.evaluate()
    assert run.ebpo_state is before


def test_one_prior_per_cluster_column(trainer: Callable[..., Recorder]) -> None:
    function, graded = recording(by_token)
    run = trainer(
        function, ebpo_scope="cluster", ebpo_cluster_column="topic", per_device_train_batch_size=64, max_steps=1
    )
    run.train()
    prior = run.ebpo_state.priors
    assert set(prior) == {"low", "high"}
    assert prior["low"].rewards.count == prior["high"].rewards.count == 32
    assert sum(prior[topic].rewards.mean for topic in prior) == pytest.approx(2 * sum(graded[0]) / 64)


def test_a_missing_cluster_column_is_named(trainer: Callable[..., Recorder]) -> None:
    run = trainer(ebpo_scope="cluster", ebpo_cluster_column="subject")
    with pytest.raises(
        ValueError, match=r"ebpo_cluster_column: the dataset has no column 'subject'; it has prompt, topic"
    ):
        run.train()


def test_resume_continues_bit_for_bit(trainer: Callable[..., Recorder], tmp_path: Path) -> None:
    def history(run: Recorder) -> list[dict[str, float]]:
        timed = ("step_time", "train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss")
        entries = [e for e in run.state.log_history if "reward" in e]
        return [{k: v for k, v in entry.items() if k not in timed} for entry in entries]

    straight = trainer(max_steps=10, save_strategy="steps", save_steps=5)
    straight.train()
    shutil.rmtree(tmp_path / "run" / "checkpoint-10")
    resumed = trainer(max_steps=10, save_strategy="steps", save_steps=5)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-5"))
    assert 0 < straight.ebpo_state.priors["global"].rewards.mean < 1
    assert resumed.ebpo_state == straight.ebpo_state
    assert history(resumed) == history(straight)
    assert all(torch.equal(a, b) for a, b in zip(resumed.seen, straight.seen[5:], strict=True))


def test_a_checkpoint_without_the_prior_is_refused_by_name(trainer: Callable[..., Recorder], tmp_path: Path) -> None:
    trainer(save_strategy="steps", save_steps=2).train()
    (tmp_path / "run" / "checkpoint-2" / STATE_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=r"checkpoint-2/ebpo_state\.json: missing"):
        trainer(max_steps=3).train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))


def test_a_prior_of_other_options_is_refused(trainer: Callable[..., Recorder], tmp_path: Path) -> None:
    trainer(save_strategy="steps", save_steps=2).train()
    with pytest.raises(ValueError, match=r"half_life None, and ebpo_half_life is 64\.0"):
        trainer(ebpo_half_life=64.0).train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))


def test_saving_inside_a_generation_batch_is_refused_at_construction(trainer: Callable[..., Recorder]) -> None:
    with pytest.raises(ValueError, match=r"save_steps: 3 must be a multiple of 2"):
        trainer(steps_per_generation=2, save_strategy="steps", save_steps=3)


def test_resuming_inside_a_generation_batch_is_refused(trainer: Callable[..., Recorder], tmp_path: Path) -> None:
    # The last step is saved wherever it falls.
    trainer(steps_per_generation=2, save_strategy="steps", save_steps=2, max_steps=3).train()
    with pytest.raises(ValueError, match="saved inside a generation batch"):
        trainer(steps_per_generation=2, max_steps=4).train(
            resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3")
        )


def test_a_lora_adapter_is_trained(trainer: Callable[..., Recorder]) -> None:
    run = trainer(extra={"peft_config": LoraConfig(r=2, target_modules=["q_proj"])})
    run.train()
    adapters = [p for name, p in run.model.named_parameters() if "lora_B" in name]
    assert any(bool(p.ne(0).any()) for p in adapters)
    assert run.ebpo_state.priors["global"].rewards.count == 16


def test_a_users_grpo_config_keeps_its_settings(tmp_path: Path, policy_folder: Path) -> None:
    run = EBPOTrainer(
        model=str(policy_folder),
        reward_funcs=by_token,
        args=GRPOConfig(**settings(tmp_path, loss_type="dapo", num_generations=8)),
        train_dataset=Dataset.from_dict({"prompt": ["What is 7 plus 7?\n"]}),
    )
    assert (run.loss_type, run.beta, run.num_generations) == ("dapo", 0.0, 8)


def test_defaults_are_the_papers() -> None:
    config = EBPOConfig(use_cpu=True, bf16=False)
    assert (config.num_generations, config.beta, config.use_bias_correction_kl) == (4, 0.001, False)
    assert (config.loss_type, config.learning_rate, config.lr_scheduler_type) == ("grpo", 1e-6, "constant")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ebpo_half_life": -1.0}, r"ebpo_half_life: Input should be greater than 0 \(given: -1\.0\)"),
        ({"ebpo_prior": "beta"}, r"ebpo_prior: Input should be 'gaussian' or 'beta_binomial' \(given: 'beta'\)"),
        ({"ebpo_scope": "cluster"}, r"ebpo_cluster_column: None with ebpo_scope 'cluster'"),
    ],
)
def test_wrong_options_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EBPOConfig(use_cpu=True, bf16=False, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale_rewards": "none"}, "scale_rewards: 'none' cannot be had"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "multi_objective_aggregation: 'normalize_then_sum'"),
    ],
)
def test_settings_that_contradict_ebpo_are_refused(
    trainer: Callable[..., Recorder], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(**changes)


def test_a_group_of_mixed_prompts_is_refused(trainer: Callable[..., Recorder], monkeypatch: pytest.MonkeyPatch) -> None:
    run = trainer()
    monkeypatch.setattr(run, "_get_train_sampler", lambda dataset=None: SequentialSampler(run.train_dataset))
    with pytest.raises(RuntimeError, match="group 0 of the generation batch mixes prompts"):
        run.train()


def test_another_trl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl, "__version__", "1.17.0")
    with pytest.raises(RuntimeError, match=r"made for trl 1\.16, and the installed trl 1\.17\.0 differs: its version"):
        EBPOTrainer(model="unused")


def test_a_moved_method_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(GRPOTrainer, "_calculate_rewards")
    with pytest.raises(RuntimeError, match=r"trl 1\.16.*GRPOTrainer has no method _calculate_rewards"):
        EBPOTrainer(model="unused")


def test_a_changed_signature_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRPOTrainer, "_save_checkpoint", lambda self, model: None)
    with pytest.raises(RuntimeError, match=r"GRPOTrainer\._save_checkpoint has no parameter trial"):
        EBPOTrainer(model="unused")


@pytest.mark.slow
def test_two_processes_have_one_prior_and_it_is_that_of_one_process(tmp_path: Path) -> None:
    train_in_processes(tmp_path / "one", 4)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = [str(Path(__file__).with_name("trl_processes.py")), str(tmp_path / "two"), "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run([*launcher, *program], check=True, env=environment, timeout=300, capture_output=True)
    alone, rank0, rank1 = (
        json.loads((tmp_path / name).read_text()) for name in ("one/rank0.json", "two/rank0.json", "two/rank1.json")
    )
    assert rank0 == rank1
    assert rank0 == alone
    saved = json.loads((tmp_path / "two" / "checkpoints" / "checkpoint-4" / STATE_FILE).read_text())
    assert EBPOState.from_dict(saved["prior"]) == EBPOState.from_dict(alone["prior"])
