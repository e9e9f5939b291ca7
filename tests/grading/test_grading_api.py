"""The public functions: extraction policy, reasons, golds as lists, types, tolerances, gold checks, counts."""

from __future__ import annotations

import logging
from typing import Any, get_args

import pytest

from ebpo.grading import (
    OUTCOME_OF_REASON,
    GradeItem,
    Grader,
    Reason,
    UnscorableError,
    Verdict,
    VerdictCounts,
    check_gold,
    check_unscorable,
    grade,
)
from ebpo.grading.extract import extract_answer


def boxed(gold: Any, answer: str, **options: Any) -> Verdict:
    return grade(gold=gold, completion=f"\\boxed{{{answer}}}", **options)


@pytest.mark.parametrize(
    ("gold", "completion", "reason"),
    [
        ("42", r"\boxed{42}", "exact"),
        ("42", r"\boxed{042}", "integer"),
        (r"\frac12", r"\boxed{0.5}", "rational"),
        (r"\sqrt{8}", r"\boxed{2\sqrt2}", "symbolic"),
        (r"\text{Yes}", r"\boxed{yes}", "exact"),
        (r"\text{New York}", r"\boxed{newyork}", "text"),
        ("42", r"\boxed{41}", "different"),
        (r"\sqrt{8}", r"\boxed{2\sqrt3}", "different"),
        ("42", "nothing", "no_answer"),
        ("42", r"\boxed{}", "no_answer"),
        ("42", r"\boxed{41, 42}", "hedge"),
        ("42", r"\boxed{42=43}", "hedge"),
        ("42", r"\boxed{" + "4" * 401 + "}", "too_long"),
        ("42", r"\boxed{9^{9^{9^{9}}}}", "danger"),
        (r"\sqrt{7}", r"\boxed{\sum_{k=1}^{10^9} k^k}", "danger"),
        (r"\sqrt{7}", r"\boxed{\sqrt{7}^{9^{9^{9}}}}", "danger"),
        (r"\sqrt{7}", r"\boxed{e^{e^{e^{e}}}}", "danger"),
        (r"\sqrt{7}", r"\boxed{\binom{10^9}{5\cdot10^8}\pi}", "danger"),
        (r"\sqrt{7}", r"\boxed{(10^8)!\pi}", "danger"),
        (r"\sqrt{7}", r"\boxed{((3^{99})^{99})^{99}\pi}", "danger"),
        ("x+1", r"\boxed{(x+1)^{5000}}", "danger"),
        ("x+1", r"\boxed{" + "(" * 60 + "x" + ")" * 60 + "}", "danger"),
        ("", r"\boxed{42}", "bad_gold"),
        ("  ", r"\boxed{42}", "bad_gold"),
        (r"\frac{1}{", r"\boxed{42}", "bad_gold"),
        (r"\nosuchcommand{3}+x", r"\boxed{x+1}", "bad_gold"),
        ("7/0", r"\boxed{7/18}", "bad_gold"),
        ("7/18", r"\boxed{7/0}", "different"),
    ],
)
def test_reason(gold: str, completion: str, reason: Reason) -> None:
    verdict = grade(gold=gold, completion=completion)
    assert (verdict.reason, verdict.verdict) == (reason, OUTCOME_OF_REASON[reason])


def test_every_reason_has_an_outcome() -> None:
    assert set(get_args(Reason)) == set(OUTCOME_OF_REASON)


def test_gold_comes_first_whatever_the_order_of_an_asymmetric_library() -> None:
    # math-verify itself answers False to one of these
    assert boxed(r"x \in [-2,7]", r"-2 \le x \le 7").verdict == "correct"
    assert boxed(r"-2 \le x \le 7", r"x \in [-2,7]").verdict == "correct"


def test_gold_and_answer_are_not_exchangeable() -> None:
    assert boxed("35_8", "35").verdict == "correct"
    assert boxed("35", "35_8").verdict == "wrong"


def test_arguments_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        grade("42", r"\boxed{42}")  # type: ignore[misc]


@pytest.mark.parametrize("completion", [None, 42, b"\\boxed{42}"])
def test_a_completion_that_is_no_string_is_an_error(completion: Any) -> None:
    with pytest.raises(TypeError, match="completion must be a string"):
        grade(gold="42", completion=completion)


@pytest.mark.parametrize("gold", [None, 42, [42], [["1", 2]]])
def test_a_gold_that_is_no_string_is_an_error(gold: Any) -> None:
    with pytest.raises(TypeError, match="gold must"):
        grade(gold=gold, completion=r"\boxed{42}")


