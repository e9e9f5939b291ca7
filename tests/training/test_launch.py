"""config/accelerate: the launcher's files start the processes that the trainer then finds."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
from ebpo.training.processes import Processes
processes = Processes("cpu")
print(f"{processes.rank} of {processes.count}: {processes.gather([processes.rank])}", flush=True)
"""


def start(repository, tmp_path, file: str, *arguments: str) -> subprocess.Popen[str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", f"config/accelerate/{file}"]
    return subprocess.Popen(
        [*command, *arguments, str(tmp_path / "program.py")],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> set[str]:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return set(re.findall(r"\d of \d: \[.*?\]", out))  # lines of two processes may run together


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_one_node(repository, tmp_path):
    job = start(repository, tmp_path, "ddp.yaml", "--num_processes", "2", "--main_process_port", free_port())
    assert output(job) == {"0 of 2: [0, 1]", "1 of 2: [0, 1]"}


def test_two_nodes_one_launcher_each(repository, tmp_path):
    shared = ["--num_processes", "2", "--main_process_ip", "127.0.0.1", "--main_process_port", free_port()]
    nodes = [start(repository, tmp_path, "fsdp2.yaml", *shared, "--machine_rank", str(rank)) for rank in range(2)]
    printed = [output(node) for node in nodes]
    assert all(len(lines) == 1 for lines in printed)
    assert set.union(*printed) == {"0 of 2: [0, 1]", "1 of 2: [0, 1]"}
