"""Scores over seeds and paired differences, from the files of the synthetic experiment."""

from __future__ import annotations

import pandas as pd
import pytest
from synthetic_experiment import Experiment

from ebpo.evaluation.intervals import bootstrap_interval
from ebpo.evaluation.paired import holm
from ebpo.reporting.differences import averages, differences
from ebpo.reporting.scores import read_rates


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Experiment:
    return Experiment(tmp_path_factory.mktemp("differences") / "results/demo")


@pytest.fixture(scope="module")
def rates(experiment) -> pd.DataFrame:
    return read_rates(experiment.scores)


@pytest.fixture(scope="module")
def frame(experiment, rates) -> pd.DataFrame:
    return differences(experiment.config, rates)


def test_averages_have_every_policy_and_benchmark(experiment, rates):
    frame = averages(experiment.config, rates)
    assert len(frame) == (1 + 2 * 8) * 6  # the base policy, two checkpoints of eight runs; five benchmarks, average
    frame, rates = (table[table["checkpoint"].isin(["", "final"])] for table in (frame, rates))
    own = rates[(rates["method"] == "dapo") & (rates["benchmark"] == "algebra")].sort_values("problem_id")
    row = frame[(frame["method"] == "dapo") & (frame["benchmark"] == "algebra")].iloc[0]
    expected = bootstrap_interval(own["rate"].to_numpy())
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((expected.mean, expected.low, expected.high))
    average = frame[(frame["method"] == "dapo") & (frame["benchmark"] == "average")].iloc[0]
    assert average["mean"] == pytest.approx(rates[rates["method"] == "dapo"].groupby("benchmark")["rate"].mean().mean())


def test_differences_are_paired_by_problem(frame, rates):
    frame, rates = (table[table["checkpoint"] == "best"] for table in (frame, rates))
    row = frame[
        (frame["comparison"] == "main") & (frame["a"] == "runs/demo/ebpo-topic/G4")
        & (frame["b"] == "runs/demo/grpo-topic/G4") & (frame["benchmark"] == "algebra")
    ].iloc[0]  # fmt: skip
    of = {
        m: rates[(rates["method"] == m) & (rates["order"] == "topic") & (rates["benchmark"] == "algebra")]
        .set_index("problem_id")["rate"]
        for m in ("ebpo", "grpo")
    }  # fmt: skip
    gap = of["ebpo"] - of["grpo"]
    assert row["mean"] == pytest.approx(gap.mean())
    assert row["se"] == pytest.approx(gap.std(ddof=1) / len(gap) ** 0.5)
    assert row["wins"] + row["ties"] + row["losses"] == row["problems"] == 20


def test_families_of_holms_correction(frame):
    final = frame[(frame["comparison"] == "main") & (frame["checkpoint"] == "final")]
    own = final[final["family"] == "averages"]
    assert sorted(own["a"].str.extract(r"demo/(\w+)-topic")[0]) == ["dapo", "dr_grpo", "ebpo", "entropy_mech"]
    assert own["p_holm"].tolist() == pytest.approx(list(holm(dict(enumerate(own["p"]))).values()))
    assert len(final[final["family"] == "benchmarks"]) == 4 * 5


def test_strata_hold_each_problem_once(frame):
    own = frame[(frame["comparison"] == "clustering") & (frame["family"] == "strata")]
    assert set(own["benchmark"]) <= {"base_0", "base_to_half", "base_over_half"}
    assert own.groupby("checkpoint")["problems"].sum().to_dict() == {"best": 100, "final": 100}


def test_a_base_policy_stands_against_every_seed(frame):
    own = frame[(frame["comparison"] == "main") & (frame["family"] == "averages, from base")]
    assert len(own) == 2 * 5
    assert set(own["b"]) == {"base/demo"}
