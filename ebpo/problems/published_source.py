"""Problem sets from tables: the hub, a mirror of it, or files of one's own."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ebpo.config import Dataset, FilesData, HubData, PublishedData
from ebpo.grading.decide import answer_type_of, tolerance_of
from ebpo.problems.cleaning import Removed
from ebpo.problems.record import Problem, problem_id
from ebpo.problems.sources import SourceSets
from ebpo.problems.tables import HubTables, LocalTables, Row, Tables
from ebpo.prompts import TEMPLATES


class LoadedSet(NamedTuple):
    """The distinct rows of a table as problems, the rows that are none, and where all of it comes from."""

    problems: list[Problem]
    removed: list[Removed]
    facts: dict[str, Any]


class _Cells(NamedTuple):
    """What a row says, as text; empty where a cell or its column is."""

    question: str
    answers: tuple[str, ...]
    topic: str
    answer_type: str
    tolerance: str


def read(data: PublishedData) -> SourceSets:
    """The sets as they are published; validation is left to be held out.

    Raises:
        ValueError: a column is missing, or a set has another content than the configuration pins.
        FileNotFoundError: the folder lacks a dataset.
        ConnectionError: the hub cannot be reached.
    """
    tables = tables_of(data)
    loaded = {name: load(name, ds, tables) for name, ds in {"train": data.train, **data.benchmarks}.items()}
    warnings = []
    for name, dataset in {"train": data.train, **data.benchmarks}.items():
        facts = loaded[name].facts
        if isinstance(data, HubData) and dataset.revision is None and dataset.sha256 is None:
            found = facts.get("revision")
            warnings.append(
                f"{name}: neither revision nor sha256 of {dataset.path} is pinned; "
                + (f"read at revision {found}" if found else f"its content has sha256 {facts['sha256']}")
            )
        if facts.get("not_wrapped"):
            warnings.append(f"{name}: {facts['not_wrapped']} of {facts['rows']} rows lack the text of {dataset.unwrap}")
    return SourceSets(
        train=loaded["train"].problems,
        validation=None,
        benchmarks={name: loaded[name].problems for name in data.benchmarks},
        facts={name: part.facts for name, part in loaded.items()},
        removed={name: part.removed for name, part in loaded.items()},
        packages=("datasets", "pyarrow"),
        warnings=warnings,
    )


def tables_of(data: PublishedData) -> Tables:
    """Where the tables of a configuration are."""
    if isinstance(data, FilesData):
        return LocalTables(Path(data.folder), "folder")
    if isinstance(data, HubData) and data.mirror is not None:
        return LocalTables(Path(data.mirror), "mirror")
    return HubTables()


def load(name: str, dataset: Dataset, tables: Tables) -> LoadedSet:
    """The problems of one set, in its order; rows that say exactly the same become one.

    Raises: see `read`.
    """
    columns = [dataset.problem, dataset.answer, dataset.topic, dataset.answer_type, dataset.tolerance]
    table = tables.open(dataset, {column.split(".")[0] for column in columns if column})
    # DAPO-Math-17k has each of its rows about a hundred times: what a row says is looked up before it is worked on.
    wrapped: dict[_Cells, bool] = {}
    problems: list[Problem] = []
    removed: list[Removed] = []
    rows = not_wrapped = 0
    for row in table.rows:
        rows += 1
        cells = _Cells(
            question=_text(_column(row, dataset.problem, name)),
            answers=_answers(_column(row, dataset.answer, name)),
            topic=_text(_column(row, dataset.topic, name)),
            answer_type=_text(_column(row, dataset.answer_type, name)),
            tolerance=_text(_column(row, dataset.tolerance, name)),
        )
        if cells not in wrapped:
            problem, wrapped[cells] = _problem(name, dataset, cells)
            if problem.problem and problem.answer:
                problems.append(problem)
            else:
                removed.append(Removed(problem, "empty", "no question" if not problem.problem else "no gold"))
        not_wrapped += not wrapped[cells]
    digest = _digest(problems)
    if dataset.sha256 not in (None, digest):
        raise ValueError(f"{name}: the content of {dataset.path} has sha256 {digest}; {dataset.sha256} is pinned")
    facts = {
        "path": dataset.path,
        "subset": dataset.subset,
        "split": dataset.split,
        "pinned_revision": dataset.revision,
        **table.facts,
        "sha256": digest,
        "rows": rows,
        "distinct_rows": len(wrapped),
    }
    if dataset.unwrap:
        facts["not_wrapped"] = not_wrapped
    return LoadedSet(problems, removed, facts)


def _digest(problems: Iterable[Problem]) -> str:
    """Of questions and golds in order: the same whether they come from the hub or from a file of any format."""
    digest = hashlib.sha256()
    for problem in problems:
        fields = [problem.problem, problem.answer, problem.required_answers, problem.answer_type, problem.tolerance]
        digest.update(json.dumps(fields, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def _problem(name: str, dataset: Dataset, cells: _Cells) -> tuple[Problem, bool]:
    """A row's problem, and whether the text that is to be taken off was there."""
    question, wrapped = _unwrapped(cells.question, dataset)
    try:
        answer_type = answer_type_of(cells.answer_type or None)
        tolerance = tolerance_of(cells.tolerance)
    except ValueError as error:
        raise ValueError(f"{name}: {error} (question {question[:60]!r})") from None
    problem = Problem(
        id=problem_id(name, question),
        problem=question,
        answer=", ".join(cells.answers),
        source=dataset.path,
        topic=cells.topic,
        difficulty=math.nan,
        required_answers=cells.answers if len(cells.answers) > 1 else (),
        answer_type=answer_type,
        tolerance=None if tolerance is None else float(tolerance),
    )
    return problem, wrapped


def _unwrapped(text: str, dataset: Dataset) -> tuple[str, bool]:
    if dataset.unwrap is None:
        return text, True
    before, after = (part.strip() for part in TEMPLATES[dataset.unwrap].surroundings)
    wrapped = text.startswith(before) and text.endswith(after)
    return text.removeprefix(before).removesuffix(after).strip(), wrapped


def _column(row: Row, path: str | None, name: str) -> Any:
    """A column, or a value inside a nested one: `reward_model.ground_truth`, `prompt.0.content`; None for no column."""
    if path is None:
        return None
    value: Any = row
    for part in path.split("."):
        try:
            value = value[int(part)] if part.isdigit() else value[part]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"{name}: column {path!r} is missing; the rows have {sorted(row)}") from None
    return value


def _text(value: Any) -> str:
    """A cell as text without outer space; an empty cell as empty text."""
    return "" if value is None or value != value else str(value).strip()


def _answers(value: Any) -> tuple[str, ...]:
    """The required answers of a cell: one, or all of a list, as OlympiadBench has it."""
    return tuple(text for text in map(_text, value if isinstance(value, list) else [value]) if text)
