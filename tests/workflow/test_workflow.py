"""Real Snakemake runs of the whole DAG on a shrunken demo, in copies of this checkout."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from checkout_copy import copy_checkout, shorten_theory

pytestmark = pytest.mark.slow

TINY = ["--configfile", "tests/workflow/tiny.yaml"]
COMPARISONS = ["main", "clustering", "curriculum"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]


def snakemake(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=checkout, capture_output=True, text=True, timeout=900)


def planned(result: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Rule -> number of jobs, from a dry run's statistics."""
    lines = result.stdout.splitlines() + result.stderr.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("job ")), None)
    if start is None:
        return {}
    counts = {}
    for line in lines[start + 2 :]:
        if not line.strip():
            break
        rule, count = line.split()
        counts[rule] = int(count)
    return counts


def tables(checkout: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((checkout / "results" / "tiny" / "tables").iterdir())}


@pytest.fixture(scope="module")
def finished(repository, tmp_path_factory) -> Path:
    """A checkout in which `all` has run."""
    checkout = copy_checkout(repository, tmp_path_factory.mktemp("whole") / "checkout")
    shorten_theory(checkout)
    result = snakemake(checkout, *TINY, "--", "all")
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    for line in ("report:      results/tiny/report.html", "main table:  results/tiny/tables/main.md"):
        assert line in result.stdout + result.stderr
    return checkout


def test_a_second_run_has_nothing_to_do(finished):
    result = snakemake(finished, *TINY, "--", "all")
    assert result.returncode == 0
    assert "Nothing to be done" in result.stdout + result.stderr


def test_every_run_has_its_steps_and_its_scores(finished):
    root = finished / "results" / "tiny"
    runs = sorted(root.glob("runs/demo/*/G4/seed0"))
    assert [r.parts[-3] for r in runs] == [
        "ebpo-difficulty",
        "ebpo-shuffle",
        "ebpo-topic",
        "grpo-difficulty",
        "grpo-topic",
    ]
    for run in runs:
        assert len((run / "metrics.jsonl").read_text().splitlines()) == 7
        assert len((run / "evaluation" / "scores.csv").read_text().splitlines()) == 6
        assert not (run / "state").exists()
        assert "step 6/6 reward" in (root / "logs" / "train" / run.relative_to(root)).with_suffix(".log").read_text()


def test_killed_with_sigkill_it_resumes_and_ends_the_same(repository, finished, tmp_path):
    checkout = copy_checkout(repository, tmp_path / "checkout")
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command(*TINY, "--", *COMPARISONS), cwd=checkout, stdout=log, stderr=log, start_new_session=True
        )
        deadline = time.monotonic() + 600
        while not list(checkout.glob("results/tiny/runs/**/state/*/step-000002")):
            assert process.poll() is None, (tmp_path / "log").read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    result = snakemake(checkout, *TINY, "--", *COMPARISONS)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    assert "the process that held the lock was killed" in result.stderr
    assert "resumed from the checkpoint of step" in result.stdout + result.stderr
    assert tables(checkout) == tables(finished)  # and so two runs give identical tables


def test_deleting_one_runs_folder_retrains_that_run_alone(finished):
    before = tables(finished)
    shutil.rmtree(finished / "results" / "tiny" / "runs" / "demo" / "grpo-difficulty")
    plan = planned(snakemake(finished, *TINY, "-n", "--", "tables"))
    # Its best and its final checkpoint.
    assert (plan["train"], plan["sample"], plan["grade"]) == (1, 2, 2)
    assert not {"problems", "topics", "difficulty", "base_policy"} & set(plan)
    assert snakemake(finished, *TINY, "--", "all").returncode == 0
    assert tables(finished) == before


def test_an_ebpo_option_retrains_the_ebpo_runs_alone(finished, tmp_path):
    extra = tmp_path / "extra.yaml"
    extra.write_text("methods: {ebpo: {half_life: 8}}\n")
    result = snakemake(finished, *TINY, str(extra), "-n", "--", "all")
    assert planned(result)["train"] == 3, result.stdout[-3000:]
    assert "grpo" not in "".join(
        line for line in result.stdout.splitlines() if "wildcards: model=demo, method=" in line
    )


def test_a_comment_in_the_code_retrains_nothing(finished):
    path = finished / "ebpo" / "algorithms" / "ebpo.py"
    original = path.read_text()
    path.write_text(original + "\n# a remark\n")
    try:
        result = snakemake(finished, *TINY, "-n", "--", "all")
        assert "Nothing to be done" in result.stdout + result.stderr
        path.write_text(original + "\nANYTHING = 1\n")
        assert planned(snakemake(finished, *TINY, "-n", "--", "all"))["train"] == 5
    finally:
        path.write_text(original)


def test_the_papers_dag_is_planned_without_gpu_or_hub(repository, tmp_path):
    checkout = copy_checkout(repository, tmp_path / "checkout")
    result = snakemake(checkout, "--configfile", "config/paper.yaml", "-n", "--", "all")
    assert result.returncode == 0, result.stderr
    plan = planned(result)
    # 15 of Table 1, 9 of Table 2, 2 more of Table 3 (its topic runs are in Table 1), 2 of the curriculum.
    assert plan["train"] == 15 + 9 + 2 + 2
    assert plan["sample"] == plan["grade"] == 2 * 28 + 3  # two checkpoints a run, and the base policies
    result = snakemake(checkout, "--configfile", "config/paper.yaml", "--", "data")
    assert result.returncode != 0
    assert "cannot be had from the hub" in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config", "trian=1"], "config: trian: unknown key; allowed:"),
        (["--configfile", "config/config.yaml", "wrong.yaml"], "config: training.learning_rate: -1.0 is not allowed"),
    ],
)
def test_a_wrong_configuration_stops_before_any_job_with_one_line(repository, tmp_path, arguments, expected):
    checkout = copy_checkout(repository, tmp_path / "checkout")
    (checkout / "wrong.yaml").write_text("training: {learning_rate: -1.0}\n")
    result = snakemake(checkout, *arguments, "--", "all")
    assert result.returncode != 0
    lines = [
        line for line in result.stderr.splitlines() if line.strip() and not line.startswith(("Using", "Config file"))
    ]
    assert len(lines) == 1
    assert lines[0].startswith(expected)
    assert not (checkout / "results").exists()


def test_the_slurm_profile_is_found_from_the_root(repository):
    assert (repository / "slurm" / "config.yaml").resolve() == repository / "workflow/profiles/slurm/config.yaml"
