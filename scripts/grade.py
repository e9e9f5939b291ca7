"""Grades a policy's completions: graded.parquet, per_problem.csv, scores.csv, record.json, examples.jsonl. No model."""

import argparse
import json
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import EvaluationJob, read_section
from ebpo.evaluation.examples import example_completions
from ebpo.evaluation.protocol import read_protocol
from ebpo.evaluation.scoring import grade_frame, per_problem, record, scores
from ebpo.files import atomic_path, file_digest, write_json, write_text
from ebpo.problems.record import read_problems
from ebpo.workflow import code_digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the evaluation job (YAML)")
    parser.add_argument("--completions", type=Path, required=True, help="completions.parquet, beside its protocol.json")
    parser.add_argument("--benchmarks", type=Path, nargs="+", required=True, help="problem tables, named by benchmark")
    parser.add_argument("--identity", required=True, help="which policy this is (JSON: model, method, order, ...)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    job = read_section(args.config, TypeAdapter(EvaluationJob))
    problems = {p.id: p for path in args.benchmarks for p in read_problems(path)}
    protocol = read_protocol(args.completions.with_name("protocol.json")).graded_by(
        f"math-verify {version('math-verify')}, code {code_digest('ebpo/grading')}",
        {path.stem: file_digest(path) for path in args.benchmarks},
    )
    graded = grade_frame(pd.read_parquet(args.completions), problems)
    counts = per_problem(graded, protocol.samples)
    result = scores(counts, job.evaluation.benchmarks, json.loads(args.identity), protocol.digest)
    with atomic_path(args.out / "graded.parquet") as partial:
        graded.to_parquet(partial, index=False, compression="zstd")
    for name, frame in (("per_problem.csv", counts), ("scores.csv", result)):
        with atomic_path(args.out / name) as partial:
            frame.to_csv(partial, index=False)
    examples = example_completions(graded, problems)
    write_text(args.out / "examples.jsonl", "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in examples))
    write_json(args.out / "record.json", record(graded, protocol))


if __name__ == "__main__":
    run(main)
