"""A run's inputs: which training problems it has, and what its digest depends on."""

from __future__ import annotations

import logging
import math
from pathlib import Path

import pandas as pd
import pytest

from ebpo.config import Curriculum, RunConfig, RunId
from ebpo.problems.record import Problem, write_problems
from ebpo.prompts import write_prompts
from ebpo.training.inputs import read_inputs
from ebpo.training.trainer import TrainingInputs

RATES = {"a": 0.0, "b": 0.0625, "c": 1.0, "d": 0.0}


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """The files of four training problems and one of validation."""
    problems = {"train": list(RATES), "validation": ["v"]}
    for name, ids in problems.items():
        write_problems(tmp_path / f"{name}.parquet", [Problem(i, f"{i}?", "1", "test", "", math.nan) for i in ids])
        write_prompts(tmp_path / "prompts" / f"{name}.parquet", {i: [ord(i)] for i in ids})
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "weights").write_text("w")
    pd.DataFrame({"id": list(RATES), "pass_rate": list(RATES.values())}).to_parquet(tmp_path / "difficulty.parquet")
    pd.DataFrame({"id": list(RATES), "topic": list("xxyy")}).to_parquet(tmp_path / "topics.parquet")
    tables = {name: tmp_path / f"{name}.parquet" for name in (*problems, "difficulty", "topics")}
    return {"policy": tmp_path / "policy", "prompts": tmp_path / "prompts", **tables}


@pytest.fixture
def config(tiny) -> RunConfig:
    return tiny.run_config(RunId(model="demo", method="grpo", order="difficulty", group_size=4, seed=0))


def with_curriculum(config: RunConfig, **options: bool) -> RunConfig:
    return config.model_copy(update={"curriculum": Curriculum(**options)})


def train_ids(inputs: TrainingInputs) -> list[str]:
    return [p.id for p in inputs.train]


def test_saturated_problems_are_kept_by_default(files, config, caplog):
    with caplog.at_level(logging.INFO):
        assert train_ids(read_inputs(config, **files)) == ["a", "b", "c", "d"]
    assert "dropped" not in caplog.text


@pytest.mark.parametrize(
    ("options", "left", "counts"),
    [
        ({"drop_all_fail": True}, ["b", "c"], "2 never solved by the base policy, 0 always; 2 are left"),
        ({"drop_all_pass": True}, ["a", "b", "d"], "0 never solved by the base policy, 1 always; 3 are left"),
        ({"drop_all_fail": True, "drop_all_pass": True}, ["b"], "2 never solved by the base policy, 1 always; 1 are"),
    ],
    ids=["fail", "pass", "both"],
)
def test_dropped_problems_leave_the_training_set_and_their_counts_the_log(files, config, caplog, options, left, counts):
    with caplog.at_level(logging.INFO):
        inputs = read_inputs(with_curriculum(config, **options), **files)
    assert train_ids(inputs) == left
    assert counts in caplog.text
    assert inputs.dropped["never_solved"] + inputs.dropped["always_solved"] == 4 - len(left)


def test_dropping_without_pass_rates_is_refused(files, config):
    with pytest.raises(ValueError, match="4 training problems have no pass rate"):
        read_inputs(with_curriculum(config, drop_all_fail=True), **{**files, "difficulty": None})


def test_a_training_problem_whose_prompt_was_too_long_is_left_out(files, config):
    write_prompts(files["prompts"] / "train.parquet", {"a": [1], "d": [2]})
    # It needs no pass rate either: difficulty reads the same prompts.
    pd.DataFrame({"id": ["a", "d"], "pass_rate": [0.5, 0.25]}).to_parquet(files["difficulty"])
    inputs = read_inputs(with_curriculum(config, drop_all_pass=True), **files)
    assert train_ids(inputs) == ["a", "d"]
    assert inputs.dropped == {"too_long": 2, "never_solved": 0, "always_solved": 0}


def test_a_validation_problem_without_a_prompt_is_named(files, config):
    write_prompts(files["prompts"] / "validation.parquet", {"w": [1]})
    with pytest.raises(ValueError, match="1 validation problems have no prompt, the first is v"):
        read_inputs(config, **files)


def test_an_empty_training_set_is_refused(files, config):
    write_problems(files["train"], [])
    with pytest.raises(ValueError, match=r"train.parquet: holds no problem; train needs at least one"):
        read_inputs(config, **files)


def test_a_table_without_its_column_is_named(files, config):
    files["topics"].write_bytes(files["difficulty"].read_bytes())
    with pytest.raises(ValueError, match=r"topics.parquet: column 'topic' is missing"):
        read_inputs(config, **files)


@pytest.mark.parametrize("name", ["train", "validation", "difficulty", "topics"])
def test_the_digest_depends_on_every_table(files, config, name):
    before = read_inputs(config, **files).digest
    frame = pd.read_parquet(files[name])
    frame["note"] = "changed"
    frame.to_parquet(files[name])
    assert read_inputs(config, **files).digest != before


def test_the_digest_depends_on_the_curriculum(files, config):
    assert (
        read_inputs(config, **files).digest != read_inputs(with_curriculum(config, drop_all_pass=True), **files).digest
    )
