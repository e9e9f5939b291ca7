"""Rows of published tables: from the hub, or from a folder or file of this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ebpo.config import Dataset
from ebpo.files import file_digest
from ebpo.problems.locations import data_files, local_path

Row = dict[str, Any]
_BATCH = 10_000


@dataclass(frozen=True)
class Table:
    """A table that is read.

    Attributes:
        rows: its rows, in order; read once.
        facts: where it comes from, for the manifest.
    """

    rows: Iterator[Row]
    facts: dict[str, Any]


class Tables(Protocol):
    """Where tables come from."""

    def open(self, dataset: Dataset, columns: set[str]) -> Table:
        """The table of a dataset.

        Args:
            columns: columns that are needed; others may be left out.

        Raises:
            ConnectionError, FileNotFoundError: it cannot be reached.
            ValueError: it cannot be read.
        """
        ...


class HubTables:
    """Tables of the hub, through the datasets library and its cache."""

    def open(self, dataset: Dataset, columns: set[str]) -> Table:
        import datasets

        try:
            builder = datasets.load_dataset_builder(dataset.path, dataset.subset, revision=dataset.revision)
            builder.download_and_prepare()
        except (ConnectionError, OSError) as error:
            raise ConnectionError(
                f"{dataset.path} cannot be had from the hub ({type(error).__name__}); "
                "connect this machine, or set data.mirror to a folder that holds it"
            ) from error
        # The library's name for the version of a hub dataset is the commit, also when it comes from the cache.
        revision = builder.hash if re.fullmatch("[0-9a-f]{40}", str(builder.hash)) else None
        table = builder.as_dataset(split=dataset.split)
        return Table(_dataset_rows(table, columns), {"read_from": "hub", "revision": revision})


class LocalTables:
    """Tables in a folder: each a .parquet or .jsonl file, or a copy of the dataset's repository.

    Args:
        folder: where they are.
        key: configuration key that names the folder, for messages.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key

    def open(self, dataset: Dataset, columns: set[str]) -> Table:
        path = local_path(self._folder, dataset)
        if path is None:
            raise FileNotFoundError(f"data.{self._key}: {self._folder} lacks {dataset.path}: {_wanted(dataset)}")
        if path.is_dir():
            rows = _repository_rows(path, dataset, columns)
        elif path.suffix == ".parquet":
            rows = _parquet_rows(path, columns)
        else:
            rows = _json_rows(path)
        files = {file.relative_to(self._folder).as_posix(): file_digest(file) for file in data_files(path)}
        return Table(rows, {"read_from": str(self._folder), "files": files})


def _wanted(dataset: Dataset) -> str:
    stem = dataset.path.rsplit("/", 1)[-1]
    return f"none of {dataset.path}, {stem}/, {stem}.parquet and {stem}.jsonl exists"


def _repository_rows(path: Path, dataset: Dataset, columns: set[str]) -> Iterator[Row]:
    import datasets

    return _dataset_rows(datasets.load_dataset(str(path), dataset.subset, split=dataset.split), columns)


def _dataset_rows(table: Any, columns: set[str]) -> Iterator[Row]:
    # Without the columns that are not needed: some hold images. A missing one is reported by name later.
    if columns <= set(table.column_names):
        table = table.select_columns(sorted(columns))
    for batch in table.with_format("arrow").iter(batch_size=_BATCH):
        yield from batch.to_pylist()


def _parquet_rows(path: Path, columns: set[str]) -> Iterator[Row]:
    try:
        file = pq.ParquetFile(path)
        wanted = sorted(columns) if columns <= set(file.schema_arrow.names) else None
        for batch in file.iter_batches(batch_size=_BATCH, columns=wanted):
            yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: is no parquet file ({' '.join(str(error).split())})") from error


def _json_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: is no JSON ({error})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number}: must be an object of columns, not {type(row).__name__}")
            yield row
