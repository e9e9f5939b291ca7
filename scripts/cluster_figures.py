"""Draws the topics (confusion with what was known, silhouettes) and the base policies' pass rates."""

import argparse
from pathlib import Path

import pandas as pd

from ebpo.cli import run
from ebpo.reporting.cluster_figures import draw_difficulty, draw_topics
from ebpo.reporting.json_files import read_object


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=Path, required=True, help="topics.json; topics_confusion.csv lies beside it")
    parser.add_argument("--models", nargs="+", required=True, help="names of the models")
    parser.add_argument(
        "--difficulty",
        type=Path,
        nargs="+",
        required=True,
        help="their difficulty.parquet, each with its .json beside it",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the figures")
    args = parser.parse_args()
    confusion = pd.read_csv(args.topics.with_name(f"{args.topics.stem}_confusion.csv"))
    draw_topics(confusion, read_object(args.topics), args.out / "topics")
    draw_difficulty(
        {model: pd.read_parquet(path) for model, path in zip(args.models, args.difficulty, strict=True)},
        {model: read_object(p.with_suffix(".json")) for model, p in zip(args.models, args.difficulty, strict=True)},
        args.out / "difficulty",
    )


if __name__ == "__main__":
    run(main)
