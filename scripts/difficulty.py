"""Joins the shards' counts into the base policy's pass rates: difficulty.parquet, and their summary difficulty.json."""

import argparse
from pathlib import Path

import pandas as pd
from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.clustering.difficulty import difficulty_table, merge_counts
from ebpo.config import DifficultyJob, read_section
from ebpo.files import atomic_path, write_json
from ebpo.prompts import read_prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the difficulty job (YAML)")
    parser.add_argument(
        "--prompts", type=Path, required=True, help="rendered prompts of the training problems (parquet)"
    )
    parser.add_argument("--shards", type=Path, nargs="+", required=True, help="counts of every shard (parquet)")
    parser.add_argument("--out", type=Path, required=True, help="difficulty.parquet")
    args = parser.parse_args()
    job = read_section(args.config, TypeAdapter(DifficultyJob))
    counts = merge_counts([pd.read_parquet(path) for path in args.shards], list(read_prompts(args.prompts)))
    table, summary = difficulty_table(counts, job.difficulty)
    write_json(args.out.with_suffix(".json"), summary)
    with atomic_path(args.out) as partial:
        table.to_parquet(partial, index=False)


if __name__ == "__main__":
    run(main)
