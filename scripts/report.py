"""Writes the report of an experiment: one self-contained HTML file."""

import argparse
import logging
from pathlib import Path

from ebpo.cli import run
from ebpo.config import read_config
from ebpo.files import write_text
from ebpo.reporting.html import read_topics, render_report
from ebpo.reporting.runs import read_runs
from ebpo.reporting.table import read_markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument(
        "--tables", type=Path, nargs="+", required=True, help="prefix of each table, the main one first"
    )
    parser.add_argument("--figures", type=Path, required=True, help="folder of the figures")
    parser.add_argument("--runs", type=Path, nargs="+", required=True, help="folder of each run")
    parser.add_argument("--topics", type=Path, required=True, help="quality of the topic clustering (JSON)")
    parser.add_argument("--theory", type=Path, required=True, help="folder of the theory's tables and figures")
    parser.add_argument("--commit", required=True, help="commit of the code")
    parser.add_argument("--out", type=Path, required=True, help="the HTML file")
    args = parser.parse_args()
    html = render_report(
        config=read_config(args.config),
        config_path=str(args.config),
        root=str(args.out.parent),
        tables=[read_markdown(prefix.with_name(f"{prefix.name}.md")) for prefix in args.tables],
        figures=args.figures,
        runs=read_runs(args.runs),
        topics=read_topics(args.topics),
        theory=args.theory,
        commit=args.commit,
    )
    write_text(args.out, html)
    logging.info("report: %s", args.out)


if __name__ == "__main__":
    run(main)
