"""Simulates the paper's theorems: OUT/NAME.csv, OUT/facts.json, OUT/figures/NAME.svg and .png."""

import argparse
import logging
from pathlib import Path

from ebpo.cli import run
from ebpo.files import write_json, write_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=400, help="of each simulation (default 400)")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers (default 0)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--documentation", type=Path, help="folder of docs/theory.md's figures, to renew them")
    args = parser.parse_args()
    # Imported only now: --help and a wrong argument need not wait for torch.
    from ebpo.reporting.theory_figures import copy_for_documentation, write_theory_figures
    from ebpo.theory.summary import facts, simulate_all

    tables = simulate_all(args.replications, args.seed, logging.info)
    for name, table in tables.items():
        write_text(args.out / f"{name}.csv", table.to_csv(index=False, float_format="%.10g", lineterminator="\n"))
    write_json(args.out / "facts.json", facts(tables))
    write_theory_figures(args.out, args.out / "figures")
    if args.documentation is not None:
        copy_for_documentation(args.out / "figures", args.documentation)
    logging.info("theory: %s", args.out)


if __name__ == "__main__":
    run(main)
