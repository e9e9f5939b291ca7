from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from pydantic import TypeAdapter

from ebpo.config import Data, Dataset
from ebpo.problems.published_source import load, read
from ebpo.problems.tables import HubTables, LocalTables

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WRAPPED = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
    "$Answer (without quotes) where $Answer is the answer to the problem.\n\n{}\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
DAPO = Dataset(
    path="BytedTsinghua-SIA/DAPO-Math-17k",
    problem="prompt.0.content",
    answer="reward_model.ground_truth",
    unwrap="dapo",
    problems=3,
)
AIME = Dataset(path="math-ai/aime25", split="test", problem="problem", answer="answer", problems=1)


def dapo_rows(contents: list[str]) -> list[dict[str, Any]]:
    """Rows in the schema of DAPO-Math-17k."""
    return [
        {
            "data_source": "math_dapo",
            "prompt": [{"content": content, "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": str(n), "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"row-{n}"},
        }
        for n, content in enumerate(contents)
    ]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def mirror(folder) -> LocalTables:
    return LocalTables(folder, "mirror")


def test_repeated_rows_of_a_nested_schema_become_one_problem_without_its_wrapping(tmp_path):
    rows = dapo_rows([WRAPPED.format(f"What is {n}?") for n in range(3)])
    pd.DataFrame(rows * 100).to_parquet(tmp_path / "DAPO-Math-17k.parquet")
    loaded = load("train", DAPO, mirror(tmp_path))
    assert [(p.problem, p.answer) for p in loaded.problems] == [(f"What is {n}?", str(n)) for n in range(3)]
    counts = {key: loaded.facts[key] for key in ("rows", "distinct_rows", "not_wrapped")}
    assert counts == {"rows": 300, "distinct_rows": 3, "not_wrapped": 0}


def test_rows_without_the_wrapping_are_counted_and_kept(tmp_path):
    half = WRAPPED.split("{}")[0] + "What is 1?"
    write_lines(tmp_path / "DAPO-Math-17k.jsonl", dapo_rows([WRAPPED.format("What is 0?"), half, "What is 2?"]))
    loaded = load("train", DAPO, mirror(tmp_path))
    assert [p.problem for p in loaded.problems] == ["What is 0?", "What is 1?", "What is 2?"]
    assert loaded.facts["not_wrapped"] == 2


def test_a_row_without_question_or_gold_is_removed_with_its_reason(tmp_path):
    rows = [{"problem": "Q?", "answer": 5}, {"problem": " ", "answer": "1"}, {"problem": "R?", "answer": None}]
    write_lines(tmp_path / "aime25.jsonl", rows)
    loaded = load("aime25", AIME, mirror(tmp_path))
    assert [(p.problem, p.answer) for p in loaded.problems] == [("Q?", "5")]
    assert [(r.stage, r.reason) for r in loaded.removed] == [("empty", "no question"), ("empty", "no gold")]


def test_answers_types_and_tolerances_of_olympiadbench_are_read(tmp_path):
    columns = {"question": "Q?", "is_multiple_answer": True, "error": "1e-1", "answer_type": "Numerical"}
    rows = [
        columns | {"final_answer": ["$69$,$84$"]},
        columns | {"final_answer": ["1,234", "5"], "error": None, "answer_type": None, "question": "R?"},
    ]
    write_lines(tmp_path / "OlympiadBench.jsonl", rows)
    dataset = Dataset(
        path="Hothan/OlympiadBench",
        subset="OE_TO_maths_en_COMP",
        problem="question",
        answer="final_answer",
        answer_type="answer_type",
        tolerance="error",
        problems=2,
    )
    first, second = load("olympiad", dataset, mirror(tmp_path)).problems
    assert first.grade_item("") == ("$69$,$84$", "", "numerical", 0.1)
    assert second.grade_item("") == ([["1,234", "5"]], "", None, None)


@pytest.mark.parametrize(("column", "value"), [("tolerance", "some"), ("answer_type", "poem")])
def test_an_unusable_cell_is_named_with_its_question(tmp_path, column, value):
    write_lines(tmp_path / "aime25.jsonl", [{"problem": "Q?", "answer": "1", column: value}])
    with pytest.raises(ValueError, match=rf"aime25: {column}: '{value}' .*question 'Q\?'"):
        load("aime25", AIME.model_copy(update={column: column}), mirror(tmp_path))


def test_a_missing_file_and_a_missing_column_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data.mirror: .* lacks math-ai/aime25: .*aime25\.parquet"):
        load("aime25", AIME, mirror(tmp_path))
    for name in ("aime25.jsonl", "aime25.parquet"):
        frame = pd.DataFrame([{"question": "x", "answer": "1"}])
        frame.to_json(tmp_path / name, orient="records", lines=True) if "json" in name else frame.to_parquet(
            tmp_path / name
        )
        with pytest.raises(ValueError, match=r"column 'problem' is missing; the rows have \['answer', 'question'\]"):
            load("aime25", AIME, mirror(tmp_path))


def test_broken_files_are_named(tmp_path):
    (tmp_path / "aime25.jsonl").write_text('{"problem": "x", "answer": "1"}\n{"problem": \n')
    with pytest.raises(ValueError, match=r"aime25\.jsonl:2: is no JSON"):
        load("aime25", AIME, mirror(tmp_path))
    (tmp_path / "aime25.parquet").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match=r"aime25\.parquet: is no parquet file"):
        load("aime25", AIME, mirror(tmp_path))


ROWS = [
    {"problem": "What is 1 + 1?", "answer": "2", "id": "0"},
    {"problem": "What is 2 + 2?", "answer": "4", "id": "1"},
]


class StubBuilder:
    """What `datasets.load_dataset_builder` gives for a dataset of the hub."""

    hash = COMMIT

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def download_and_prepare(self) -> None:
        pass

    def as_dataset(self, split: str) -> datasets.Dataset:
        return datasets.Dataset.from_list(self.rows)


def stub_hub(monkeypatch, rows: list[dict[str, Any]]) -> list[tuple[str, str | None, str | None]]:
    """Makes the hub hold `rows` at COMMIT; gives the arguments of the calls."""
    calls = []

    def load_dataset_builder(path, subset, revision):
        calls.append((path, subset, revision))
        return StubBuilder(rows)

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    return calls


def test_hub_and_mirror_give_the_same_problems_whatever_the_format(tmp_path, monkeypatch):
    calls = stub_hub(monkeypatch, ROWS)
    hub = load("aime25", AIME, HubTables())
    assert calls == [("math-ai/aime25", None, None)]
    write_lines(tmp_path / "aime25.jsonl", ROWS)
    lines = load("aime25", AIME, mirror(tmp_path))
    pd.DataFrame(ROWS).to_parquet(tmp_path / "aime25.parquet")
    parquet = load("aime25", AIME, mirror(tmp_path))
    assert [str(p) for p in hub.problems] == [str(p) for p in lines.problems] == [str(p) for p in parquet.problems]
    assert hub.facts["sha256"] == lines.facts["sha256"] == parquet.facts["sha256"]
    assert (hub.facts["revision"], list(parquet.facts["files"])) == (COMMIT, ["aime25.parquet"])


def test_a_copy_of_the_repository_is_read_like_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "mirror" / "aime25"
    (folder / ".cache").mkdir(parents=True)
    (folder / ".cache" / "x.json").write_text("{}")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: test.jsonl\n---\n"
    )
    write_lines(folder / "test.jsonl", ROWS)
    loaded = load("aime25", AIME, mirror(tmp_path / "mirror"))
    assert [p.answer for p in loaded.problems] == ["2", "4"]
    assert list(loaded.facts["files"]) == ["aime25/test.jsonl"]


