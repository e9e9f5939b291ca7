"""The whole room at once: tables, facts, figures, and the program."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from ebpo.reporting.theory_figures import COLUMNS, THEORY_FIGURES, read_tables, read_theorems
from ebpo.theory.summary import TOTALS, simulate_all

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(repository, tmp_path_factory):
    out = tmp_path_factory.mktemp("theory")
    command = [sys.executable, "scripts/theory.py", "--replications", "48", "--out", str(out)]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return out


def test_every_theorem_has_analytic_and_simulated_values_that_agree(folder):
    table = read_theorems(folder)
    assert list(table.columns) == list(COLUMNS)
    assert set(table.theorem) == {"T1", "T2", "T3", "T4", "T5"}
    assert table.simulated.notna().all()
    assert "no" not in set(table.agree)
    assert (table.agree == "yes").sum() >= 18


def test_every_figure_is_drawn(folder):
    drawn = {path.name for path in (folder / "figures").iterdir()}
    assert drawn == {f"{name}.{suffix}" for name in THEORY_FIGURES for suffix in ("svg", "png")}


def test_facts_are_plain_json_and_hold_the_headlines(folder):
    facts = json.loads((folder / "facts.json").read_text())
    assert facts["t2_published_over_grpo"]["polarised/G=4"] == pytest.approx(1.5926, abs=1e-4)
    assert facts["t2_fails_above_tau2_over_sigma2"]["4"] == pytest.approx(1.693, abs=1e-3)
    assert facts["t5_topics_where_one_prior_loses_to_grpo"] == [0.1, 0.9]
    assert [line["total"] for line in facts["half_life"]] == list(TOTALS)
    recommended = [line["recommended"] for line in facts["half_life"]]
    assert recommended[0] is None
    assert recommended[1:] == sorted(recommended[1:], reverse=True)


def test_exact_closed_forms_lie_in_about_as_many_intervals_as_they_should(folder):
    for name, share in json.loads((folder / "facts.json").read_text())["interval_coverage"].items():
        assert share > 0.85, name


def test_the_exact_best_half_life_is_near_the_closed_form(folder):
    table = pd.read_csv(folder / "half_life.csv")
    moving = table[table.total > 0]
    assert (np.abs(np.log2(moving.best_exact / moving.recommended)) < 0.6).all()


def test_too_few_replications_are_refused():
    with pytest.raises(ValueError, match="at least 16"):
        simulate_all(8, 0, print)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="snakemake theory"):
        read_tables(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"theorems\.csv"):
        read_theorems(tmp_path)
