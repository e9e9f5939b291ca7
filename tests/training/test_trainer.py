"""Real runs of the trainer on the demo's policy: kill -9 and resume, dynamic sampling, what counts as done."""

from __future__ import annotations

import json

import pytest
import torch
from run_training import finish, kill_at, rows_without_times, run_config, start

from ebpo.files import file_digest
from ebpo.grading import Grader
from ebpo.policy.loading import load_policy
from ebpo.problems.record import Problem
from ebpo.rollouts.protocol import Completion, Sampling
from ebpo.training.collect import Sampler, collect, mixed_groups
from ebpo.training.processes import Processes
from ebpo.training.stream import PromptStream

METHODS = ["grpo", "dr_grpo", "dapo", "entropy_mech", "ebpo"]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_ends_in_the_same_bits(repository, tiny, problem_files, policy_folder, tmp_path, method):
    config = run_config(tiny, method, steps=6)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(repository, config, problem_files, whole, policy_folder))
    kill_at(start(repository, config, problem_files, killed, policy_folder), killed, step=3)
    log = finish(start(repository, config, problem_files, killed, policy_folder))
    assert "resumed from the checkpoint of step" in log
    assert json.loads((killed / "summary.json").read_text())["resumed_at"]
    assert rows_without_times(killed / "metrics.jsonl") == rows_without_times(whole / "metrics.jsonl")
    assert file_digest(killed / "model") == file_digest(whole / "model")
    assert file_digest(killed / "best") == file_digest(whole / "best")
    assert not (killed / "state").exists()


@pytest.mark.slow
def test_a_checkpoint_of_another_configuration_is_not_resumed(repository, tiny, problem_files, policy_folder, tmp_path):
    config = run_config(tiny, "ebpo", steps=50)
    kill_at(start(repository, config, problem_files, tmp_path, policy_folder), tmp_path, step=1)
    log = finish(start(repository, run_config(tiny, "grpo", steps=2), problem_files, tmp_path, policy_folder))
    assert "resumed" not in log
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["step"], summary["target"]) == (2, 2)


@pytest.mark.slow
def test_the_best_checkpoint_is_that_of_the_best_validation(repository, tiny, problem_files, policy_folder, tmp_path):
    # At this learning rate the policy breaks at once. The base policy is better, but no checkpoint of the run.
    config = run_config(tiny, "grpo", steps=3, learning_rate=0.3, validate_every=1)
    finish(start(repository, config, problem_files, tmp_path, policy_folder))
    summary = json.loads((tmp_path / "summary.json").read_text())
    scores = [row["validation/maj@2"] for row in rows_without_times(tmp_path / "metrics.jsonl")]
    assert scores[0] > max(scores[1:])
    assert summary["best_step"] == 1 + scores[1:].index(max(scores[1:])) < 3
    folders = (policy_folder, tmp_path / "best", tmp_path / "model")
    base, best, final = (load_policy(folder)[0].state_dict() for folder in folders)
    assert not any(torch.equal(best[name], other[name]) for other in (base, final) for name in ("lm_head.weight",))


@pytest.mark.slow
def test_the_steps_kl_is_measured_as_often_as_asked(repository, tiny, problem_files, policy_folder, tmp_path):
    config = run_config(tiny, "grpo", steps=4, measure_kl_every=2)
    finish(start(repository, config, problem_files, tmp_path, policy_folder))
    rows = rows_without_times(tmp_path / "metrics.jsonl")
    assert {row["step"]: row["kl_step"] > 0 for row in rows if "kl_step" in row} == {2: True, 4: True}


class ScriptedRollouts:
    """Answers every prompt of a problem whose id is in `right` correctly, in `mixed` half the time, else never."""

    def __init__(self, ids: dict[tuple[int, ...], str], right: set[str], mixed: set[str]) -> None:
        self.ids, self.right, self.mixed = ids, right, mixed
        self.calls = 0

    def generate(self, prompt_ids, n: int, sampling: Sampling, keys=None) -> list[list[Completion]]:
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
            stream, Sampler(problems, prompts, rollouts, grader, Processes("cpu")), prompts=4, group_size=4,
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
