"""Real runs of the trainer on the demo's policy: kill -9 and resume, dynamic sampling, what counts as done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from ebpo.config import RunConfig, RunId, dump_yaml, parse_config
from ebpo.files import file_digest
from ebpo.grading import Grader
from ebpo.problems.build import build
from ebpo.problems.record import Problem, write_problems
from ebpo.rollouts.protocol import Completion, Sampling
from ebpo.training.collect import collect, mixed_groups
from ebpo.training.metrics import step_kl
from ebpo.training.stream import PromptStream

METHODS = ["grpo", "dr_grpo", "dapo", "entropy_mech", "ebpo"]


@pytest.fixture(scope="module")
def tiny(repository):
    return parse_config(yaml.safe_load((repository / "tests" / "workflow" / "tiny.yaml").read_text()))


@pytest.fixture(scope="module")
def problem_files(tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    sets = build(tiny.data)
    write_problems(folder / "train.parquet", sets.train)
    write_problems(folder / "validation.parquet", sets.validation)
    return folder


def run_config(tiny, method: str, steps: int) -> RunConfig:
    resolved = tiny.run_config(RunId(model="demo", method=method, order="shuffle", group_size=4, seed=0))
    return resolved.model_copy(update={"training": resolved.training.model_copy(update={"steps": steps})})


def start(repository, config: RunConfig, data: Path, out: Path, policy: Path) -> subprocess.Popen:
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.yaml").write_text(dump_yaml(config))
    command = [
        sys.executable, "scripts/train.py", "--config", out / "config.yaml", "--policy", policy,
        "--train", data / "train.parquet", "--validation", data / "validation.parquet", "--out", out,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(list(map(str, command)), cwd=repository, env=environment, stderr=subprocess.PIPE, text=True)


def rows_without_times(path: Path) -> list[dict]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("tokens_per_second", "rss_mb")} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_ends_in_the_same_bits(repository, tiny, problem_files, policy_folder, tmp_path, method):
    config = run_config(tiny, method, steps=6)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(repository, config, problem_files, whole, policy_folder)
    assert process.wait(timeout=300) == 0, process.stderr.read()

    process = start(repository, config, problem_files, killed, policy_folder)
    deadline = time.monotonic() + 200
    while not list(killed.glob("state/*/step-000003")):
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "summary.json").exists()

    process = start(repository, config, problem_files, killed, policy_folder)
    _, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    assert "resumed from the checkpoint of step" in log
    assert json.loads((killed / "summary.json").read_text())["resumed_at"]
    assert rows_without_times(killed / "metrics.jsonl") == rows_without_times(whole / "metrics.jsonl")
    assert file_digest(killed / "model") == file_digest(whole / "model")
    assert not (killed / "state").exists()


@pytest.mark.slow
def test_a_checkpoint_of_another_configuration_is_not_resumed(repository, tiny, problem_files, policy_folder, tmp_path):
    config = run_config(tiny, "ebpo", steps=50)
    process = start(repository, config, problem_files, tmp_path, policy_folder)
    while not list(tmp_path.glob("state/*/step-*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    process = start(repository, run_config(tiny, "grpo", steps=2), problem_files, tmp_path, policy_folder)
    _, log = process.communicate(timeout=300)
    assert process.returncode == 0, log
    assert "resumed" not in log
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["step"], summary["target"]) == (2, 2)


class ScriptedRollouts:
    """Answers every prompt of a problem whose id is in `right` correctly, in `mixed` half the time, else never."""

    def __init__(self, ids: dict[tuple[int, ...], str], right: set[str], mixed: set[str]) -> None:
        self.ids, self.right, self.mixed = ids, right, mixed
        self.calls = 0

    def generate(self, prompt_ids, n: int, sampling: Sampling) -> list[list[Completion]]:
        self.calls += 1
        groups = []
        for prompt in prompt_ids:
            name = self.ids[tuple(prompt)]
            hits = n if name in self.right else n // 2 if name in self.mixed else 0
            groups.append([Completion([1, 2], "\\boxed{7}" if i < hits else "\\boxed{8}", "stop") for i in range(n)])
        return groups


def scripted(right: set[str], mixed: set[str], max_rounds: int | None):
    names = [f"p{i}" for i in range(12)]
    problems = {n: Problem(n, n, "7", "s", "t", 1.0) for n in names}
    prompts = {n: [i] for i, n in enumerate(names)}
    rollouts = ScriptedRollouts({(i,): n for i, n in enumerate(names)}, right, mixed)
    stream = PromptStream(lambda epoch: names)
    with Grader() as grader:
        collected = collect(
            stream, problems, prompts, rollouts, grader, prompts=4, group_size=4,
            sampling=lambda attempt: Sampling(1.0, 4, attempt), max_rounds=max_rounds,
        )  # fmt: skip
    return collected, rollouts, stream


def test_dynamic_sampling_fills_the_batch_with_mixed_groups():
    collected, rollouts, stream = scripted({"p0"}, {"p1", "p3", "p4", "p5", "p6"}, max_rounds=5)
    assert rollouts.calls == collected.rounds == 2
    assert list(dict.fromkeys(collected.trained.problem_ids)) == ["p1", "p3", "p4", "p5"]
    assert len(collected.sampled.group_ids) == 32
    assert stream.cursor == 8


def test_dynamic_sampling_gives_up_after_its_rounds():
    collected, rollouts, _ = scripted(set(), set(), max_rounds=3)
    assert rollouts.calls == 3
    assert collected.trained.group_ids == []


def test_without_a_gate_every_group_is_trained_on():
    collected, _, _ = scripted({"p0"}, set(), max_rounds=None)
    assert collected.trained is collected.sampled


def test_two_draws_of_a_prompt_are_two_groups():
    collected, _, _ = scripted(set(), {f"p{i}" for i in range(12)}, max_rounds=None)
    collected.sampled.problem_ids[:] = ["p0"] * 16
    assert len(mixed_groups(collected.sampled)) == 4


def test_step_kl_by_hand():
    # d = ln 2 and 0 on the loss tokens: (2 - 1 - ln 2 + 0) / 2.
    old, new = torch.zeros(1, 3), torch.tensor([[0.6931472, 0.0, 5.0]])
    mask = torch.tensor([[True, True, False]])
    assert step_kl(old, new, mask) == pytest.approx((1 - 0.6931472) / 2, abs=1e-6)
