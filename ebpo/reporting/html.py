"""The report: one HTML file with everything in it, so that it can be read offline and sent around."""

from __future__ import annotations

import base64
import json
import math
import platform
from collections.abc import Hashable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ebpo.config import ExperimentConfig, dump_yaml
from ebpo.reporting.captions import FIGURES
from ebpo.reporting.labels import method_label, order_label
from ebpo.reporting.runs import Run
from ebpo.reporting.table import Table
from ebpo.reporting.theory_figures import REPORT_FIGURES, THEORY_FIGURES, read_theorems

PACKAGES = (
    "ebpo", "torch", "transformers", "snakemake", "math-verify", "reasoning-gym", "sentence-transformers",
    "scikit-learn", "numpy", "pandas", "matplotlib",
)  # fmt: skip


def render_report(
    config: ExperimentConfig,
    config_path: str,
    root: str,
    tables: Sequence[Table],
    figures: Path,
    runs: Sequence[Run],
    topics: Mapping[str, Any],
    theory: Path,
    commit: str,
) -> str:
    """The report as HTML.

    Args:
        config: the experiment.
        config_path: its file, as the commands for reproducing name it.
        root: the experiment's folder, as these commands name it.
        tables: from `read_markdown`, the main one first.
        figures: folder of the SVG files.
        runs: all runs.
        topics: quality of the topic clustering.
        theory: folder of the tables and figures of scripts/theory.py.
        commit: of the code.

    Raises:
        FileNotFoundError: a figure or the table of the theorems is missing.
    """
    environment = Environment(
        loader=PackageLoader("ebpo.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    options = f"--cores 2 --configfile {config_path}"

    def redo(target: str) -> str:
        # The target comes first: --configfile takes every word that follows it.
        return f"snakemake {root}/{target} --force {options}"

    simulate = f"snakemake theory --force {options}"
    return environment.get_template("report.html.j2").render(
        config=config,
        configuration=dump_yaml(config),
        tables=[(table, redo(f"tables/{table.name}.md")) for table in tables],
        figures=[
            (name, title, caption, _data_uri(figures / f"{name}.svg"), redo(f"figures/{name}.svg"))
            for name, (title, caption) in FIGURES.items()
        ],
        whole=f"snakemake {root}/report.html {options}",
        runs=[_run_row(run) for run in runs],
        topics=topics,
        theorems=[_theorem_row(row) for row in read_theorems(theory).to_dict("records")],
        theory_figures=[
            (f"theory-{name}", *THEORY_FIGURES[name], _data_uri(theory / "figures" / f"{name}.svg"), simulate)
            for name in REPORT_FIGURES
        ],
        simulate=simulate,
        commit=commit,
        versions=package_versions(),
    )


def read_topics(path: Path) -> dict[str, Any]:
    """Reads the clustering's quality: method, clusters, adjusted_rand, sizes.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it is not valid, or lacks a key.
    """
    if not path.is_file():
        raise FileNotFoundError(f"clustering quality {path} is missing")
    try:
        topics = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from None
    missing = {"method", "clusters", "adjusted_rand", "sizes"} - set(topics)
    if missing:
        raise ValueError(f"{path}: keys {sorted(missing)} are missing")
    return dict(topics)


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the results, in the environment of the caller."""
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed here"
    return versions


def _data_uri(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"figure {path} is missing")
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def _theorem_row(row: Mapping[Hashable, Any]) -> dict[str, str]:
    """A row of T1 to T5 as text; a value without closed form is a dash."""
    numbers = {
        key: "–" if math.isnan(row[key]) else f"{row[key] + 0.0:.4f}"
        for key in ("analytic", "simulated", "low", "high")
    }
    return {**{str(key): str(value) for key, value in row.items()}, **numbers}


def _run_row(run: Run) -> dict[str, str]:
    """A run as the report's list shows it; what was not recorded is a dash."""
    reward, total = run.series("reward"), run.series("completions_total")
    done = int(run.metrics.index.max())
    seconds = run.summary.get("seconds")
    return {
        "run": run.id.folder,
        "method": method_label(run.id.method),
        "order": order_label(run.id.order),
        "steps": f"{done} of {run.steps}",
        "reward": f"{reward.iloc[-1]:.3f}" if len(reward) else "–",
        "completions": f"{int(total.iloc[-1]):,}" if len(total) else "–",
        "seconds": "–" if seconds is None else _duration(float(seconds)),
        "resumed": ", ".join(str(step) for step in run.summary.get("resumed_at", [])) or "–",
    }


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
