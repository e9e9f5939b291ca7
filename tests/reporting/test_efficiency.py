"""Completions to a target, by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from synthetic_experiment import Experiment

from ebpo.config import RunId
from ebpo.reporting.efficiency import completions_to_reach, efficiency_curves, efficiency_targets
from ebpo.reporting.runs import Run, read_runs
from ebpo.reporting.validation import validation_summary


def run(method: str, seed: int, total: list[float | None], accuracy: list[float | None]) -> Run:
    metrics = pd.DataFrame({"completions_total": total, "validation/pass@1": accuracy})
    return Run(RunId(model="m", method=method, order="topic", group_size=4, seed=seed), 4, metrics, {})


PLAIN = run("grpo", 0, [None, 100, 200, 300, 400], [0.2, None, 0.4, None, 0.6])
GREEDY = run("dapo", 0, [None, 300, 600, 900, 1200], [0.2, None, 0.7, None, 0.8])


def test_curves_start_at_nothing_sampled():
    curves = efficiency_curves([PLAIN])
    assert curves["step"].tolist() == [0, 2, 4]
    assert curves["completions"].tolist() == [0, 200, 400]
    assert curves["pass_at_1"].tolist() == [0.2, 0.4, 0.6]


def test_target_is_half_way_to_the_best_and_sampling_is_paid_for():
    # From 0.2 to the best, 0.8: 0.5. GRPO meets it half-way between 200 and 400 completions, DAPO at 3/5 of 600.
    targets = efficiency_targets(efficiency_curves([PLAIN, GREEDY])).set_index("method")
    assert targets["target"].tolist() == pytest.approx([0.5, 0.5])
    assert targets["completions"].to_dict() == pytest.approx({"grpo": 300, "dapo": 360})
    assert targets["final"].to_dict() == pytest.approx({"grpo": 0.6, "dapo": 0.8})
    assert targets["completions_final"].to_dict() == {"grpo": 400, "dapo": 1200}


def test_a_seed_that_never_arrives_leaves_no_mean():
    late = run("grpo", 1, [None, 100, 200, 300, 400], [0.2, None, 0.2, None, 0.3])
    row = efficiency_targets(efficiency_curves([PLAIN, late, GREEDY])).set_index("method").loc["grpo"]
    assert (row["seeds"], row["reached"]) == (2, 1)
    assert math.isnan(row["completions"])


def test_a_run_that_starts_above_the_target_needs_nothing():
    curve = pd.DataFrame({"step": [0, 1], "completions": [0, 9], "pass_at_1": [0.5, 0.4]})
    assert completions_to_reach(curve, 0.5) == 0
    assert math.isnan(completions_to_reach(curve, 0.6))


def test_a_run_without_validation_is_named():
    with pytest.raises(ValueError, match=r"runs/m/grpo-topic/G4/seed0: metrics.jsonl has no validation/pass@1"):
        efficiency_curves([run("grpo", 0, [1.0], [None])])


def test_files_of_an_experiment(experiment: Experiment):
    curves = efficiency_curves(read_runs(experiment.runs))
    assert len(curves) == 8 * 5
    assert set(efficiency_targets(curves)["reached"]) == {1}


def test_validation_names_the_first_best_step_and_what_the_end_has():
    votes = {"validation/maj@2": [0.6, 0.5, 0.5, 0.4], "validation/pass@2": [0.2, 0.8, 0.9, 0.7]}
    metrics = pd.DataFrame({**votes, "validation/pass@1": [0.1, 0.4, 0.6, 0.3]}, index=[0, 5, 10, 15])
    row = validation_summary([Run(PLAIN.id, 15, metrics, {})], 2).iloc[0]
    assert (row["best_step"], row["final_step"]) == (5, 15)
    assert (row["best_maj_at_2"], row["best_pass_at_1"], row["final_pass_at_2"]) == (0.5, 0.4, 0.7)
