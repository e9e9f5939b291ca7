"""Renews the tables of docs/performance.md from results/bench/*.csv: `python benchmarks/page.py`."""

from __future__ import annotations

import csv
import datetime
import os
import re
from importlib.metadata import version
from pathlib import Path

from measure import REPOSITORY, RESULTS

from ebpo.files import write_text

PAGE = REPOSITORY / "docs" / "performance.md"
PACKAGES = ("torch", "transformers", "trl", "snakemake")


def machine() -> str:
    """The processor, the cores that may be used, the versions, and today."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    names = re.findall(r"^model name\s*:\s*(.*)$", text, flags=re.MULTILINE)
    cores = len(os.sched_getaffinity(0))
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return f"Measured on {today}: {names[0] if names else 'unknown processor'}, {cores} cores; {versions}."


def table(name: str) -> str:
    """A CSV file as a Markdown table."""
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        raise SystemExit(f"{path} is missing; run `make bench`")
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file))
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def main() -> None:
    """Replaces what stands between the markers `<!-- NAME -->` and `<!-- end -->`."""

    def renewed(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name} -->\n{machine() if name == 'machine' else table(name)}\n<!-- end -->"

    page = re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", renewed, PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    write_text(PAGE, page)


if __name__ == "__main__":
    main()
