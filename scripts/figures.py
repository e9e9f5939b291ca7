"""Draws the figures of an experiment: OUT/NAME.svg and OUT/NAME.png."""

import argparse
import logging
from pathlib import Path

from ebpo.cli import run
from ebpo.config import read_config
from ebpo.reporting.figures import write_figures
from ebpo.reporting.runs import read_runs
from ebpo.reporting.scores import read_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument("--runs", type=Path, nargs="+", required=True, help="folder of each run")
    parser.add_argument("--scores", type=Path, nargs="+", required=True, help="scores.csv of each policy")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    names = write_figures(read_config(args.config), read_runs(args.runs), read_scores(args.scores), args.out)
    logging.info("figures %s in %s", ", ".join(names), args.out)


if __name__ == "__main__":
    run(main)
