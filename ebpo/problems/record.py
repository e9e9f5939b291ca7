"""The problem table: the one form in which problems travel through the pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ebpo.files import atomic_path
from ebpo.grading import GradeItem, Verdict, check_gold
from ebpo.problems.text import text_digest

_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("problem", pa.string()),
        ("answer", pa.string()),
        ("source", pa.string()),
        ("topic", pa.string()),
        ("difficulty", pa.float64()),
        ("required_answers", pa.list_(pa.string())),
        ("answer_type", pa.string()),
        ("tolerance", pa.float64()),
    ]
)
COLUMNS = tuple(_SCHEMA.names)


@dataclass(frozen=True)
class Problem:
    """One problem.

    Attributes:
        id: unique within a table, derived from source and text, stable across runs.
        problem: the question as the policy sees it, before any prompt template.
        answer: the gold answer as text; several required answers are separated by commas.
        source: generator or dataset that it comes from.
        topic: topic as the source gives it; empty where the source gives none.
        difficulty: difficulty as the source gives it (larger is harder); NaN where the source gives none.
        required_answers: the answers that are all required, one by one, where the source lists several; else empty.
        answer_type: declared type of the gold, as `ebpo.grading.grade` takes it.
        tolerance: allowed absolute difference of numbers; None compares exactly.
    """

    id: str
    problem: str
    answer: str
    source: str
    topic: str
    difficulty: float
    required_answers: tuple[str, ...] = ()
    answer_type: str | None = None
    tolerance: float | None = None

    def grade_item(self, completion: str) -> GradeItem:
        """What the grader needs to grade a completion of this problem."""
        gold = [list(self.required_answers)] if self.required_answers else self.answer
        return GradeItem(gold, completion, self.answer_type, self.tolerance)

    def check_gold(self) -> Verdict:
        """The gold graded against itself; only a "correct" one is of use."""
        item = self.grade_item("")
        return check_gold(item.gold, item.answer_type, item.tolerance)


def problem_id(source: str, text: str) -> str:
    """Identifier that depends on nothing but where a problem comes from and what it says."""
    return f"{source.rsplit('/', 1)[-1]}-{text_digest(text)[:12]}"


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Writes a problem table (parquet) atomically."""
    table = pa.Table.from_pylist([asdict(p) for p in problems], schema=_SCHEMA)
    with atomic_path(path) as partial:
        pq.write_table(table, partial)


def read_problems(path: Path) -> list[Problem]:
    """Reads a problem table.

    Raises:
        ValueError: a column is missing, or an id occurs twice.
    """
    table = pq.read_table(path)
    missing = [c for c in COLUMNS if c not in table.column_names]
    if missing:
        raise ValueError(f"{path}: columns {missing} are missing; a problem table has {list(COLUMNS)}")
    seen: set[str] = set()
    for identifier in table["id"].to_pylist():
        if identifier in seen:
            raise ValueError(f"{path}: problem id {identifier!r} occurs more than once; ids must be unique")
        seen.add(identifier)
    rows = table.select(list(COLUMNS)).to_pylist()
    return [Problem(**{**row, "required_answers": tuple(row["required_answers"])}) for row in rows]
