"""Draws the figures of an experiment: OUT/NAME.svg and OUT/NAME.png."""

import argparse
import logging
from pathlib import Path

from ebpo.cli import run
from ebpo.config import read_config
from ebpo.reporting.figures import write_figures
from ebpo.reporting.runs import read_runs
from ebpo.reporting.scores import read_rates, read_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument("--runs", type=Path, nargs="+", required=True, help="folder of each run")
    parser.add_argument("--scores", type=Path, nargs="+", required=True, help="scores.csv, beside its per_problem.csv")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    config, scores, rates = read_config(args.config), read_scores(args.scores), read_rates(args.scores)
    names = write_figures(config, read_runs(args.runs), scores, rates, args.out)
    logging.info("figures %s in %s", ", ".join(names), args.out)


if __name__ == "__main__":
    run(main)
