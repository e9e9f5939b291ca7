"""Builds the problem sets: tables, removed.csv, contamination.csv and manifest.json."""

import argparse
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import Data, read_section
from ebpo.files import atomic_path, file_digest, write_json
from ebpo.problems.build import build
from ebpo.problems.contamination import Overlap
from ebpo.problems.record import write_problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the data section (YAML)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    data = read_section(args.config, TypeAdapter(Data))
    sets = build(data)
    tables = {
        args.out / "train.parquet": sets.train,
        args.out / "validation.parquet": sets.validation,
        **{args.out / "benchmarks" / f"{name}.parquet": problems for name, problems in sets.benchmarks.items()},
    }
    for path, problems in tables.items():
        write_problems(path, problems)
    removed = [
        (name, item.problem.id, item.stage, item.reason, item.problem.problem[:80])
        for name, items in sets.removed.items()
        for item in items
    ]
    lists: dict[Path, tuple[Sequence[str], Sequence[Sequence[Any]]]] = {
        args.out / "removed.csv": (("set", "id", "stage", "reason", "question"), removed),
        args.out / "contamination.csv": (Overlap._fields, sets.overlaps),
    }
    for path, (columns, rows) in lists.items():
        with atomic_path(path) as partial:
            pd.DataFrame(rows, columns=list(columns)).to_csv(partial, index=False)
    manifest = {
        "source": data.source,
        "packages": {name: version(name) for name in (*sets.packages, "datasketch", "math-verify")},
        "sets": sets.facts,
        "counts": sets.counts,
        "warnings": sets.warnings,
        "sha256": {path.relative_to(args.out).as_posix(): file_digest(path) for path in (*tables, *lists)},
    }
    write_json(args.out / "manifest.json", manifest)


if __name__ == "__main__":
    run(main)
