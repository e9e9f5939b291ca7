from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from ebpo.config import Data, Dataset
from ebpo.problems.locations import data_files, local_files, local_path

COLUMNS = {"problem": "q", "answer": "a", "problems": 1}


def configuration(benchmark: str = "amc", **keys: str) -> Data:
    raw = {
        "seed": 0,
        "train": {"path": "A/own", **COLUMNS},
        "validation": 1,
        "benchmarks": {benchmark: {"path": "B/bench", **COLUMNS}},
    }
    return TypeAdapter(Data).validate_python(raw | keys)


def test_a_dataset_is_found_by_its_path_then_by_its_name(tmp_path):
    dataset = Dataset(path="A/own", **COLUMNS)
    assert local_path(tmp_path, dataset) is None
    for name in ("own.jsonl", "own.parquet", "own", "A/own"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        assert local_path(tmp_path, dataset) == path


def test_the_data_files_of_a_copy_are_not_its_hidden_ones(tmp_path):
    for name in ("data/a.parquet", ".cache/b.json", "README.md", "c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert data_files(tmp_path) == [tmp_path / "c.jsonl", tmp_path / "data" / "a.parquet"]


def test_the_workflow_depends_on_the_files_that_are_read(tmp_path):
    (tmp_path / "own.jsonl").touch()
    assert local_files(configuration(source="files", folder=str(tmp_path))) == [str(tmp_path / "own.jsonl")]
    assert local_files(configuration(source="hub", mirror=str(tmp_path))) == [str(tmp_path / "own.jsonl")]
    assert local_files(configuration(source="hub")) == []


def test_a_benchmark_may_not_be_called_like_another_set():
    with pytest.raises(ValidationError, match="'train' is the name of another problem set"):
        configuration("train", source="hub")
