"""The committed study: its tables and claims are what its records and this code give."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from checkout_copy import copy_checkout
from pandas.testing import assert_frame_equal
from synthetic_experiment import REPOSITORY

from ebpo.config import read_config

pytestmark = pytest.mark.slow

STUDY = REPOSITORY / "results/study"
# The line of docs/evaluation.md, without the figures.
LINE = ["--configfile", "config/study.yaml", "--forceall", "--allowed-rules", "table", "claims", "section", "tables"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The study's folder in a checkout that has its records alone."""
    checkout = copy_checkout(REPOSITORY, tmp_path_factory.mktemp("study") / "checkout")
    with tarfile.open(STUDY / "records.tar.xz") as archive:
        archive.extractall(checkout, filter="data")
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *LINE, "--", "tables"]
    result = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=900, check=False)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    yield checkout / "results/study"
    shutil.rmtree(checkout)


def test_the_committed_files_are_those_of_the_configuration():
    config = read_config(REPOSITORY / "config/study.yaml")
    assert {path.stem for path in (STUDY / "tables").iterdir()} == set(config.comparisons)
    with tarfile.open(STUDY / "records.tar.xz") as archive:
        summaries = {name for name in archive.getnames() if name.endswith("/summary.json")}
    assert summaries == {f"results/study/{run.folder}/summary.json" for run in config.runs()}
    assert len(summaries) == 360


@pytest.mark.parametrize("folder", ["tables", "claims"])
def test_records_give_the_committed_numbers(made: Path, folder: str):
    committed = sorted((STUDY / folder).glob("*.csv"))
    assert [path.name for path in committed] == sorted(path.name for path in (made / folder).glob("*.csv"))
    for path in committed:
        frames = [pd.read_csv(file) for file in (path, made / folder / path.name)]
        # Not the bytes: another processor may round the last digit otherwise.
        assert_frame_equal(*frames, rtol=1e-4, atol=1e-6, obj=path.name)
