"""Golds of the published benchmarks, against themselves, their neighbours, rewritten forms and perturbed forms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ebpo.grading import GradeItem, Grader

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
BENCHMARKS = {
    "aime24": 30,
    "aime25": 30,
    "amc23": 40,
    "math500": 500,
    "olympiadbench_odd": 337,
    "gsm8k_test": 1319,
}
SMALL = ("aime24", "aime25", "amc23", "math500", "olympiadbench_odd")

# Neighbours with golds that are equal although their texts differ.
EQUAL_NEIGHBOURS = {("5", "x=5"), ("$f(n)=n$", "$f(z)=z$")}

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the published benchmarks are not at {DATA}")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader() as made:
        yield made


def read(name: str) -> list[dict[str, Any]]:
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return [json.loads(line) for line in path.read_text().splitlines()]


def items(rows: list[dict[str, Any]], answers: list[str]) -> list[GradeItem]:
    return [
        GradeItem(row["answer"], f"So it is $\\boxed{{{answer}}}$.", row.get("answer_type"), row.get("error"))
        for row, answer in zip(rows, answers, strict=True)
    ]


def text_of(gold: str | list[str]) -> str:
    return gold if isinstance(gold, str) else ", ".join(gold)


def golds_of(rows: list[dict[str, Any]]) -> list[str]:
    return [text_of(row["answer"]) for row in rows]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_gold_equals_itself_and_can_be_parsed(grader: Grader, name: str) -> None:
    rows = read(name)
    assert len(rows) == BENCHMARKS[name]
    verdicts = grader.grade_batch(items(rows, golds_of(rows)))
    assert [(g, v) for g, v in zip(golds_of(rows), verdicts, strict=True) if v.verdict != "correct"] == []
    checks = [
        (row["answer"], grader.check_gold(row["answer"], row.get("answer_type"), row.get("error"))) for row in rows
    ]
    assert [(gold, v) for gold, v in checks if v.verdict != "correct"] == []


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_gold_of_the_next_problem_is_wrong_unless_equal(grader: Grader, name: str) -> None:
    rows = read(name)
    golds = golds_of(rows)
    following = golds[1:] + golds[:1]
    verdicts = grader.grade_batch(items(rows, following))
    for gold, other, verdict in zip(golds, following, verdicts, strict=True):
        is_equal = gold == other or (gold, other) in EQUAL_NEIGHBOURS
        assert verdict.verdict == ("correct" if is_equal else "wrong"), (gold, other, verdict)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    "rewrite",
    [
        lambda gold: f" {gold} ",
        lambda gold: f"{gold}.",
        lambda gold: f"\\displaystyle {gold}",
        lambda gold: gold.replace("\\frac{", "\\dfrac{"),
        lambda gold: gold.replace("(", "\\left(").replace(")", "\\right)") if "\\left" not in gold else gold,
        lambda gold: gold.replace("-", "\u2212"),
        lambda gold: re.sub(r"\\?\$", "", gold),
        lambda gold: gold.replace("+", " + ").replace("=", " = "),
        lambda gold: gold.replace("\\pi", "π"),
        lambda gold: gold.replace("^\\circ", "°"),
    ],
    ids=[
        "spaces",
        "dot",
        "displaystyle",
        "dfrac",
        "left-right",
        "minus",
        "dollars",
        "operators",
        "pi",
        "degree",
    ],
)
def test_a_rewritten_gold_stays_right(grader: Grader, name: str, rewrite: Any) -> None:
    rows = read(name)
    golds = golds_of(rows)
    verdicts = grader.grade_batch(items(rows, [rewrite(g) for g in golds]))
    assert [(rewrite(g), v) for g, v in zip(golds, verdicts, strict=True) if v.verdict != "correct"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_gold_with_another_digit_is_wrong(grader: Grader, name: str) -> None:
    perturbed = []
    for row in read(name):
        gold = text_of(row["answer"])
        for digit in list(re.finditer("[0-9]", gold))[:4]:
            other = gold[: digit.start()] + str((int(digit.group()) + 1) % 10) + gold[digit.end() :]
            perturbed.append((row, other))
    verdicts = grader.grade_batch(items([row for row, _ in perturbed], [other for _, other in perturbed]))
    accepted = [
        (text_of(row["answer"]), other)
        for (row, other), verdict in zip(perturbed, verdicts, strict=True)
        if verdict.verdict != "wrong"
    ]
    assert accepted == []


def test_the_shared_cases_agree(grader: Grader) -> None:
    decided = [case for case in read("grading_cases") if isinstance(case["expected"], bool)]
    verdicts = grader.grade_batch([GradeItem(c["gold"], c["completion"]) for c in decided])
    disagreements = [
        (case, verdict)
        for case, verdict in zip(decided, verdicts, strict=True)
        if (verdict.verdict == "correct") != case["expected"]
    ]
    assert len(decided) > 80
    assert disagreements == []
