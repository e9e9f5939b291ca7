"""Gives every training problem one topic: topics.parquet, their quality topics.json, and topics_confusion.csv."""

import argparse
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import Topics, read_section
from ebpo.files import atomic_path, write_json, write_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the topics section (YAML)")
    parser.add_argument("--problems", type=Path, required=True, help="training problems (parquet)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="topics.parquet")
    args = parser.parse_args()
    # Imported only now: --help and a wrong argument need not wait for torch.
    from ebpo.clustering.quality import confusion, quality
    from ebpo.clustering.topics import cluster
    from ebpo.problems.record import read_problems

    settings, problems = read_section(args.config, TypeAdapter(Topics)), read_problems(args.problems)
    clustering = cluster(problems, settings, args.threads)
    write_json(args.out.with_suffix(".json"), quality(problems, clustering, settings))
    table = confusion(problems, clustering.topics)
    write_text(args.out.with_name(f"{args.out.stem}_confusion.csv"), table.to_csv(lineterminator="\n"))
    with atomic_path(args.out) as partial:
        clustering.table(problems).to_parquet(partial, index=False)


if __name__ == "__main__":
    run(main)
