"""Grades a policy's completions: graded.parquet, per_problem.csv, scores.csv. Needs no model."""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import EvaluationJob, read_section
from ebpo.evaluation.scoring import grade_frame, per_problem, protocol_hash, scores
from ebpo.files import atomic_path, file_digest
from ebpo.problems.record import read_problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the evaluation job (YAML)")
    parser.add_argument("--completions", type=Path, required=True, help="completions.parquet")
    parser.add_argument("--benchmarks", type=Path, nargs="+", required=True, help="problem tables, named by benchmark")
    parser.add_argument("--identity", required=True, help="which policy this is (JSON: model, method, order, ...)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    job = read_section(args.config, TypeAdapter(EvaluationJob))
    problems = {p.id: p for path in args.benchmarks for p in read_problems(path)}
    protocol = protocol_hash(
        {
            **job.model_dump(mode="json", exclude={"threads"}),
            "engine": f"transformers {version('transformers')}",
            "grader": f"math-verify {version('math-verify')}",
            "problems": {path.stem: file_digest(path) for path in args.benchmarks},
        }
    )
    graded = grade_frame(pd.read_parquet(args.completions), problems)
    counts = per_problem(graded, job.evaluation.samples)
    result = scores(counts, job.evaluation.benchmarks, json.loads(args.identity), protocol)
    with atomic_path(args.out / "graded.parquet") as partial:
        graded.to_parquet(partial, index=False)
    for name, frame in (("per_problem.csv", counts), ("scores.csv", result)):
        with atomic_path(args.out / name) as partial:
            frame.to_csv(partial, index=False)


if __name__ == "__main__":
    run(main)
