"""config/paper.yaml on a mirror folder: files in the hub's schemas, through the real program."""

from __future__ import annotations

import csv
import json
import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from ebpo.config import dump_yaml, parse_config
from ebpo.problems.record import Problem, read_problems

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
WRAPPING = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
Pairs = list[tuple[str, str]]


def dapo(question: str, gold: str, index: int, content: str = WRAPPING) -> dict[str, Any]:
    """A row in the schema of BytedTsinghua-SIA/DAPO-Math-17k."""
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": content.replace("{}", question), "role": "user"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": gold, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": f"row-{index}"},
    }


def math500(n: int, question: str, gold: str) -> dict[str, Any]:
    """A row in the schema of HuggingFaceH4/MATH-500."""
    return {"problem": question, "solution": "", "answer": gold, "subject": "Algebra", "level": 1, "unique_id": f"{n}"}


def aime24(n: int, question: str, gold: str) -> dict[str, Any]:
    """A row in the schema of Maxwell-Jia/AIME_2024, whose answers are numbers."""
    return {"ID": f"2024-I-{n}", "Problem": question, "Solution": "", "Answer": int(gold)}


def aime25(n: int, question: str, gold: str) -> dict[str, Any]:
    """A row in the schema of math-ai/aime25."""
    return {"problem": question, "answer": gold, "id": str(n)}


def amc23(n: int, question: str, gold: str) -> dict[str, Any]:
    """A row in the schema of math-ai/amc23."""
    return {"id": n, "question": question, "answer": gold, "url": ""}


def olympiad(n: int, question: str, gold: list[str], answer_type: str, error: str | None) -> dict[str, Any]:
    """A row in the schema of Hothan/OlympiadBench."""
    return {
        "id": n,
        "question": question,
        "solution": [""],
        "final_answer": gold,
        "context": None,
        "image_1": None,
        "is_multiple_answer": False,
        "unit": None,
        "answer_type": answer_type,
        "error": error,
        "subfield": "Algebra",
    }


@dataclass
class Built:
    """What the program wrote."""

    folder: Path
    manifest: dict[str, Any] = field(default_factory=dict)

    def problems(self, name: str) -> list[Problem]:
        return read_problems(self.folder / f"{name}.parquet")

    def lines(self, name: str) -> list[dict[str, str]]:
        with (self.folder / f"{name}.csv").open() as lines:
            return list(csv.DictReader(lines))


def build(
    monkeypatch, repository: Path, folder: Path, train: int, benchmarks: dict[str, list[dict[str, Any]]]
) -> Built:
    """Writes the benchmarks beside DAPO-Math-17k.parquet; runs scripts/problems.py on paper.yaml with this mirror."""
    raw = yaml.safe_load((repository / "config" / "paper.yaml").read_text())
    data = raw["data"]
    data |= {"mirror": str(folder), "validation": 3}
    data["train"] |= {"problems": train, "count_tolerance": 0}
    for name, rows in benchmarks.items():
        stem = data["benchmarks"][name]["path"].rsplit("/", 1)[-1]
        frame = pd.DataFrame(rows)
        if name in ("amc23", "olympiad"):
            frame.to_parquet(folder / f"{stem}.parquet")
        else:
            frame.to_json(folder / f"{stem}.jsonl", orient="records", lines=True)
        data["benchmarks"][name] |= {"problems": len(rows), "count_tolerance": 0}
    (folder / "data.yaml").write_text(dump_yaml(parse_config(raw).data))
    out = folder / "out"
    monkeypatch.setattr(sys, "argv", ["problems.py", "--config", str(folder / "data.yaml"), "--out", str(out)])
    runpy.run_path(str(repository / "scripts" / "problems.py"), run_name="__main__")
    return Built(out, json.loads((out / "manifest.json").read_text()))


def training_file(folder: Path, clean: Pairs, contaminated: Pairs, near: tuple[str, str]) -> int:
    """Writes DAPO-Math-17k.parquet, a hundred times each row, and gives the number of distinct questions in it.

    Beside `clean` it has the `contaminated` questions, a near-duplicate, an ungradable gold, a question without the
    wrapping, one question in two wordings that differ in case, and one question with two golds.
    """
    rows = [dapo(question, gold, n) for n, (question, gold) in enumerate([*clean, *contaminated, near])]
    rows += [
        dapo("Whose gold is broken in this question of mine?", "\\frac{1}{", 1),
        dapo("Which question has no wrapping around its text?", "11", 2, content="{}"),
        dapo("Which of my words are in upper case here?", "12", 3),
        dapo("WHICH of my words are in upper case here?", "12", 4),
        dapo("What has two golds that contradict each other?", "13", 5),
        dapo("What has two golds that contradict each other?", "14", 6),
    ]
    pd.DataFrame(rows * 100).to_parquet(folder / "DAPO-Math-17k.parquet")
    return len(clean) + len(contaminated) + 5


