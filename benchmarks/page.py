"""Renews the tables of docs/performance.md from results/bench/*.csv: `python benchmarks/page.py`."""

from __future__ import annotations

import csv
import datetime
import re
from importlib.metadata import version

from measure import REPOSITORY, RESULTS

from ebpo.files import write_text
from ebpo.machine import machine

PAGE = REPOSITORY / "docs" / "performance.md"
PACKAGES = ("torch", "transformers", "trl", "snakemake")


def circumstances() -> str:
    """The date, the machine and the versions."""
    today = datetime.datetime.now(tz=datetime.UTC).date()
    machines = ", ".join(f"{key.lower()} {value}" for key, value in machine().items())
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return f"Measured on {today}: {machines}; {versions}."


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
        return f"<!-- {name} -->\n{circumstances() if name == 'machine' else table(name)}\n<!-- end -->"

    page = re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", renewed, PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    write_text(PAGE, page)


if __name__ == "__main__":
    main()
