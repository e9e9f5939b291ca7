from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ebpo.problems.record import Problem, read_problems, write_problems


def test_a_problem_table_survives_its_file(tmp_path):
    problems = [
        Problem("a", "Q?", "1", "s", "t", 1.0),
        Problem("b", "R?", "1,234, 5", "s", "", 2.0, ("1,234", "5"), "numerical", 0.5),
    ]
    write_problems(tmp_path / "p.parquet", problems)
    assert read_problems(tmp_path / "p.parquet") == problems


def test_required_answers_type_and_tolerance_reach_the_grader():
    item = Problem("b", "R?", "1,234, 5", "s", "", 2.0, ("1,234", "5"), "numerical", 0.5).grade_item("c")
    assert item == ([["1,234", "5"]], "c", "numerical", 0.5)
    assert Problem("a", "Q?", "1", "s", "t", 1.0).grade_item("c") == ("1", "c", None, None)


def test_a_missing_column_is_named(tmp_path):
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"columns \['problem', 'answer', .*\] are missing"):
        read_problems(tmp_path / "p.parquet")


def test_an_id_that_occurs_twice_is_named(tmp_path):
    write_problems(tmp_path / "p.parquet", [Problem("a", "Q?", "1", "s", "t", 1.0)] * 2)
    with pytest.raises(ValueError, match="problem id 'a' occurs more than once"):
        read_problems(tmp_path / "p.parquet")
