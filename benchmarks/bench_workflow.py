"""What surrounds the work: planning, program starts, Snakemake's own time: `python benchmarks/bench_workflow.py`.

Planning is `snakemake -n all` for config/paper.yaml. A program's start is `--help`, before anything heavy is imported.
A job's overhead is a twentieth of the difference between 21 empty jobs and one. Writes results/bench/workflow.csv.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from measure import REPOSITORY, in_turns, spread, write_table

COLUMNS = ("what", "times", "median_s", "min_s", "max_s")
EMPTY = """
rule all:
    input: expand("{{i}}", i=range({jobs}))
rule one:
    output: "{{i}}"
    shell: "touch {{output}}"
"""


def command(*parts: str | Path, cwd: Path = REPOSITORY) -> Callable[[], object]:
    """A call of a program that must succeed."""
    return lambda: subprocess.run([str(p) for p in parts], cwd=cwd, check=True, capture_output=True)


def empty_jobs(jobs: int) -> None:
    """Runs a workflow of empty jobs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Snakefile").write_text(EMPTY.format(jobs=jobs), encoding="utf-8")
        command(sys.executable, "-m", "snakemake", "--cores", "1", "--quiet", "all", cwd=Path(folder))()


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args(arguments).times
    paper = ("snakemake", "-n", "all", "--configfile", "config/paper.yaml")
    calls = {"snakemake -n all, config/paper.yaml": command(sys.executable, "-m", *paper)}
    for script in sorted((REPOSITORY / "scripts").glob("*.py")):
        calls[f"scripts/{script.name} --help"] = command(sys.executable, script, "--help")
    calls |= {"1 empty job": lambda: empty_jobs(1), "21 empty jobs": lambda: empty_jobs(21)}
    seconds = in_turns(calls, times)
    many, one = seconds.pop("21 empty jobs"), seconds.pop("1 empty job")
    seconds["overhead of a job"] = [(a - b) / 20 for a, b in zip(many, one, strict=True)]
    write_table("workflow", COLUMNS, [[name, len(values), *spread(values)] for name, values in seconds.items()])


if __name__ == "__main__":
    main()
