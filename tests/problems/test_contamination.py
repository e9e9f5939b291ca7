from __future__ import annotations

import pytest

from ebpo.config import Cleaning
from ebpo.problems.contamination import find_overlaps
from ebpo.problems.record import Problem

# 26 words, so 14 runs of 13.
LONG = "a b c d e f g h i j k l m n o p q r s t u v w x y z"


def problem(identifier: str, text: str) -> Problem:
    return Problem(identifier, text, "7", "s", "", float("nan"))


def overlaps(train: list[str], benchmark: list[str], **settings: float | None) -> list[tuple[str, str, str, float]]:
    found = find_overlaps(
        [problem(f"t{i}", text) for i, text in enumerate(train)],
        {"amc": [problem(f"b{i}", text) for i, text in enumerate(benchmark)]},
        Cleaning.model_validate(settings),
    )
    return [(o.train_id, o.benchmark_id, o.kind, o.overlap) for o in found]


def test_the_same_words_in_another_dress_are_found():
    assert overlaps(["Find $x+1$.", "Find $x+2$."], ["find \\(x + 1\\)"]) == [("t0", "b0", "text", 1.0)]


def test_a_reworded_short_question_is_found():
    train = ["Determine how many positive whole number divisors does 196 have"]
    found = overlaps(train, ["How many positive whole number divisors does 196 have?"])
    assert [(t, b, kind) for t, b, kind, _ in found] == [("t0", "b0", "near_duplicate")]


def test_a_quoted_question_is_found_with_its_share_of_runs():
    # The first 20 of 26 words hold 8 of 14 runs.
    quoted = f"Before it {LONG[: 2 * 20 - 1]} and something quite different after it"
    assert overlaps([quoted], [LONG]) == [("t0", "b0", "ngram", pytest.approx(8 / 14))]


def test_a_share_below_the_threshold_is_not_reported():
    # 16 words hold 4 of 14 runs: 0.286.
    quoted = f"Before it {LONG[: 2 * 16 - 1]} and something quite different after it"
    assert overlaps([quoted], [LONG]) == []
    assert overlaps([quoted], [LONG], overlap=0.28) != []


def test_innocent_phrasing_is_not_reported():
    phrase = "The answer can be written as $\\frac{m}{n}$, where $m$ and $n$ are relatively prime positive integers."
    train = [f"{chr(97 + i) * 3} draws {i} lines in a plane. {phrase} Find $m+n$." for i in range(12)]
    assert overlaps(train, [f"A ball is thrown at random. {phrase} Find $m+n$."]) == []
    assert overlaps(["Find the number of positive integers below 9"], ["Find the number of positive integers n"]) == []


def test_runs_that_many_training_questions_share_do_not_count():
    train = [f"{LONG} ending {'number ' * i}" for i in range(3)]
    assert len(overlaps(train, [f"{LONG} quite otherwise"], common=3, near_duplicate=None)) == 3
    assert overlaps(train, [f"{LONG} quite otherwise"], common=2, near_duplicate=None) == []
