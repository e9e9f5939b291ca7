"""Measures the base policy's pass rate on every training problem: difficulty.parquet."""

import argparse
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.clustering.difficulty import pass_rates
from ebpo.config import DifficultyJob, read_section
from ebpo.files import atomic_path
from ebpo.policy.loading import load_policy, set_determinism
from ebpo.problems.record import read_problems
from ebpo.prompts import render_all
from ebpo.rollouts.transformers_engine import TransformersRollouts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the difficulty job (YAML)")
    parser.add_argument("--policy", type=Path, required=True, help="folder of the base policy")
    parser.add_argument("--problems", type=Path, required=True, help="training problems (parquet)")
    parser.add_argument("--out", type=Path, required=True, help="difficulty.parquet")
    args = parser.parse_args()
    job = read_section(args.config, TypeAdapter(DifficultyJob))
    set_determinism(job.threads)
    problems = read_problems(args.problems)
    model, tokenizer = load_policy(args.policy, job.dtype, job.device)
    prompt_ids = render_all(tokenizer, job.template, [(p.id, p.problem) for p in problems], job.max_prompt_tokens)
    rollouts = TransformersRollouts(model, tokenizer)
    table = pass_rates(problems, prompt_ids, rollouts, job.difficulty, job.max_new_tokens)
    with atomic_path(args.out) as partial:
        table.to_parquet(partial, index=False)


if __name__ == "__main__":
    run(main)
