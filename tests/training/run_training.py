"""Starts, kills and reads real training runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ebpo.config import ExperimentConfig, RunConfig, RunId, dump_yaml


def run_config(tiny: ExperimentConfig, method: str, steps: int, **changes: float) -> RunConfig:
    resolved = tiny.run_config(RunId(model="demo", method=method, order="shuffle", group_size=4, seed=0))
    return resolved.model_copy(update={"training": resolved.training.model_copy(update={"steps": steps, **changes})})


def start(
    repository, config: RunConfig, data: Path, out: Path, policy: Path, processes: int = 1, parallel: str = "ddp"
) -> subprocess.Popen:
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.yaml").write_text(dump_yaml(config))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes] if processes > 1 else []
    command = [
        sys.executable, *launch, "scripts/train.py", "--config", out / "config.yaml", "--policy", policy,
        "--train", data / "train.parquet", "--validation", data / "validation.parquet",
        "--prompts", data / "prompts", "--parallel", parallel, "--out", out,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(list(map(str, command)), cwd=repository, env=environment, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen, seconds: int = 300) -> str:
    """Waits for a training that must succeed; its log."""
    _, log = process.communicate(timeout=seconds)
    assert process.returncode == 0, log
    return log


def rows_without_times(path: Path) -> list[dict]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("tokens_per_second", "rss_mb")} for row in rows]


def kill_at(process: subprocess.Popen, folder: Path, step: int) -> None:
    """kill -9 once the checkpoint of a step is there."""
    deadline = time.monotonic() + 200
    while not list(folder.glob(f"state/*/step-{step:06d}")):
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "summary.json").exists()
