"""Stale locks heal, living ones stay."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ebpo.workflow import clear_stale_lock, record_process


@pytest.fixture
def state(tmp_path) -> Path:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "0.input.lock").touch()
    return tmp_path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def note(state: Path, host: str, pid: int) -> None:
    (state / "holder").write_text(f"{host} {pid}\n")


def test_the_lock_of_a_dead_process_is_removed(state):
    note(state, socket.gethostname(), dead_pid())
    assert clear_stale_lock(state) == ["0.input.lock"]
    assert not list((state / "locks").iterdir())


def test_a_lock_taken_after_the_note_stays(state):
    # Another process has locked meanwhile and not yet noted itself.
    note(state, socket.gethostname(), dead_pid())
    os.utime(state / "holder", (1, 1))
    assert clear_stale_lock(state) == []


def test_the_lock_of_another_host_stays(state):
    note(state, "elsewhere", dead_pid())
    assert clear_stale_lock(state) == []


def test_the_lock_of_a_living_snakemake_stays(state):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "snakemake"])
    try:
        note(state, socket.gethostname(), process.pid)
        assert clear_stale_lock(state) == []
    finally:
        process.kill()
        process.wait()


def test_a_pid_that_is_another_program_now_does_not_hold_the_lock(state):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        note(state, socket.gethostname(), process.pid)
        assert clear_stale_lock(state) == ["0.input.lock"]
    finally:
        process.kill()
        process.wait()


def test_a_lock_of_unknown_origin_stays(state):
    assert clear_stale_lock(state) == []


def test_a_process_notes_itself(state):
    record_process(state)
    assert (state / "holder").read_text() == f"{socket.gethostname()} {os.getpid()}\n"
