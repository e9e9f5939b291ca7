"""The paper's claims (claims.{csv,md}) and the comparisons, sample efficiency and validations behind them (CSV)."""

import argparse
import logging
from pathlib import Path

from ebpo.cli import run
from ebpo.config import read_config
from ebpo.files import atomic_path, write_text
from ebpo.reporting.claims import all_claims, claims_frame, claims_table
from ebpo.reporting.differences import averages, differences
from ebpo.reporting.efficiency import efficiency_curves, efficiency_targets
from ebpo.reporting.paper import read_paper
from ebpo.reporting.runs import read_runs, reading_order
from ebpo.reporting.scores import check_comparable, read_rates, read_scores
from ebpo.reporting.summaries import efficiency_table, validation_table
from ebpo.reporting.table import to_markdown
from ebpo.reporting.theory_figures import read_theorems
from ebpo.reporting.validation import validation_summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument("--runs", type=Path, nargs="+", required=True, help="folder of each run")
    parser.add_argument("--scores", type=Path, nargs="+", required=True, help="scores.csv, beside its per_problem.csv")
    parser.add_argument("--paper", type=Path, required=True, help="the paper's numbers (CSV)")
    parser.add_argument("--theory", type=Path, help="folder of the theory's tables; without it T1 to T5 are undecided")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    config = read_config(args.config)
    runs = reading_order(config, read_runs(args.runs))
    check_comparable(read_scores(args.scores))
    rates = read_rates(args.scores)
    theorems = read_theorems(args.theory) if args.theory else None
    claims = all_claims(config, rates, runs, read_paper(args.paper), theorems)
    curves = efficiency_curves(runs)
    samples = config.training.validation_samples
    targets, validations = efficiency_targets(curves), validation_summary(runs, samples)
    frames = {
        "claims": claims_frame(claims),
        "averages": averages(config, rates),
        "differences": differences(config, rates),
        "efficiency": curves,
        "efficiency_targets": targets,
        "validation": validations,
    }
    for name, frame in frames.items():
        with atomic_path(args.out / f"{name}.csv") as partial:
            frame.to_csv(partial, index=False, float_format="%.6g")
    for table in (claims_table(claims), efficiency_table(targets), validation_table(validations, samples)):
        write_text(args.out / f"{table.name}.md", to_markdown(table))
    logging.info("%d claims: %s", len(claims), args.out / "claims.md")


if __name__ == "__main__":
    run(main)
