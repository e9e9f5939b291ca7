"""Published problem sets: from a mirror folder, or from the hub through the datasets library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from ebpo.config import Dataset
from ebpo.problems.record import Problem, normalise, problem_id


def load(name: str, dataset: Dataset, mirror: str | None) -> tuple[list[Problem], dict[str, int]]:
    """The distinct problems of a set, in its order, and how many rows there were.

    Raises:
        ValueError: a column is missing, or the number of distinct problems is not the expected one.
        FileNotFoundError: the mirror has no file of that name.
        ConnectionError: the hub cannot be reached.
    """
    frame = _from_mirror(Path(mirror), dataset) if mirror else _from_hub(dataset)
    problems: dict[str, Problem] = {}
    for record in frame.to_dict("records"):
        row = {str(key): value for key, value in record.items()}
        text = _text(_column(row, dataset.problem, name))
        problems.setdefault(
            normalise(text),
            Problem(
                id=problem_id(name, text),
                problem=text,
                answer=_text(_column(row, dataset.answer, name)),
                source=dataset.path,
                topic=_text(_column(row, dataset.topic, name)) if dataset.topic else "",
                difficulty=float("nan"),
            ),
        )
    found = len(problems)
    if abs(found - dataset.problems) > dataset.tolerance * dataset.problems:
        raise ValueError(
            f"{name}: {dataset.path} has {found} distinct problems in {len(frame)} rows; "
            f"the configuration expects {dataset.problems} (tolerance {dataset.tolerance:g})"
        )
    return list(problems.values()), {"rows": len(frame), "distinct": found}


def _from_mirror(mirror: Path, dataset: Dataset) -> pd.DataFrame:
    stem = dataset.path.rsplit("/", 1)[-1]
    candidates = [mirror / f"{stem}{suffix}" for suffix in (".parquet", ".jsonl")]
    for path in candidates:
        if path.exists():
            return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True, dtype=False)
    raise FileNotFoundError(f"data.mirror: none of {[str(c) for c in candidates]} exists; {dataset.path} is needed")


def _from_hub(dataset: Dataset) -> pd.DataFrame:
    import datasets

    try:
        table = datasets.load_dataset(dataset.path, dataset.subset, split=dataset.split, revision=dataset.revision)
    except (ConnectionError, OSError) as error:
        raise ConnectionError(
            f"{dataset.path} cannot be had from the hub ({type(error).__name__}); "
            "connect this machine, or set data.mirror to a folder that holds it"
        ) from error
    return pd.DataFrame(table.to_pandas())


def _column(row: dict[str, Any], path: str, name: str) -> Any:
    """A column, or a value inside a nested one: `reward_model.ground_truth`, `prompt.0.content`."""
    value: Any = row
    for part in path.split("."):
        try:
            value = value[int(part)] if part.isdigit() else value[part]
        except (KeyError, IndexError, TypeError):
            raise ValueError(f"{name}: column {path!r} is missing; the rows have {sorted(map(str, row))}") from None
    return value


def _text(value: Any) -> str:
    """A cell as text; a list of required answers, as OlympiadBench has them, becomes a comma-separated one."""
    if not isinstance(value, str) and hasattr(value, "__len__"):
        return ", ".join(map(str, value))
    return str(value)