def test_extracted_is_the_raw_text_cut_for_logs() -> None:
    assert boxed("42", r" \mathbf{42} ").extracted == r"\mathbf{42}"
    assert boxed("42", "4" * 300).extracted == "4" * 200
    assert grade(gold="42", completion="none").extracted is None


# extraction


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\boxed{3}}", r"\boxed{3}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{1} \fbox{2}", "2"),
        (r"\boxed{1} \boxed{2", None),
        (r"\boxed{1} \boxed{}", None),
        (r"\boxed{1} \boxed 2", None),
        (r"\boxed{ {1 } and \boxed{2}", "2"),
        ("\\boxed{" + "1+" * 150 + "1}", "1+" * 150 + "1"),
        ("{ } } { \\boxed{7} }", "7"),
        ("", None),
        ("Answer: 5", "5"),
        ("answer:5", "5"),
        ("Answer: 5\nAnswer: 6\n", "6"),
        ("Answer:\n5", None),
        ("The answer is 3.5. Good.", "3.5"),
        ("Answer: 5\nThis answer is checked.", "5"),
        ("Answer: 5 \\boxed{6}", "6"),
        ("Answer: 5 \\boxed{", None),
        ("<think>\\boxed{5}", None),
        ("<think>Answer: 4</think>Answer: 5", "5"),
    ],
)
def test_extraction(completion: str, answer: str | None) -> None:
    assert extract_answer(completion, max_chars=10_000) == answer


def test_only_the_end_of_a_long_completion_is_looked_at() -> None:
    assert extract_answer(r"\boxed{1}" + "x" * 100, max_chars=50) is None
    assert extract_answer("x" * 100 + r"\boxed{1}", max_chars=50) == "1"


def test_answer_lines_can_be_switched_off() -> None:
    with Grader(answer_line=False) as grader:
        assert grader.grade(gold="5", completion="Answer: 5").reason == "no_answer"
        assert grader.grade(gold="5", completion=r"\boxed{5}").verdict == "correct"


# golds as lists


def test_a_list_of_strings_accepts_any_of_them() -> None:
    assert boxed(["3", r"\sqrt{2}"], "3").verdict == "correct"
    assert boxed(["3", r"\sqrt{2}"], r"\sqrt{2}").verdict == "correct"
    assert boxed(["3", r"\sqrt{2}"], r"3, \sqrt{2}").verdict == "wrong"


def test_an_inner_list_requires_all_of_them() -> None:
    assert boxed([["3", "1,234"]], "1234, 3").verdict == "correct"
    assert boxed([["3", "1,234"]], "3").verdict == "wrong"
    assert boxed([["3", "4"], "12"], "12").verdict == "correct"


def test_one_string_with_commas_requires_all_of_them() -> None:
    assert boxed(["$3$,$4$"], "4, 3").verdict == "correct"
    assert boxed(["$3$,$4$"], "3").verdict == "wrong"


@pytest.mark.parametrize("gold", [[], [[]], ["3", ""], [["3", " "]]])
def test_an_empty_list_or_member_is_a_bad_gold(gold: Any) -> None:
    assert boxed(gold, "3").reason == "bad_gold"


# types and tolerance


def test_integer_type_uses_no_symbolic_stage() -> None:
    assert boxed("4", r"\sqrt{16}", answer_type="integer").verdict == "wrong"
    assert boxed("4", "4.0", answer_type="integer").verdict == "correct"
    assert boxed(r"\frac12", r"\frac12", answer_type="integer").reason == "bad_gold"


def test_text_type_compares_words_only() -> None:
    assert boxed("A B", r"\text{a b}", answer_type="text").verdict == "correct"
    assert boxed("1/2", "0.5", answer_type="text").verdict == "wrong"


def test_interval_and_tuple_types_say_what_a_pair_is() -> None:
    assert boxed("(1,2)", "1<x<2", answer_type="Interval").verdict == "correct"
    assert boxed("(1,2)", "1<x<2", answer_type="Tuple").verdict == "wrong"
    assert boxed("(1,2)", "1, 2", answer_type="Interval").verdict == "wrong"
    assert boxed("(1,2)", "1, 2", answer_type="Tuple").verdict == "correct"


def test_an_unknown_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="answer_type: 'number' is unknown"):
        boxed("1", "1", answer_type="number")


