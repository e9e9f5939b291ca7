"""Tables, figures and claims from the small files of another machine alone: no data, no checkpoint, no metadata."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout_copy import copy_checkout
from synthetic_experiment import REPOSITORY, Experiment

pytestmark = pytest.mark.slow

# The line of README.md and docs/evaluation.md.
RULES = ["table", "draw_figures", "claims", "section", "tables", "figures"]
LINE = ["--forceall", "--allowed-rules", *RULES, "--", "tables", "figures", "claims"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but the small files of an experiment, of random ages."""
    folder = copy_checkout(REPOSITORY, tmp_path / "checkout")
    experiment = Experiment(folder / "results/demo")
    shutil.copy(experiment.config_path, folder / "experiment.yaml")
    for left in ("config", "clusters", "data"):
        shutil.rmtree(folder / "results/demo" / left)
    theorems = folder / "results/theory/theorems.csv"
    theorems.parent.mkdir()
    theorems.write_text(
        "theorem,quantity,setting,analytic,simulated,low,high,agree,claim\nT2,error,G = 4,1,1,0.9,1.1,yes,holds\n"
    )
    for path in (folder / "results").rglob("*"):
        if path.is_file():
            os.utime(path, (moment := random.Random(str(path)).uniform(1e9, 1.7e9), moment))
    return folder


def snakemake(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--configfile", "experiment.yaml", *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize("page", ["README.md", "docs/evaluation.md"])
def test_the_line_is_the_documented_one(page):
    assert " ".join(LINE) in (REPOSITORY / page).read_text(encoding="utf-8")


def test_one_line_makes_them_and_cannot_train(checkout):
    result = snakemake(checkout, *LINE)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    root = checkout / "results/demo"
    for name in (
        "tables/main.tex",
        "figures/efficiency.svg",
        "figures/curriculum.svg",
        "claims/claims.md",
        "claims/differences.csv",
    ):
        assert (root / name).is_file()
    logs = {path.relative_to(root / "logs").parts[0] for path in (root / "logs").rglob("*.log")}
    assert logs == {"config", "table", "figures.log", "claims.log"}
    assert not (root / "data").exists()


@pytest.mark.parametrize("file", ["metrics.jsonl", "evaluation/scores.csv", "evaluation_best/per_problem.csv"])
def test_a_missing_file_is_named(checkout, file):
    gone = Path("results/demo/runs/demo/dapo-topic/G4/seed0") / file
    (checkout / gone).unlink()
    result = snakemake(checkout, *LINE)
    assert result.returncode != 0
    assert "MissingInputException" in result.stdout + result.stderr
    assert str(gone) in result.stdout + result.stderr
    assert not (checkout / "results/demo/logs").exists()
