from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

from ebpo.evaluation.classes import CORRECT, Voter, answer_classes, majority_credits, tally
from ebpo.evaluation.estimators import Tally
from ebpo.grading import GradeItem, Grader, Verdict


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=1) as shared:
        yield shared


def wrong(*answers: str | None) -> list[Voter]:
    return [Voter("wrong", answer) for answer in answers]


def test_numbers_are_equivalent_by_value(grader):
    assert answer_classes([wrong("0.5", r"\frac{1}{2}", "1/2", "0.50", "2")], grader) == [[1, 1, 1, 1, 2]]


def test_expressions_are_equivalent_as_the_grader_says(grader):
    answers = wrong(r"2\sqrt{2}", r"\sqrt{8}", r"(x+1)^2", r"x^2+2x+1", r"\{1,2\}", r"\{2,1\}")
    (classes,) = answer_classes([answers], grader)
    assert classes[0] == classes[1]
    assert classes[2] == classes[3]
    assert classes[4] == classes[5]
    assert len(set(classes)) == 3


def test_acceptance_in_one_direction_is_enough(grader):
    # A named value answers a plain gold; either order of the two must give one class.
    assert answer_classes([wrong("x=5", "5"), wrong("5", "x=5")], grader) == [[1, 1], [1, 1]]


def test_correct_answers_are_one_class_by_verdict(grader):
    voters = [Voter("correct", r"\sqrt{8}"), Voter("correct", "whatever"), Voter("wrong", "3")]
    assert answer_classes([voters], grader) == [[CORRECT, CORRECT, 1]]


def test_no_answer_and_unscorable_do_not_vote(grader):
    voters = [Voter("wrong", None), Voter("unscorable", "7"), Voter("wrong", "3"), Voter("wrong", "3")]
    (classes,) = answer_classes([voters], grader)
    assert classes == [None, None, 1, 1]
    assert tally([v.verdict for v in voters], classes) == Tally(correct=0, wrong=(2,), abstained=1)


def test_the_most_frequent_class_comes_first_whatever_the_order(grader):
    voters = wrong("3", "8", "8", "no", "no", "no")
    for order in permutations(voters):
        (classes,) = answer_classes([order], grader)
        assert dict(zip((v.answer for v in order), classes, strict=True)) == {"no": 1, "8": 2, "3": 3}


def test_beyond_the_cap_classes_are_by_key(grader):
    voters = wrong("a+b", "a+b", "b+a", "b + a")
    assert answer_classes([voters], grader) == [[1, 1, 1, 1]]
    assert answer_classes([voters], grader, max_compared=1) == [[1, 1, 2, 2]]


def test_broken_answers_are_classes_of_their_own(grader):
    assert answer_classes([wrong(r"\frac{1", r"\frac{1", "((((")], grader) == [[1, 1, 2]]


def graded(grader: Grader, gold: str, *answers: str) -> list[Verdict]:
    return grader.grade_batch([GradeItem(gold=gold, completion=f"so \\boxed{{{a}}}") for a in answers])


def test_majority_by_equivalence_not_by_string(grader):
    # By string 3 has two votes and wins; as values the right answer 1/2 has three.
    right = graded(grader, "1/2", "0.5", r"\frac{1}{2}", "1/2", "3", "3")
    # And the other way round: wrong notations of one value outvote the right answer.
    outvoted = graded(grader, "7", "7", "7", r"\sqrt{2}", r"\frac{2}{\sqrt{2}}", r"2^{1/2}")
    tie = graded(grader, "7", "7", "8")
    silent = [Verdict("wrong", "no_answer")] * 2
    assert majority_credits([right, outvoted, tie, silent, []], grader) == [1.0, 0.0, 0.5, 0.0, 0.0]
