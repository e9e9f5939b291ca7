"""The completions that travel with the scores."""

from __future__ import annotations

import math

import pandas as pd

from ebpo.evaluation.examples import CHARACTERS, EACH, example_completions
from ebpo.problems.record import Problem


def graded(rows: list[tuple[str, int, str]], text: str = "7") -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["problem_id", "sample", "verdict"])
    more = {"reason": "integer", "extracted": "7", "tokens": 1, "finish_reason": "stop"}
    return frame.assign(benchmark="sums", completion=text, **more)


def problems(count: int) -> dict[str, Problem]:
    return {f"p{i}": Problem(f"p{i}", f"{i} + 1?", str(i + 1), "s", "t", math.nan) for i in range(count)}


def test_a_few_of_each_verdict_of_different_problems():
    rows = [(f"p{i}", j, "correct" if j else "wrong") for i in (3, 2, 1, 0) for j in (2, 1, 0)]
    found = example_completions(graded(rows), problems(4))
    chosen = [(row["verdict"], row["problem_id"], row["sample"]) for row in found]
    assert EACH == 2
    assert chosen == [("correct", "p0", 1), ("correct", "p1", 1), ("wrong", "p0", 0), ("wrong", "p1", 0)]
    assert (found[0]["question"], found[0]["gold"]) == ("0 + 1?", "1")


def test_what_could_not_be_graded_is_no_example():
    assert example_completions(graded([("p0", 0, "unscorable")]), problems(1)) == []


def test_a_long_completion_keeps_its_end():
    (row,) = example_completions(graded([("p0", 0, "correct")], "x" * CHARACTERS + "end"), problems(1))
    assert (len(row["completion"]), row["completion"][-3:], row["cut"]) == (CHARACTERS, "end", True)
