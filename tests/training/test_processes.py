"""Two real processes (gloo) do what one does: the same gradient, the same run; a lost one ends the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from run_training import finish, kill_at, rows_without_times, run_config, start
from tiny_model import ALGORITHMS, optimizer_batch, tiny_model

from ebpo.policy.loading import load_policy
from ebpo.training.processes import Processes
from ebpo.training.update import UpdateStatistics, accumulate_gradient

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("parallel", ["ddp", "fsdp2"])
def test_two_processes_have_the_gradient_of_one(repository, tmp_path, parallel):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "tests/training/gradient_of_processes.py", parallel, str(tmp_path / "gradients.pt"),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = torch.load(tmp_path / "gradients.pt")
    model, alone = tiny_model().float(), Processes("cpu")
    assert found.keys() == ALGORITHMS.keys()
    for name, settings in ALGORITHMS.items():
        model.zero_grad()
        accumulate_gradient(
            model, settings, optimizer_batch(model, settings), alone,
            temperature=1.0, micro_batch=8, statistics=UpdateStatistics(),
        )  # fmt: skip
        expected = torch.cat([p.grad.flatten() for p in model.parameters()])
        assert expected.norm() > 0
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6 * float(expected.norm()))


@pytest.mark.parametrize(("method", "parallel"), [("ebpo", "ddp"), ("entropy_mech", "fsdp2"), ("dapo", "fsdp2")])
def test_two_processes_train_as_one(repository, tiny, problem_files, policy_folder, tmp_path, method, parallel):
    # Three steps: later, rounding may change a sampled token, and then two runs differ honestly.
    config = run_config(tiny, method, steps=3)
    one, two = tmp_path / "one", tmp_path / "two"
    finish(start(repository, config, problem_files, one, policy_folder))
    finish(start(repository, config, problem_files, two, policy_folder, processes=2, parallel=parallel))
    assert json.loads((two / "summary.json").read_text())["processes"] == 2
    for expected, found in zip(*(rows_without_times(f / "metrics.jsonl") for f in (one, two)), strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    weights = [load_policy(folder / "model")[0].state_dict() for folder in (one, two)]
    for name, expected in weights[0].items():
        # AdamW moves a weight by at most the learning rate an update, whatever the size of its gradient.
        torch.testing.assert_close(weights[1][name], expected, rtol=1e-3, atol=6 * 3e-4 * 0.1)


def test_a_run_goes_on_with_another_number_of_processes(repository, tiny, problem_files, policy_folder, tmp_path):
    config = run_config(tiny, "ebpo", steps=4)
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    finish(start(repository, config, problem_files, whole, policy_folder))
    kill_at(start(repository, config, problem_files, moved, policy_folder), moved, step=2)
    log = finish(start(repository, config, problem_files, moved, policy_folder, processes=2, parallel="fsdp2"))
    assert "resumed from the checkpoint of step" in log
    for expected, found in zip(*(rows_without_times(f / "metrics.jsonl") for f in (whole, moved)), strict=True):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_lost_process_ends_the_job(repository, tiny, problem_files, policy_folder, tmp_path):
    job = start(repository, run_config(tiny, "grpo", steps=500), problem_files, tmp_path, policy_folder, processes=2)
    while not list(tmp_path.glob("state/*/step-*")):
        assert job.poll() is None
        time.sleep(0.05)
    ranks = [p for p in psutil.Process(job.pid).children(recursive=True) if "scripts/train.py" in p.cmdline()]
    last = max(ranks, key=lambda p: int(p.environ().get("LOCAL_RANK", -1)))
    last.send_signal(signal.SIGKILL)
    _, log = job.communicate(timeout=120)
    assert job.returncode != 0
    assert "SIGKILL" in log or "exitcode" in log
    assert not (tmp_path / "summary.json").exists()


def test_a_failing_process_ends_the_job_with_its_message(repository, tiny, problem_files, policy_folder, tmp_path):
    config = run_config(tiny, "grpo", steps=3)
    (tmp_path / "policy").mkdir()
    job = start(repository, config, problem_files, tmp_path / "out", Path(tmp_path / "policy"), processes=2)
    _, log = job.communicate(timeout=120)
    assert job.returncode != 0
    assert "config.json is missing" in log