def configuration(**dataset: str) -> Data:
    raw = {
        "source": "hub",
        "seed": 0,
        "train": {"path": "math-ai/aime25", "problem": "problem", "answer": "answer", "problems": 2, **dataset},
        "validation": 1,
        "benchmarks": {},
    }
    return TypeAdapter(Data).validate_python(raw)


def test_a_revision_that_is_not_pinned_is_a_warning_that_names_the_one_read(monkeypatch):
    stub_hub(monkeypatch, ROWS)
    (warning,) = read(configuration()).warnings
    assert warning == f"train: neither revision nor sha256 of math-ai/aime25 is pinned; read at revision {COMMIT}"
    assert read(configuration(revision=COMMIT)).warnings == []


def test_another_content_than_the_pinned_one_is_refused(monkeypatch):
    stub_hub(monkeypatch, ROWS)
    digest = read(configuration()).facts["train"]["sha256"]
    assert read(configuration(sha256=digest)).warnings == []
    stub_hub(monkeypatch, ROWS[:1])
    with pytest.raises(ValueError, match=rf"train: the content of math-ai/aime25 has sha256 \w+; {digest} is pinned"):
        read(configuration(sha256=digest))


def test_the_real_library_has_what_the_stub_stands_for(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_lines(tmp_path / "aime25" / "test.jsonl", ROWS)
    dataset = AIME.model_copy(update={"path": str(tmp_path / "aime25")})
    loaded = load("aime25", dataset, HubTables())
    assert [p.answer for p in loaded.problems] == ["2", "4"]
    assert loaded.facts["revision"] is None  # a folder has no commit


def test_an_unreachable_hub_gives_the_remedy():
    # The tests forbid the network.
    with pytest.raises(ConnectionError, match=r"connect this machine, or set data\.mirror to a folder"):
        load("aime25", AIME.model_copy(update={"path": "nobody/nothing"}), HubTables())
