"""Integers and fractions survive every way of writing them, and never survive a change of value."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebpo.grading import Grader, grade
from ebpo.grading.exact import TooLarge, rational, surely_different
from ebpo.grading.extract import extract_answer
from ebpo.grading.normalize import UnbalancedError, canonical
from ebpo.grading.structure import TooComplexError, parse

INTEGERS = st.one_of(st.integers(-1000, 1000), st.integers(-(10**30), 10**30))
FRACTIONS = st.builds(Fraction, st.integers(-(10**6), 10**6), st.integers(1, 10**6))
SURROUNDINGS = st.sampled_from(
    [
        "{box}",
        "So ${box}$.",
        "Thus\n\\[\n{box}\n\\]\n",
        "\\boxed{{999999}}? No: {box}",
        "<think>\\boxed{{1}}</think> {box} }}",
        "**Final Answer** $${box}$$",
    ]
)
WRAPPERS = st.sampled_from(
    [
        "{}",
        " {} ",
        "{}.",
        "${}$",
        "\\({}\\)",
        "{}\\text{{ cm}}",
        "x = {}",
        "\\mathbf{{{}}}",
        "\\boxed{{{}}}",
        "{}\\,",
        "{{{}}}",
    ]
)


def integer_forms(n: int) -> list[str]:
    digits = str(abs(n))
    grouped = f"{abs(n):,}"
    forms = [
        digits,
        f"00{digits}",
        f"{digits}.0",
        f"{digits}.000",
        grouped,
        grouped.replace(",", "{,}"),
        grouped.replace(",", "\\,"),
    ]
    forms += [
        grouped.replace(",", ",\\!"),
        f"\\frac{{{digits}}}{{1}}",
        f"{digits}/1",
        f"\\frac{{{2 * abs(n)}}}{{2}}",
    ]
    signs = [""] if n >= 0 else ["-", "- ", "\u2212", "\u2013"]
    return [sign + form for sign in signs for form in forms]


def fraction_forms(value: Fraction) -> list[str]:
    n, d = value.numerator, value.denominator
    forms = [
        f"\\frac{{{n}}}{{{d}}}",
        f"\\dfrac{{{n}}}{{{d}}}",
        f"{n}/{d}",
        f"\\frac{{{-n}}}{{{-d}}}",
        f"\\frac{{{3 * n}}}{{{3 * d}}}",
    ]
    forms += [f"{n} / {d}", f"\\left(\\frac{{{n}}}{{{d}}}\\right)", f"-\\frac{{{-n}}}{{{d}}}"]
    whole, rest = divmod(abs(n), d)
    if whole and rest:
        sign = "-" if n < 0 else ""
        forms += [f"{sign}{whole}\\frac{{{rest}}}{{{d}}}", f"{sign}{whole} {rest}/{d}"]
    return forms


def in_completion(draw: st.DrawFn, form: str) -> str:
    return draw(SURROUNDINGS).format(box=f"\\boxed{{{draw(WRAPPERS).format(form)}}}")


@settings(max_examples=600, deadline=None)
@given(st.data(), INTEGERS)
def test_an_integer_survives_formatting(data: st.DataObject, n: int) -> None:
    gold, form = (data.draw(st.sampled_from(integer_forms(n))) for _ in range(2))
    completion = in_completion(data.draw, form)
    assert grade(gold=gold, completion=completion).verdict == "correct", (gold, completion)


@settings(max_examples=600, deadline=None)
@given(st.data(), INTEGERS, INTEGERS)
def test_another_integer_never_does(data: st.DataObject, n: int, change: int) -> None:
    gold = data.draw(st.sampled_from(integer_forms(n)))
    completion = in_completion(data.draw, data.draw(st.sampled_from(integer_forms(n + (change or 1)))))
    assert grade(gold=gold, completion=completion).verdict == "wrong", (gold, completion)


@settings(max_examples=600, deadline=None)
@given(st.data(), FRACTIONS)
def test_a_fraction_survives_formatting(data: st.DataObject, value: Fraction) -> None:
    gold, form = (data.draw(st.sampled_from(fraction_forms(value))) for _ in range(2))
    completion = in_completion(data.draw, form)
    assert grade(gold=gold, completion=completion).verdict == "correct", (gold, completion)


@settings(max_examples=600, deadline=None)
@given(st.data(), FRACTIONS, FRACTIONS.filter(bool))
def test_another_fraction_never_does(data: st.DataObject, value: Fraction, change: Fraction) -> None:
    gold = data.draw(st.sampled_from(fraction_forms(value)))
    completion = in_completion(data.draw, data.draw(st.sampled_from(fraction_forms(value + change))))
    assert grade(gold=gold, completion=completion).verdict == "wrong", (gold, completion)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(0, 10**9), st.integers(1, 6))
def test_a_decimal_equals_its_fraction_and_no_other_decimal(data: st.DataObject, digits: int, places: int) -> None:
    value = Fraction(digits, 10**places)
    decimal = f"{digits // 10**places}.{digits % 10**places:0{places}d}"
    for form in fraction_forms(value):
        assert grade(gold=form, completion=f"\\boxed{{{decimal}}}").verdict == "correct"
        assert grade(gold=decimal, completion=f"\\boxed{{{form}}}").verdict == "correct"
        assert grade(gold=form, completion=f"\\boxed{{{decimal}1}}").verdict == "wrong"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_lists_and_sets_have_no_order_and_tuples_have(values: list[int], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    plain, other = ", ".join(map(str, values)), ", ".join(map(str, shuffled))
    assert grade(gold=plain, completion=f"\\boxed{{{other}}}").verdict == "correct"
    assert grade(gold=plain, completion=f"\\boxed{{\\{{{other}\\}}}}").verdict == "correct"
    expected = "correct" if values == shuffled else "wrong"
    assert grade(gold=f"({plain})", completion=f"\\boxed{{({other})}}").verdict == expected


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as made:
        yield made


@settings(max_examples=60, deadline=None)
@given(
    a=st.integers(-20, 20),
    b=st.integers(1, 20),
    r=st.integers(2, 40),
    c=st.integers(1, 12),
    change=st.integers(1, 3),
)
def test_a_surd_survives_rewriting_and_no_change(grader: Grader, a: int, b: int, r: int, c: int, change: int) -> None:
    gold = f"\\frac{{{a}+{b}\\sqrt{{{r}}}}}{{{c}}}"
    same = f"\\boxed{{\\frac{{{a}}}{{{c}}}+\\frac{{\\sqrt{{{b * b * r}}}}}{{{c}}}}}"
    assert grader.grade(gold=gold, completion=same).verdict == "correct"
    for answer in (
        f"\\frac{{{a}-{b}\\sqrt{{{r}}}}}{{{c}}}",
        f"\\frac{{{a}+{b}\\sqrt{{{r}}}}}{{{c + change}}}",
    ):
        assert grader.grade(gold=gold, completion=f"\\boxed{{{answer}}}").verdict == "wrong"


COMMANDS = (
    r"\frac \sqrt \boxed{ \fbox{ \{ \} \left( \right] \text{ \pm \cup \in \le \infty \begin{pmatrix} \end{pmatrix} \\"
)
WORDS = r"^\circ \% \cdot \binom Answer: </think> <think> and"
LATEX_PIECES = st.sampled_from(
    [*"0123456789xyz+-*/^=<>,.;:!|'()[]{}$%& \\\n√π−é١", *COMMANDS.split(), *WORDS.split(), " or ", "answer is "]
)
NOISE = st.lists(LATEX_PIECES, max_size=60).map("".join)


@settings(max_examples=1500, deadline=None)
@given(NOISE)
def test_any_text_passes_the_exact_stages_without_an_exception(text: str) -> None:
    extract_answer(text, max_chars=10_000)
    try:
        clean = canonical(text)
        parse(clean)
        rational(clean)
        surely_different(clean, "2")
    except (UnbalancedError, TooComplexError, TooLarge):
        pass


@settings(max_examples=150, deadline=None)
@given(NOISE)
def test_any_boxed_text_gets_a_verdict_without_an_internal_error(grader: Grader, text: str) -> None:
    for gold in ("17", r"\sqrt{2}", "(1,2)", "x+1"):
        verdict = grader.grade(gold=gold, completion=f"\\boxed{{{text}}}")
        assert verdict.reason != "worker_died"


@settings(max_examples=300, deadline=None)
@given(NOISE)
def test_the_last_box_is_found_behind_any_text(text: str) -> None:
    assert (
        grade(gold="17", completion=text + " \\boxed{17}").verdict == "correct"
        or text.rstrip().endswith("\\")
        or "<think>" in text
    )
