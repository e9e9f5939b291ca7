"""Sampling in blocks, also when killed, on the demo's policy."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from ebpo.config import Evaluation, EvaluationJob, dump_yaml
from ebpo.config.rollouts import Rollouts
from ebpo.evaluation import sampling
from ebpo.evaluation.protocol import Protocol, read_protocol
from ebpo.evaluation.sampling import sample_benchmarks
from ebpo.policy.loading import load_policy
from ebpo.problems.record import Problem, write_problems
from ebpo.prompts import write_prompts
from ebpo.rollouts.protocol import Completion
from ebpo.rollouts.transformers_engine import TransformersRollouts

NAMES = ["one", "two", "three"]


class Recorder:
    """An engine that says which keys it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[int]]] = []

    def generate(self, prompt_ids, n, settings, keys=None):
        self.calls.append((settings.seed, list(keys)))
        return [[Completion([key, i], f"{key} {i}", "stop") for i in range(n)] for key in keys]


PROTOCOL = Protocol(
    samples=2, temperature=1.0, top_p=1.0, max_new_tokens=8, seed=0, template="plain", max_prompt_tokens=64,
    dtype="float32", device="cpu", engine="e", problems={}, prompts={},
)  # fmt: skip
PROMPTS = {"a": {f"a{i}": [i] for i in range(5)}, "b": {"b0": [0]}}


def test_blocks_do_not_change_the_completions(tmp_path, monkeypatch):
    whole = sample_benchmarks(PROMPTS, Recorder(), PROTOCOL, tmp_path / "whole")
    monkeypatch.setattr(sampling, "_BLOCK", 4)
    engine = Recorder()
    pd.testing.assert_frame_equal(sample_benchmarks(PROMPTS, engine, PROTOCOL, tmp_path / "blocks"), whole)
    assert [keys for _, keys in engine.calls] == [[0, 1], [2, 3], [4], [0]]
    assert len({seed for seed, _ in engine.calls}) == 2  # one a benchmark
    assert whole["problem_id"].tolist() == [i for i in ("a0", "a1", "a2", "a3", "a4", "b0") for _ in range(2)]


def test_kept_blocks_are_not_sampled_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "_BLOCK", 4)
    whole = sample_benchmarks(PROMPTS, Recorder(), PROTOCOL, tmp_path)
    (tmp_path / "a-000002.parquet").unlink()
    engine = Recorder()
    pd.testing.assert_frame_equal(sample_benchmarks(PROMPTS, engine, PROTOCOL, tmp_path), whole)
    assert [keys for _, keys in engine.calls] == [[2, 3]]


def write_inputs(folder: Path) -> dict[str, dict[str, list[int]]]:
    """Problem and prompt tables of three benchmarks, and a job that samples them; the prompts."""
    prompts = {}
    for name in NAMES:
        problems = [Problem(f"{name}-{i}", f"Calculate {i} + {i}.", str(2 * i), "s", "t", 1.0) for i in range(64)]
        write_problems(folder / f"{name}.parquet", problems)
        prompts[name] = {p.id: [20 + i % 40, 30, 40] for i, p in enumerate(problems)}
        write_prompts(folder / "prompts" / f"{name}.parquet", prompts[name])
    settings = EvaluationJob(
        template="plain", dtype="float32", max_prompt_tokens=64, device="cpu", threads=1,
        rollouts=Rollouts(), evaluation=Evaluation(benchmarks=NAMES, samples=16, max_new_tokens=10),
    )  # fmt: skip
    (folder / "job.yaml").write_text(dump_yaml(settings))
    return prompts


@pytest.mark.slow
def test_killed_with_sigkill_it_goes_on_and_ends_the_same(tmp_path, repository, policy_folder):
    prompts, out = write_inputs(tmp_path), tmp_path / "out"
    command = [
        sys.executable, str(repository / "scripts/sample.py"), "--config", str(tmp_path / "job.yaml"),
        "--policy", str(policy_folder), "--benchmarks", *(str(tmp_path / f"{name}.parquet") for name in NAMES),
        "--prompts", *(str(tmp_path / "prompts" / f"{name}.parquet") for name in NAMES), "--out", str(out),
    ]  # fmt: skip
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("state/*/[!.]*.parquet")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "completions.parquet").exists()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.search("resumed: [12] of 3 blocks were sampled before", result.stderr)
    assert not (out / "state").exists()
    protocol = read_protocol(out / "protocol.json")
    model, tokenizer = load_policy(policy_folder)
    whole = sample_benchmarks(prompts, TransformersRollouts(model, tokenizer), protocol, tmp_path / "whole")
    pd.testing.assert_frame_equal(pd.read_parquet(out / "completions.parquet"), whole)
    assert len(whole) == 3 * 64 * 16
