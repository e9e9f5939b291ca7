"""Writes the report of an experiment: one self-contained HTML file."""

import argparse
import logging
from pathlib import Path

from ebpo.cli import run
from ebpo.config import read_config
from ebpo.files import write_text
from ebpo.reporting.html import Report, render_report
from ebpo.reporting.json_files import read_object, read_objects
from ebpo.reporting.runs import read_runs, reading_order
from ebpo.reporting.table import read_markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument("--claims", type=Path, required=True, help="folder of the claims")
    parser.add_argument(
        "--tables", type=Path, nargs="+", required=True, help="prefix of each table, the main one first"
    )
    parser.add_argument("--figures", type=Path, required=True, help="folder of the figures")
    parser.add_argument("--clusters", nargs="*", default=[], help="names of the clusters' figures in that folder")
    parser.add_argument(
        "--runs", type=Path, nargs="+", required=True, help="folder of each run; examples in its folder evaluation"
    )
    parser.add_argument("--topics", type=Path, required=True, help="quality of the topic clustering (JSON)")
    parser.add_argument("--theory", type=Path, required=True, help="folder of the theory's tables and figures")
    parser.add_argument("--manifest", type=Path, required=True, help="counts and hashes of the data (JSON)")
    parser.add_argument("--base", type=Path, nargs="+", required=True, help="folder of each base policy")
    parser.add_argument("--commit", required=True, help="commit of the code")
    parser.add_argument("--out", type=Path, required=True, help="the HTML file")
    args = parser.parse_args()
    config, runs = read_config(args.config), read_runs(args.runs)
    report = Report(
        config=config,
        config_path=str(args.config),
        root=str(args.out.parent),
        claims=[read_markdown(args.claims / f"{name}.md") for name in ("claims", "efficiency_targets", "validation")],
        tables=[read_markdown(prefix.with_name(f"{prefix.name}.md")) for prefix in args.tables],
        figures=args.figures,
        clusters=args.clusters,
        runs=reading_order(config, runs),
        examples={
            run.id.folder: read_objects(folder / "evaluation/examples.jsonl")
            for run, folder in zip(runs, args.runs, strict=True)
        },
        topics=read_object(args.topics, {"method", "clusters", "adjusted_rand", "sizes"}),
        theory=args.theory,
        manifest=read_object(args.manifest, {"counts", "sha256"}),
        policies={folder.name: read_object(folder / "policy.json", {"sha256"}) for folder in args.base},
        records={folder.name: read_object(folder / "evaluation/record.json", {"protocol"}) for folder in args.base},
        commit=args.commit,
    )
    write_text(args.out, render_report(report))
    logging.info("report: %s", args.out)


if __name__ == "__main__":
    run(main)
