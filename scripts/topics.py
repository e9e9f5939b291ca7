"""Gives every training problem one topic: topics.parquet, and the clustering's quality as topics.json."""

import argparse
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.clustering.topics import cluster, quality
from ebpo.config import Topics, read_section
from ebpo.files import atomic_path, write_json
from ebpo.problems.record import read_problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the topics section (YAML)")
    parser.add_argument("--problems", type=Path, required=True, help="training problems (parquet)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="topics.parquet")
    args = parser.parse_args()
    settings, problems = read_section(args.config, TypeAdapter(Topics)), read_problems(args.problems)
    topics = cluster(problems, settings, args.threads)
    write_json(args.out.with_suffix(".json"), quality(problems, list(topics["topic"]), settings))
    with atomic_path(args.out) as partial:
        topics.to_parquet(partial, index=False)


if __name__ == "__main__":
    run(main)
