"""Pass rates: counted by the grader, joined from shards, and the same after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer

from ebpo.clustering.completions import Source, blocks_of, sample_blocks
from ebpo.clustering.difficulty import count_correct, difficulty_table, merge_counts
from ebpo.config import Difficulty
from ebpo.files import file_digest
from ebpo.policy.loading import load_policy
from ebpo.problems.record import Problem, write_problems
from ebpo.prompts import render, write_prompts
from ebpo.rollouts.protocol import Completion, FinishReason, Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts
from ebpo.seeds import derive_seed


def problem(identifier: str, text: str, answer: str) -> Problem:
    return Problem(identifier, text, answer, "test", "", float("nan"))


def answer(value: str, finish: FinishReason = "stop") -> Completion:
    return Completion([1], f"\\boxed{{{value}}}", finish)


def test_correct_scorable_and_truncated_completions_are_counted():
    problems = {"a": problem("a", "Calculate 3 + 4.", "7"), "b": problem("b", "Calculate 1 + 1.", "2")}
    block = {
        "a": [answer("7"), answer("8"), answer("7", "length")],
        "b": [answer("3"), answer("1", "length"), answer("0", "length")],
    }
    counts = count_correct([block], problems)
    assert counts.to_dict("records") == [
        {"id": "a", "rollouts": 3, "correct": 2, "truncated": 1},
        {"id": "b", "rollouts": 3, "correct": 0, "truncated": 2},
    ]


def counts(ids: str, correct: list[int], rollouts: int = 4) -> pd.DataFrame:
    return pd.DataFrame({"id": list(ids), "rollouts": rollouts, "correct": correct, "truncated": 0})


def test_shards_are_joined_in_the_order_of_the_prompts():
    empty = count_correct([], {})
    joined = merge_counts([counts("ca", [3, 1]), empty, counts("b", [2])], ["a", "b", "c"])
    assert joined["correct"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("first", "second"), [("ab", "b"), ("a", "c"), ("ab", "cd")], ids=["twice", "lost", "unknown"])
def test_shards_that_are_not_each_problem_once_are_refused(first, second):
    with pytest.raises(ValueError, match=r"not each of 3 problems once"):
        merge_counts([counts(first, [0] * len(first)), counts(second, [0] * len(second))], ["a", "b", "c"])


def test_the_table_keeps_raw_and_smoothed_rates_and_counts_the_saturated():
    table, summary = difficulty_table(counts("abcdef", [0, 0, 1, 2, 3, 4]), Difficulty(rollouts=4, buckets=2))
    assert table["pass_rate"].tolist() == [0, 0, 0.25, 0.5, 0.75, 1]
    assert table["smoothed"].is_monotonic_increasing
    assert table["smoothed"].between(0, 1, inclusive="neither").all()
    assert table["bucket"].tolist() == [1, 1, 1, 0, 0, 0]
    assert (summary["all_fail"], summary["all_pass"], summary["unscorable"]) == (2, 1, 0)
    assert [b["problems"] for b in summary["buckets"]] == [3, 3]


PROBLEMS = {f"{a}+{b}": problem(f"{a}+{b}", f"Calculate {a} + {b}.", str(a + b)) for a in range(20) for b in range(23)}
JOB = """\
template: plain
dtype: float32
max_prompt_tokens: 64
device: cpu
threads: 1
rollouts: {}
max_new_tokens: 10
difficulty: {rollouts: 4}
"""


@pytest.fixture(scope="module")
def measured(policy_folder, tmp_path_factory) -> Callable[[int], pd.DataFrame]:
    """Number of shards -> the counts of all of them, by the demo's policy in this process."""
    torch.set_num_threads(1)
    model, tokenizer = load_policy(policy_folder)
    prompts = {i: render(tokenizer, "plain", p.problem) for i, p in PROBLEMS.items()}
    sampling = Sampling(1.0, 10, derive_seed("difficulty", 0))
    source = Source(file_digest(policy_folder), "transformers", "float32", 4, sampling)

    def measure(shards: int) -> pd.DataFrame:
        cache = tmp_path_factory.mktemp("cache")
        parts = [
            count_correct(
                sample_blocks(
                    blocks_of(prompts, shard, shards), lambda: TransformersRollouts(model, tokenizer), source, cache
                ),
                PROBLEMS,
            )
            for shard in range(shards)
        ]
        return merge_counts(parts, list(prompts))

    return measure


def test_real_pass_rates_do_not_depend_on_the_number_of_shards(measured):
    whole = measured(1)
    assert 0 < whole["correct"].sum() < whole["rollouts"].sum()
    pd.testing.assert_frame_equal(measured(2), whole)


@pytest.mark.slow
def test_a_shard_killed_with_sigkill_resumes_and_ends_the_same(measured, tmp_path, repository, policy_folder):
    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    write_problems(tmp_path / "train.parquet", PROBLEMS.values())
    write_prompts(tmp_path / "prompts.parquet", {i: render(tokenizer, "plain", p.problem) for i, p in PROBLEMS.items()})
    (tmp_path / "policy.json").write_text(json.dumps({"sha256": file_digest(policy_folder)}))
    (tmp_path / "job.yaml").write_text(JOB)
    cache, out = tmp_path / "cache", tmp_path / "counts.parquet"
    command = [
        sys.executable, repository / "scripts/difficulty_shard.py", "--config", tmp_path / "job.yaml",
        "--policy", policy_folder, "--manifest", tmp_path / "policy.json", "--problems", tmp_path / "train.parquet",
        "--prompts", tmp_path / "prompts.parquet", "--shard", "0", "--cache", cache, "--out", out,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(cache.glob("[!.]*.parquet")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not out.exists()
    resumed = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert "block 1 of 3: sampled before" in resumed.stderr
    assert "block 3 of 3: sampled\n" in resumed.stderr
    pd.testing.assert_frame_equal(pd.read_parquet(out), measured(1))
