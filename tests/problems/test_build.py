from __future__ import annotations

import json

import pandas as pd
import pytest
import yaml

from ebpo.config import Dataset, parse_config
from ebpo.problems.build import assert_disjoint, build, share_of
from ebpo.problems.published_source import load
from ebpo.problems.record import Problem, normalise, read_problems, write_problems


@pytest.fixture(scope="module")
def data(repository):
    raw = yaml.safe_load((repository / "config" / "config.yaml").read_text())
    raw["data"] |= {"train": 240, "validation": 24}
    return parse_config(raw).data


@pytest.fixture(scope="module")
def sets(data):
    return build(data)


def test_sets_have_the_sizes_asked_for_and_share_no_question(data, sets):
    assert len(sets.train) == 240
    assert len(sets.validation) == 24
    texts = [normalise(p.problem) for ps in (sets.train, sets.validation, *sets.benchmarks.values()) for p in ps]
    assert len(set(texts)) == len(texts)


def test_which_set_a_question_may_be_in_depends_on_its_text_alone(data, sets):
    assert {share_of(p.problem, data.held_out) for p in sets.train} == {"train"}
    assert {share_of(p.problem, data.held_out) for p in sets.validation} == {"validation"}
    for problems in sets.benchmarks.values():
        assert {share_of(p.problem, data.held_out) for p in problems} == {"benchmark"}


def test_the_same_seed_gives_the_same_problems(data, sets):
    assert build(data).train == sets.train


def test_shared_questions_are_found():
    one = Problem("a-1", "What is 1 + 1?", "2", "s", "t", 1.0)
    two = Problem("b-1", " what is 1 +  1? ", "2", "s", "t", 1.0)
    with pytest.raises(ValueError, match=r"b-1 is in train and in algebra"):
        assert_disjoint({"train": [one], "validation": [], "algebra": [two]})
    with pytest.raises(ValueError, match=r"b-1 occurs more than once"):
        assert_disjoint({"train": [one, two], "validation": []})


def test_too_few_questions_are_named(data):
    leap_years = [c for c in data.cells if c.id == "leap_year"]
    few = data.model_copy(update={"cells": leap_years, "benchmarks": {}, "train": 1, "validation": 10_000})
    with pytest.raises(ValueError, match=r"data\.validation: 10000 asked for, but its cells have only \d+ distinct"):
        build(few)


def test_a_problem_table_survives_its_file(tmp_path, sets):
    write_problems(tmp_path / "p.parquet", sets.train)
    assert read_problems(tmp_path / "p.parquet") == sets.train


def test_repeated_rows_of_a_nested_schema_become_one_problem(tmp_path):
    rows = [
        {"prompt": [{"content": f"What is {n}?", "role": "user"}], "reward_model": {"ground_truth": str(n)}}
        for n in range(3)
    ]
    pd.DataFrame(rows * 100).to_parquet(tmp_path / "DAPO-Math-17k.parquet")
    dataset = Dataset(
        path="BytedTsinghua-SIA/DAPO-Math-17k", split="train", problems=3,
        problem="prompt.0.content", answer="reward_model.ground_truth",
    )  # fmt: skip
    problems, counts = load("train", dataset, str(tmp_path))
    assert [p.answer for p in problems] == ["0", "1", "2"]
    assert counts == {"rows": 300, "distinct": 3}
    with pytest.raises(ValueError, match="3 distinct problems in 300 rows; the configuration expects 4"):
        load("train", dataset.model_copy(update={"problems": 4}), str(tmp_path))


def test_a_missing_mirror_file_and_column_are_named(tmp_path):
    dataset = Dataset(path="math-ai/aime25", split="test", problem="problem", answer="answer", problems=1)
    with pytest.raises(FileNotFoundError, match=r"aime25\.parquet"):
        load("aime25", dataset, str(tmp_path))
    (tmp_path / "aime25.jsonl").write_text(json.dumps({"question": "x", "answer": "1"}) + "\n")
    with pytest.raises(ValueError, match="column 'problem' is missing"):
        load("aime25", dataset, str(tmp_path))
