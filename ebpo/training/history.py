"""A run's metrics, one JSON line a step: on disk at once, whole after any kill."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a row; it is on disk before the checkpoint that follows it, whatever happens to the machine."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row, allow_nan=False) + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows by step, a later attempt's row in place of an earlier one's; a last line cut by a kill is dropped."""
    rows: dict[int, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            row = json.loads(line)
            rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]