@pytest.mark.parametrize(
    ("gold", "answer", "tolerance", "right"),
    [
        ("9.5", "9.55", 0.1, True),
        ("9.5", "9.65", 0.1, False),
        ("9.5", "9.6", "0.1", True),
        ("9.5", "9.5", None, True),
        (r"\sqrt{2}", "1.414", "1e-3", True),
        (r"\sqrt{2}", "1.41", "1e-3", False),
        ("1.68, 0.45", "0.449, 1.681", 0.01, True),
        ("7", r"\frac{22}{\pi}", 0.01, True),
    ],
)
def test_tolerance(gold: str, answer: str, tolerance: float | str | None, right: bool) -> None:
    assert (boxed(gold, answer, tolerance=tolerance).verdict == "correct") == right


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf"), "some"])
def test_a_bad_tolerance_is_an_error(tolerance: Any) -> None:
    with pytest.raises(ValueError, match="tolerance"):
        boxed("1", "1", tolerance=tolerance)


@pytest.mark.parametrize("name", ["workers", "timeout_s", "max_answer_chars", "max_completion_chars"])
def test_a_bad_setting_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Grader(**{name: 0})


# golds


@pytest.mark.parametrize(
    "gold", ["42", r"\frac{1}{2}", r"\sqrt{2}", r"\text{Yes}", ["3", r"\pi"], [["3", "4"]], "2x+y=7", "x<y"]
)
def test_a_good_gold(gold: Any) -> None:
    assert check_gold(gold).verdict == "correct"


@pytest.mark.parametrize(
    "gold",
    [
        "",
        " ",
        [],
        ["3", ""],
        r"\frac{1}{",
        "{",
        r"\nosuchcommand{3}+x",
        r"\sqrt{2}+\&",
        "(" * 60 + "x",
        "1" * 5000,
    ],
)
def test_a_bad_gold_is_unscorable(gold: Any) -> None:
    assert check_gold(gold).verdict == "unscorable"
    assert check_gold(gold).reason == "bad_gold"


def test_a_gold_of_another_type_is_bad() -> None:
    assert check_gold("0.5", answer_type="integer").reason == "bad_gold"


# counts


def verdicts(**counts: int) -> list[Verdict]:
    return [Verdict(OUTCOME_OF_REASON[r], r) for r, n in counts.items() for _ in range(n)]  # type: ignore[index,arg-type]


def test_counts_by_reason_and_outcome() -> None:
    counts = VerdictCounts(verdicts(exact=3, different=5))
    counts.update(verdicts(timeout=1, worker_died=1))
    assert counts.reasons == {"different": 5, "exact": 3, "timeout": 1, "worker_died": 1}
    assert (counts.total, counts.count("correct"), counts.count("unscorable")) == (10, 3, 2)
    assert counts.unscorable_fraction == 0.2
    metrics = counts.metrics("train/verdict")
    assert metrics["train/verdict/wrong/different"] == 5
    assert metrics["train/verdict/unscorable/error"] == 0
    assert metrics["train/verdict/unscorable_fraction"] == 0.2
    assert len(metrics) == len(OUTCOME_OF_REASON) + 1


def test_no_verdicts_are_no_problem() -> None:
    assert VerdictCounts().unscorable_fraction == 0
    assert check_unscorable(VerdictCounts()) is None


def test_one_percent_is_silent_and_more_warns(caplog: pytest.LogCaptureFixture) -> None:
    assert check_unscorable(VerdictCounts(verdicts(exact=99, timeout=1))) is None
    with caplog.at_level(logging.WARNING):
        message = check_unscorable(VerdictCounts(verdicts(exact=97, timeout=2, error=1)))
    assert message == "3 of 100 answers (3.0%) are unscorable: timeout 2, error 1"
    assert caplog.messages == [message]


def test_more_than_twenty_percent_stops() -> None:
    check_unscorable(VerdictCounts(verdicts(exact=80, timeout=20)))
    with pytest.raises(
        UnscorableError, match=r"21 of 100 answers \(21.0%\) are unscorable: bad_gold 21; more than 20%"
    ) as error:
        check_unscorable(VerdictCounts(verdicts(exact=79, bad_gold=21)))
    assert "\n" not in str(error.value)


def test_a_batch_keeps_the_order() -> None:
    with Grader() as grader:
        found = grader.grade_batch([GradeItem(str(n), f"\\boxed{{{n % 7}}}") for n in range(50)])
    assert [v.verdict == "correct" for v in found] == [n < 7 for n in range(50)]
