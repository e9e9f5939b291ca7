"""Samples completions of one policy on all benchmarks: loads it once, writes completions.parquet."""

import argparse
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import EvaluationJob, read_section
from ebpo.evaluation.sampling import sample_benchmarks
from ebpo.files import atomic_path
from ebpo.policy.loading import load_policy, set_determinism
from ebpo.problems.record import read_problems
from ebpo.rollouts.transformers_engine import TransformersRollouts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the evaluation job (YAML)")
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy")
    parser.add_argument("--benchmarks", type=Path, nargs="+", required=True, help="problem tables, named by benchmark")
    parser.add_argument("--out", type=Path, required=True, help="completions.parquet")
    args = parser.parse_args()
    job = read_section(args.config, TypeAdapter(EvaluationJob))
    set_determinism(job.threads)
    model, tokenizer = load_policy(args.policy, job.dtype, job.device)
    frame = sample_benchmarks(
        {path.stem: read_problems(path) for path in args.benchmarks},
        TransformersRollouts(model, tokenizer),
        job.evaluation,
        job.template,
        job.max_prompt_tokens,
    )
    with atomic_path(args.out) as partial:
        frame.to_parquet(partial, index=False)


if __name__ == "__main__":
    run(main)
