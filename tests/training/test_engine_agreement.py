"""An engine that does not sample from the trained policy stops the run; a small difference is corrected on request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_training import run_config

from ebpo.config import RunConfig
from ebpo.config.rollouts import Rollouts
from ebpo.policy.loading import load_policy
from ebpo.rollouts.protocol import Completion, Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts
from ebpo.training.inputs import read_inputs
from ebpo.training.trainer import train


class SeparateEngine(TransformersRollouts):
    """Stands in for vLLM: a second copy of the policy, and log-probs of its own.

    Args:
        push: whether `sync` takes over the trainer's weights, as it must.
        shift: added to every log-prob, in nats.
    """

    def __init__(self, folder: Path, push: bool = True, shift: float = 0.0) -> None:
        super().__init__(*load_policy(folder))
        self.push, self.shift = push, shift

    def sync(self, model) -> None:
        if self.push:
            self.model.load_state_dict(model.state_dict())

    def generate(self, prompt_ids, n: int, sampling: Sampling, keys=None) -> list[list[Completion]]:
        groups = super().generate(prompt_ids, n, sampling, keys)
        return [[replace(c, logprobs=[x + self.shift for x in c.logprobs]) for c in group] for group in groups]


@pytest.fixture(autouse=True)
def determinism() -> Iterator[None]:
    """What the trainer sets ends with the test."""
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def run(tiny, problem_files, policy_folder, tmp_path, monkeypatch) -> Callable[..., list[dict[str, float]]]:
    """Trains with an engine of this file in vLLM's place; the metrics of each step."""

    def trained(steps: int, rollouts: Rollouts, **engine: float) -> list[dict[str, float]]:
        monkeypatch.setattr(
            "ebpo.training.trainer.training_engine", lambda *args: SeparateEngine(policy_folder, **engine)
        )
        config: RunConfig = run_config(tiny, "dr_grpo", steps, completions_per_update=32, validate_every=10)
        config = config.model_copy(update={"rollouts": rollouts})
        data = {name: problem_files / f"{name}.parquet" for name in ("train", "validation")}
        inputs = read_inputs(config, policy=policy_folder, prompts=problem_files / "prompts", **data)
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        train(config, inputs, folder)
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]

    return trained


def test_an_engine_with_the_trainers_weights_passes_and_its_difference_is_logged(run):
    for row in run(3, Rollouts(engine="vllm")):
        assert 0 < row["rollout_logp/mean_abs"] <= row["rollout_logp/max_abs"] < 1e-4


def test_an_engine_that_keeps_its_old_weights_stops_the_run_at_the_next_step(run):
    with pytest.raises(ValueError, match=r"step 2: log-probs of the rollout engine differ.*weights are stale"):
        run(3, Rollouts(engine="vllm"), push=False)


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_log_probs_of_another_distribution_stop_the_run(run, engine):
    # The trainer's own model is checked as well: a wrong temperature or a wrong cache would show here.
    with pytest.raises(ValueError, match=r"step 1: .* by 0\.0?\d+ nats .*logprob_bound allows 0\.001"):
        run(1, Rollouts(engine=engine), shift=-0.002)


def test_the_configured_bound_decides(run):
    (row,) = run(1, Rollouts(engine="vllm", logprob_bound=0.1), shift=-0.05)
    assert row["rollout_logp/mean_abs"] == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(("shift", "weight", "capped"), [(-0.5, 1.2, 1.0), (0.1, 0.904837, 0.0)])
def test_the_importance_weights_scale_the_gradient_up_to_the_cap(run, shift, weight, capped):
    # pi_trainer / pi_engine is exp(-shift) for every token: the cap cuts exp(0.5), and exp(-0.1) is below it.
    rollouts = Rollouts(engine="vllm", logprob_bound=1.0)
    (plain,) = run(1, rollouts, shift=shift)
    (corrected,) = run(1, rollouts.model_copy(update={"importance_cap": 1.2}), shift=shift)
    assert corrected["importance/mean"] == pytest.approx(weight, rel=1e-4)
    assert corrected["importance/capped"] == capped
    assert corrected["grad_norm"] / plain["grad_norm"] == pytest.approx(weight, rel=1e-4)
    assert "importance/mean" not in plain
