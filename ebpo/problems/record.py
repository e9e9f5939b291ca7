"""The problem table: the one form in which problems travel through the pipeline."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from ebpo.files import atomic_path

COLUMNS = ("id", "problem", "answer", "source", "topic", "difficulty")


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        id: unique within a table, derived from source and text, stable across runs.
        problem: the question as the policy sees it, before any prompt template.
        answer: the gold answer, in the form that `ebpo.grading` accepts.
        source: generator or dataset that it comes from.
        topic: topic as the source gives it; empty where the source gives none.
        difficulty: difficulty as the source gives it (larger is harder); NaN where the source gives none.
    """

    id: str
    problem: str
    answer: str
    source: str
    topic: str
    difficulty: float


def normalise(text: str) -> str:
    """Text under which two questions count as the same: NFKC, lower case, single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).lower().split())


def text_digest(text: str) -> str:
    """SHA-256 (hex) of the normalised text."""
    return hashlib.sha256(normalise(text).encode()).hexdigest()


def problem_id(source: str, text: str) -> str:
    """Identifier that depends on nothing but where a problem comes from and what it says."""
    return f"{source.rsplit('/', 1)[-1]}-{text_digest(text)[:12]}"


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Writes a problem table (parquet) atomically."""
    frame = pd.DataFrame([asdict(p) for p in problems], columns=list(COLUMNS))
    with atomic_path(path) as partial:
        frame.to_parquet(partial, index=False)


def read_problems(path: Path) -> list[Problem]:
    """Reads a problem table.

    Raises:
        ValueError: a column is missing, or an id occurs twice.
    """
    frame = pd.read_parquet(path)
    missing = [c for c in COLUMNS if c not in frame.columns]
    if missing:
        raise ValueError(f"{path}: columns {missing} are missing; a problem table has {list(COLUMNS)}")
    if frame["id"].duplicated().any():
        first = frame.loc[frame["id"].duplicated(), "id"].iloc[0]
        raise ValueError(f"{path}: problem id {first!r} occurs more than once; ids must be unique")
    return [Problem(*row) for row in frame[list(COLUMNS)].itertuples(index=False, name=None)]
