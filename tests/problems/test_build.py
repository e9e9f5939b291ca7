from __future__ import annotations

import json

import pytest
import yaml
from pydantic import TypeAdapter

from ebpo.config import Data, parse_config
from ebpo.problems.build import assert_disjoint, build
from ebpo.problems.record import Problem
from ebpo.problems.shares import share_of
from ebpo.problems.text import normalise


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


def published(folder, rows, benchmark, **changes):
    """A configuration of files in `folder`, which are written: (question, gold) pairs."""
    for name, pairs in (("own", rows), ("bench", benchmark)):
        lines = [json.dumps({"q": question, "a": gold}) for question, gold in pairs]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    columns = {"problem": "q", "answer": "a"}
    raw = {
        "source": "files",
        "folder": str(folder),
        "seed": 0,
        "train": {"path": "own.jsonl", "problems": len({q for q, _ in rows}), **columns},
        "validation": 1,
        "benchmarks": {"bench": {"path": "bench.jsonl", "problems": len(benchmark), **columns}},
    }
    return TypeAdapter(Data).validate_python(raw | changes)


QUESTIONS = [(f"What is {n} plus {n}?", str(2 * n)) for n in range(1, 9)]


def test_validation_is_held_out_by_the_seed_alone(tmp_path):
    one = build(published(tmp_path, QUESTIONS, [], validation=3, benchmarks={}))
    two = build(published(tmp_path, QUESTIONS, [], validation=3, benchmarks={}))
    other = build(published(tmp_path, QUESTIONS, [], validation=3, benchmarks={}, seed=1))
    assert [p.id for p in one.validation] == [p.id for p in two.validation] != [p.id for p in other.validation]
    assert {p.problem for p in one.train + one.validation} == {question for question, _ in QUESTIONS}
    assert one.counts["train"]["held_out"] == 3


def test_a_training_problem_of_a_benchmark_goes_and_is_listed(tmp_path):
    sets = build(published(tmp_path, QUESTIONS, [("WHAT IS $3$ plus $3$ ?", "6")]))
    assert [(o.benchmark, o.kind) for o in sets.overlaps] == [("bench", "text")]
    assert "What is 3 plus 3?" not in {p.problem for p in sets.train + sets.validation}
    assert sets.counts["train"]["contaminated"] == 1


def test_a_benchmark_that_would_shrink_is_an_error_that_names_the_problem(tmp_path):
    data = published(tmp_path, QUESTIONS, [("Who?", "\\frac{1}{"), ("Why?", "1")])
    with pytest.raises(ValueError, match=r"bench: .* has 1 distinct .* expects 2 .*bench-\w+: gold .* \(bad_gold\)"):
        build(data)


def test_another_number_of_questions_is_an_error(tmp_path):
    nine = {"path": "own.jsonl", "problem": "q", "answer": "a", "problems": 9}
    with pytest.raises(ValueError, match=r"train: own.jsonl has 8 distinct problems in 8 rows; .* expects 9"):
        build(published(tmp_path, QUESTIONS, [], train=nine, benchmarks={}))


def test_a_validation_set_as_large_as_training_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"data.validation: 8 must be smaller than the 8 training problems"):
        build(published(tmp_path, QUESTIONS, [], validation=8, benchmarks={}))


def test_near_duplicates_cannot_be_split_between_training_and_validation(tmp_path):
    reworded = [(f"Now then: what is the sum of {n} plus {n} in base ten?", str(2 * n)) for n in range(1, 9)]
    again = [(f"Well then: what is the sum of {n} plus {n} in base ten?", str(2 * n)) for n in range(1, 9)]
    sets = build(published(tmp_path, reworded + again, [], validation=4, benchmarks={}))
    assert sets.counts["train"]["near_duplicate"] == 8
    assert {p.problem for p in sets.train + sets.validation} == {question for question, _ in reworded}
