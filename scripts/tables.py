"""Writes the table of a comparison: OUT.csv, OUT.md, OUT.tex."""

import argparse
import logging
from pathlib import Path

from ebpo.cli import run
from ebpo.config import read_config
from ebpo.reporting.paper import read_paper
from ebpo.reporting.scores import read_rates, read_scores
from ebpo.reporting.table import write_table
from ebpo.reporting.tables import build_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument("--comparison", required=True, help="name of a comparison of the experiment")
    parser.add_argument("--scores", type=Path, nargs="+", required=True, help="scores.csv, beside its per_problem.csv")
    parser.add_argument("--paper", type=Path, required=True, help="the paper's numbers (CSV)")
    parser.add_argument("--out", type=Path, required=True, help="prefix of the files to write")
    args = parser.parse_args()
    config, scores = read_config(args.config), read_scores(args.scores)
    table = build_table(config, args.comparison, scores, read_rates(args.scores), read_paper(args.paper))
    write_table(table, args.out)
    logging.info("table %s: %d rows, %s.{csv,md,tex}", args.comparison, len(table.rows), args.out)


if __name__ == "__main__":
    run(main)
