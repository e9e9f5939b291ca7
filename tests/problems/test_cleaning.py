from __future__ import annotations

import pytest

from ebpo.problems.cleaning import NearIndex, drop_near_duplicates, drop_repeats, drop_ungradable
from ebpo.problems.record import Problem

GIFT = (
    "{} received $50 as a gift. She plans to buy two cassette tapes that cost $9 each and a headphone set that costs "
    "${}. How much money will she have left?"
)


def problem(identifier: str, text: str, answer: str = "7") -> Problem:
    return Problem(identifier, text, answer, "s", "", float("nan"))


def ids(problems: list[Problem]) -> list[str]:
    return [p.id for p in problems]


def test_of_equal_questions_the_first_stays():
    result = drop_repeats([problem("a", "What is 3+4?"), problem("b", "Why?"), problem("c", "what is  3+4?")])
    assert ids(result.kept) == ["a", "b"]
    assert [(r.problem.id, r.stage, r.reason) for r in result.removed] == [
        ("c", "exact_duplicate", "same question as a")
    ]


def test_equal_questions_with_equal_values_in_two_forms_do_not_conflict():
    result = drop_repeats([problem("a", "What is 3+4?", "7"), problem("b", "What is 3+4?", "7.0")])
    assert ids(result.kept) == ["a"]


def test_equal_questions_with_different_golds_all_go():
    result = drop_repeats([problem("a", "Q?", "7"), problem("b", "Q?", "7"), problem("c", "Q?", "8")])
    assert result.kept == []
    assert {(r.problem.id, r.stage) for r in result.removed} == {(i, "conflicting_gold") for i in "abc"}
    assert result.removed[0].reason == "the same question has golds '7' and '8'"


def test_a_gold_that_cannot_be_graded_goes_with_its_reason():
    result = drop_ungradable([problem("a", "Q?", "7"), problem("b", "R?", "\\frac{1}{")])
    assert ids(result.kept) == ["a"]
    assert result.removed[0].stage == "ungradable_gold"
    assert "bad_gold" in result.removed[0].reason


def test_similarity_is_that_of_pairs_of_words():
    # Pairs of "a b c d e" and "a b c d f" are ab bc cd de and ab bc cd df: 3 of 5 are shared.
    index = NearIndex(0.6)
    index.add("a b c d e")
    assert index.query("a b c d f") == [(0, pytest.approx(3 / 5))]
    stricter = NearIndex(0.61)
    stricter.add("a b c d e")
    assert stricter.query("a b c d f") == []


def test_a_reworded_question_is_a_near_duplicate():
    result = drop_near_duplicates(
        [problem("a", GIFT.format("Josie", 25)), problem("b", GIFT.format("Amanda", 25))], 0.8
    )
    assert ids(result.kept) == ["a"]
    assert result.removed[0].stage == "near_duplicate"
    assert result.removed[0].reason.endswith("to a")


def test_a_question_with_another_number_is_none():
    pair = [problem("a", GIFT.format("Josie", 25)), problem("b", GIFT.format("Josie", 26))]
    assert drop_near_duplicates(pair, 0.8).removed == []


def test_a_question_with_another_gold_is_none():
    pair = [problem("a", GIFT.format("Josie", 25), "7"), problem("b", GIFT.format("Amanda", 25), "8")]
    assert drop_near_duplicates(pair, 0.8).removed == []


def test_questions_of_a_template_are_all_kept():
    problems = [problem(f"{a}-{b}", f"What is {a} + {b}?", "7") for a in range(20) for b in range(20)]
    assert drop_near_duplicates(problems, 0.5).removed == []


def test_hashing_does_not_lose_pairs_just_above_the_threshold():
    index = NearIndex(0.8)
    asked = []
    for number in range(200):
        # 24 words of their own, of which one is another in the second question: 21 of 25 pairs are shared.
        own = [f"w{chr(97 + number % 26)}{chr(97 + number // 26)}{chr(97 + i)}" for i in range(24)]
        index.add(" ".join(own))
        asked.append(" ".join([*own[:20], "other", *own[21:]]))
    assert [index.query(question) for question in asked] == [[(n, pytest.approx(21 / 25))] for n in range(200)]