def check_counts(built: Built, clean: int, contaminated: int) -> None:
    """Every count of a file by `training_file`."""
    distinct = clean + contaminated + 7
    assert built.manifest["counts"]["train"] == {
        "rows": 100 * distinct,
        "distinct_rows": distinct,
        "not_wrapped": 100,
        "exact_duplicate": 1,
        "conflicting_gold": 2,
        "ungradable_gold": 1,
        "near_duplicate": 1,
        "contaminated": contaminated,
        "held_out": 3,
        "final": clean + 2 - 3,
    }
    assert len(built.problems("train")) == clean + 2 - 3
    assert len(built.problems("validation")) == 3
    train = built.problems("train") + built.problems("validation")
    assert not any("Remember to put your answer" in p.problem or "Solve the following" in p.problem for p in train)
    stages = [line["stage"] for line in built.lines("removed") if line["set"] == "train"]
    assert len(stages) == 5 + contaminated
    warnings = built.manifest["warnings"]
    assert len([w for w in warnings if "neither revision nor sha256" in w]) == 6
    assert f"train: 100 of {100 * distinct} rows lack the text of dapo" in warnings


CLEAN = [
    (f"{name} has {n} apples and gives {n - 3} of them away; how many apples does {name} keep in the end?", "3")
    for n, name in enumerate(("Ada", "Bob", "Cem", "Dan", "Eva", "Fay", "Gus", "Hal"), start=5)
]
CUBE = "A cube with an edge of 7 has its corners cut off at the midpoints of the edges; how many faces are left then?"


def test_the_paper_configuration_on_a_made_up_mirror(monkeypatch, repository, tmp_path):
    near = (CLEAN[0][0].replace("gives", "hands"), "3")
    train = training_file(tmp_path, CLEAN, [(CUBE.replace("with an edge", "WITH $ an edge $"), "14")], near)
    benchmarks = {
        "math500": [math500(0, CUBE, "14"), math500(1, "What is $1/2 + 1/2$?", "1")],
        "aime24": [aime24(1, "Find the remainder of $2^{10}$ by 1000.", "24")],
        "aime25": [aime25(0, "Find the remainder of $2^{11}$ by 1000.", "48")],
        "amc23": [amc23(0, "How long is half of 54?", "27.0")],
        "olympiad": [
            olympiad(0, "Which $n$ have $n^2=4761$ or $n=84$?", ["$69$,$84$"], "Numerical", None),
            olympiad(1, "How long is a lap of the circle?", ["3.14"], "Numerical", "1e-1"),
        ],
    }
    built = build(monkeypatch, repository, tmp_path, train, benchmarks)
    check_counts(built, clean=8, contaminated=1)
    (overlap,) = built.lines("contamination")
    assert (overlap["benchmark"], overlap["kind"], overlap["overlap"]) == ("math500", "text", "1.0")
    assert overlap["benchmark_id"] == built.problems("benchmarks/math500")[0].id
    assert [p.answer for p in built.problems("benchmarks/aime24")] == ["24"]
    multiple, approximate = built.problems("benchmarks/olympiad")
    assert (multiple.answer, multiple.answer_type, multiple.tolerance) == ("$69$,$84$", "numerical", None)
    assert approximate.tolerance == 0.1
    files = {f"{name}.parquet" for name in ("train", "validation", *(f"benchmarks/{b}" for b in benchmarks))}
    assert set(built.manifest["sha256"]) == files | {"removed.csv", "contamination.csv"}


def shared(name: str) -> list[dict[str, Any]]:
    with (SHARED / f"{name}.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the published benchmarks are not at {SHARED}")
def test_the_paper_configuration_on_a_mirror_of_the_published_benchmarks(monkeypatch, repository, tmp_path):
    rows = {name: shared(name) for name in ("math500", "aime24", "aime25", "amc23", "olympiadbench_odd")}
    benchmarks = {
        "math500": [math500(n, r["problem"], r["answer"]) for n, r in enumerate(rows["math500"])],
        "aime24": [aime24(n, r["problem"], r["answer"]) for n, r in enumerate(rows["aime24"])],
        "aime25": [aime25(n, r["problem"], r["answer"]) for n, r in enumerate(rows["aime25"])],
        "amc23": [amc23(n, r["problem"], r["answer"]) for n, r in enumerate(rows["amc23"])],
        "olympiad": [
            olympiad(n, r["problem"], r["answer"], r["answer_type"], r["error"])
            for n, r in enumerate(rows["olympiadbench_odd"])
        ],
    }
    clean = [(r["problem"], r["answer"]) for r in shared("gsm8k_train")[:200]]
    asked = [rows["math500"][4]["problem"], rows["aime25"][1]["problem"], rows["olympiadbench_odd"][0]["problem"]]
    contaminated = [(asked[0], "1"), ("As in a contest of 2025: " + asked[1], "588"), (asked[2].upper(), "2")]
    near = (clean[0][0].replace("friends", "neighbours"), clean[0][1])
    train = training_file(tmp_path, clean, contaminated, near)
    built = build(monkeypatch, repository, tmp_path, train, benchmarks)
    check_counts(built, clean=200, contaminated=3)
    overlaps = [(o["benchmark"], o["kind"]) for o in built.lines("contamination")]
    assert [name for name, _ in overlaps] == ["math500", "aime25", "olympiad"]
    assert [kind for _, kind in overlaps] == ["text", "ngram", "text"]
    sizes = {name: len(built.problems(f"benchmarks/{name}")) for name in benchmarks}
    assert sizes == {"math500": 500, "aime24": 30, "aime25": 30, "amc23": 40, "olympiad": 337}
