from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ebpo import preflight
from ebpo.config import dump_yaml
from ebpo.config.models import Model
from ebpo.estimate import Architecture, run_disk_bytes
from ebpo.preflight import check_disk, check_gpus, check_policies, check_tokenizer


def unreachable(repository: str) -> bool:
    return False


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_found_only_where_one_is_needed():
    assert check_gpus("cpu", 0).ok
    found = check_gpus("cuda", 8)
    assert not found.ok
    assert found.detail == "8 needed, usable here: none"


def test_the_disk_must_hold_all_runs_at_once(tiny, policy_folder, tmp_path, monkeypatch):
    shape = Architecture.from_folder(policy_folder)
    needed = len(tiny.runs()) * run_disk_bytes(shape, tiny.training, half=False)
    for free, ok in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder, free=free: SimpleNamespace(free=free))
        assert check_disk(tmp_path, tiny, [("demo", shape)]).ok is ok


def test_a_policy_that_cannot_be_had_is_named(tiny, tmp_path):
    hub = Model(source="hub", path="owner/name")
    config = tiny.model_copy(update={"models": {"other": hub}})
    assert check_policies(config, tmp_path, unreachable).detail == "not to be had: ['owner/name']"
    assert check_policies(config, tmp_path, lambda repository: repository == "owner/name").ok
    lost = tiny.model_copy(update={"models": {"lost": Model(source="folder", path=str(tmp_path / "no"))}})
    assert not check_policies(lost, tmp_path, unreachable).ok


def test_a_policy_that_was_fetched_needs_no_network(tiny, policy_folder, tmp_path):
    config = tiny.model_copy(update={"models": {"other": Model(source="hub", path="owner/name")}})
    shutil.copytree(policy_folder, tmp_path / "other" / "model")
    assert check_policies(config, tmp_path, unreachable).ok


def test_a_chat_without_a_chat_template_is_found(tiny, policy_folder):
    assert check_tokenizer(tiny, "demo", policy_folder).ok
    chat = tiny.models["demo"].model_copy(update={"template": "chat"})
    found = check_tokenizer(tiny.model_copy(update={"models": {"demo": chat}}), "demo", policy_folder)
    assert not found.ok
    assert "needs a tokenizer with a chat template" in found.detail


def test_the_tiny_run_is_one_step_of_two_groups_of_the_same_run(tiny):
    config = tiny.run_config(tiny.runs()[0])
    small = preflight.tiny(config)
    assert (small.training.steps, small.training.completions_per_step) == (1, 2 * config.run.group_size)
    assert small.settings == config.settings


def start(repository, tiny, data: Path, policy: Path, out: Path, launch: list[str]) -> subprocess.CompletedProcess[str]:
    (out / "experiment.yaml").write_text(dump_yaml(tiny))
    command = [
        sys.executable, *launch, "scripts/preflight.py", "--config", out / "experiment.yaml", "--model", "demo",
        "--policy", policy, "--train", data / "train.parquet", "--validation", data / "validation.parquet",
        "--prompts", data / "prompts", "--parallel", "fsdp2", "--out", out / "verdicts.json",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(list(map(str, command)), cwd=repository, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_two_sharding_processes_pass_and_leave_nothing_but_the_verdicts(
    repository, tiny, problem_files, policy_folder, tmp_path
):
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = start(repository, tiny, problem_files, policy_folder, tmp_path, launch)
    assert done.returncode == 0, done.stderr
    verdicts = json.loads((tmp_path / "verdicts.json").read_text())
    assert [v["name"] for v in verdicts] == ["gpu", "disk", "policies", "tokenizer", "step"]
    assert verdicts[-1]["detail"] == "2 processes, 2 prompts: done"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["experiment.yaml", "verdicts.json"]


@pytest.mark.slow
def test_a_step_that_fails_ends_in_one_line_without_verdicts(repository, tiny, problem_files, policy_folder, tmp_path):
    broken = shutil.copytree(policy_folder, tmp_path / "broken")
    (broken / "model.safetensors").unlink()
    done = start(repository, tiny, problem_files, broken, tmp_path, [])
    assert done.returncode == 1
    assert "FAILED step: OSError:" in done.stdout
    assert done.stderr.splitlines()[-1].startswith("error: pre-flight of demo: failed: step;")
    assert not (tmp_path / "verdicts.json").exists()
