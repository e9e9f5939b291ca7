"""Real trainings whose rollouts come from vLLM; `make test-vllm` runs them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from run_training import finish, kill_at, rows_without_times, run_config, start

from ebpo.algorithms.rollout_correction import logprob_difference, padded_values
from ebpo.config import ExperimentConfig, RunConfig
from ebpo.config.rollouts import Rollouts
from ebpo.files import file_digest
from ebpo.policy.loading import load_policy
from ebpo.prompts import read_prompts
from ebpo.rollouts.batch import make_batch, token_logprobs
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts
from ebpo.rollouts.vllm_engine import VLLMRollouts
from ebpo.training.inputs import read_inputs
from ebpo.training.trainer import train

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed; make test-vllm"),
]


def with_vllm(tiny: ExperimentConfig, steps: int, **rollouts: float) -> RunConfig:
    config = run_config(tiny, "ebpo", steps, validate_every=1)
    return config.model_copy(update={"rollouts": Rollouts(engine="vllm", **rollouts)})


@pytest.fixture(scope="module")
def trained(tiny, problem_files, policy_folder, tmp_path_factory) -> tuple[Path, VLLMRollouts]:
    """A run of three steps with two optimizer updates each: its folder, and the engine as the trainer left it."""
    folder, engines = tmp_path_factory.mktemp("run"), []
    with pytest.MonkeyPatch.context() as patch:
        # Asleep it would sample only after another push; what the trainer's last one left is the matter here.
        patch.setattr(VLLMRollouts, "sleep", lambda self: engines.append(self))
        config = with_vllm(tiny, 3, importance_cap=2.0)
        data = {name: problem_files / f"{name}.parquet" for name in ("train", "validation")}
        train(config, read_inputs(config, policy=policy_folder, prompts=problem_files / "prompts", **data), folder)
        torch.use_deterministic_algorithms(False)
    return folder, engines[-1]


def test_the_engine_agrees_with_the_trainer_at_every_step(trained):
    rows = [json.loads(line) for line in (trained[0] / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    for row in rows[1:]:
        assert 0 < row["rollout_logp/mean_abs"] < 1e-4
        assert row["rollout_logp/max_abs"] < 1e-3
        assert row["importance/mean"] == pytest.approx(1.0, abs=1e-4)
        assert row["importance/capped"] == 0
        assert row["updates"] == 2


def test_after_the_last_update_the_engine_is_the_written_policy(trained, problem_files, policy_folder):
    folder, engine = trained
    prompts = list(read_prompts(problem_files / "prompts" / "train.parquet").values())
    model, tokenizer = load_policy(folder / "model")
    greedy = Sampling(0.0, 10, 0)
    ours, theirs = (e.generate(prompts, 1, greedy) for e in (engine, TransformersRollouts(model, tokenizer)))
    assert [g[0].token_ids for g in ours] == [g[0].token_ids for g in theirs]
    groups = engine.generate(prompts, 4, Sampling(1.0, 10, 1))
    completions = [c for group in groups for c in group]
    batch = make_batch([p for p in prompts for _ in range(4)], completions, 0, "cpu")
    logprobs = padded_values([c.logprobs for c in completions], batch.mask.shape[1], "cpu")
    with torch.no_grad():
        written = logprob_difference(logprobs, token_logprobs(model, batch, 1.0), batch.mask)
        base = logprob_difference(logprobs, token_logprobs(load_policy(policy_folder)[0], batch, 1.0), batch.mask)
    assert written["rollout_logp/max_abs"] < 1e-3
    assert base["rollout_logp/max_abs"] > 1e-2  # the policy has moved


def test_a_killed_run_ends_in_the_same_bits(repository, tiny, problem_files, policy_folder, tmp_path):
    config = with_vllm(tiny, 4)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(repository, config, problem_files, whole, policy_folder))
    kill_at(start(repository, config, problem_files, killed, policy_folder), killed, step=2)
    finish(start(repository, config, problem_files, killed, policy_folder))
    assert json.loads((killed / "summary.json").read_text())["resumed_at"]
    assert rows_without_times(killed / "metrics.jsonl") == rows_without_times(whole / "metrics.jsonl")
    assert file_digest(killed / "model") == file_digest(whole / "model")


def test_two_processes_with_shards_push_whole_weights(repository, tiny, problem_files, policy_folder, tmp_path):
    config = with_vllm(tiny, 3)
    finish(start(repository, config, problem_files, tmp_path, policy_folder, processes=2, parallel="fsdp2"), 600)
    rows = rows_without_times(tmp_path / "metrics.jsonl")
    assert json.loads((tmp_path / "summary.json").read_text())["processes"] == 2
    # An engine that kept its first weights, or got a shard of them, would differ by more from step 2 on.
    assert all(0 < row["rollout_logp/max_abs"] < 1e-3 for row in rows[1:])
    assert rows[-1]["grad_norm"] > 0
