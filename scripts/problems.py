"""Builds the problem sets: train.parquet, validation.parquet, benchmarks/*.parquet and manifest.json."""

import argparse
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import Data, read_section
from ebpo.files import file_digest, write_json
from ebpo.problems.build import build
from ebpo.problems.record import write_problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the data section (YAML)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    sets = build(read_section(args.config, TypeAdapter(Data)))
    files = {
        args.out / "train.parquet": sets.train,
        args.out / "validation.parquet": sets.validation,
        **{args.out / "benchmarks" / f"{name}.parquet": problems for name, problems in sets.benchmarks.items()},
    }
    for path, problems in files.items():
        write_problems(path, problems)
    digests = {path.relative_to(args.out).as_posix(): file_digest(path) for path in files}
    write_json(args.out / "manifest.json", {"counts": sets.counts, "sha256": digests})


if __name__ == "__main__":
    run(main)
