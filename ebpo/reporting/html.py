"""The report: one HTML file with everything in it, so that it can be read offline and sent around."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ebpo.config import ExperimentConfig, dump_yaml
from ebpo.reporting.browser import browser_data, run_facts
from ebpo.reporting.captions import CLUSTER_FIGURES, FIGURES, figure_names
from ebpo.reporting.provenance import package_versions, protocol_rows
from ebpo.reporting.runs import Run
from ebpo.reporting.style import method_colours
from ebpo.reporting.table import Table
from ebpo.reporting.theory_figures import REPORT_FIGURES, THEORY_FIGURES, read_theorems


@dataclass(frozen=True)
class Report:
    """What a report is made of.

    Attributes:
        config: the experiment.
        config_path: its file, as the commands for reproducing name it.
        root: the experiment's folder, as these commands name it.
        claims: the claims, the sample efficiency and the validations, from `read_markdown`.
        tables: from `read_markdown`, the main one first.
        figures: folder of the SVG files.
        clusters: names of the figures of the clusters, in the same folder; none where no run needs a pass rate.
        runs: all runs.
        examples: folder of a run -> rows of `ebpo.evaluation.examples.example_completions`.
        topics: quality of the topic clustering (topics.json).
        theory: folder of the tables and figures of scripts/theory.py.
        manifest: the data's counts and hashes (manifest.json).
        policies: model -> its policy.json.
        records: model -> record.json of the evaluation of its base policy.
        commit: of the code.
    """

    config: ExperimentConfig
    config_path: str
    root: str
    claims: Sequence[Table]
    tables: Sequence[Table]
    figures: Path
    clusters: Sequence[str]
    runs: Sequence[Run]
    examples: Mapping[str, Sequence[Mapping[str, Any]]]
    topics: Mapping[str, Any]
    theory: Path
    manifest: Mapping[str, Any]
    policies: Mapping[str, Mapping[str, Any]]
    records: Mapping[str, Mapping[str, Any]]
    commit: str


def render_report(report: Report) -> str:
    """The report as HTML.

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
    config = report.config
    options = f"--cores 2 --configfile {report.config_path}"

    def redo(target: str) -> str:
        # The target comes first: --configfile takes every word that follows it.
        return f"snakemake {report.root}/{target} --force {options}"

    def figure(name: str, captions: Mapping[str, tuple[str, str]]) -> tuple[str, str, str, str, str]:
        return (name, *captions[name], _data_uri(report.figures / f"{name}.svg"), redo(f"figures/{name}.svg"))

    simulate = f"snakemake theory --force {options}"
    claims, efficiency, validation = report.claims
    samples = config.training.validation_samples
    browser = browser_data(report.runs, report.examples, method_colours(list(config.methods)), samples)
    return environment.get_template("report.html.j2").render(
        config=config,
        configuration=dump_yaml(config),
        claims=(claims, redo("claims/claims.md")),
        verdicts=_verdicts(claims),
        efficiency=(efficiency, redo("claims/efficiency_targets.md")),
        validation=(validation, redo("claims/validation.md")),
        tables=[(table, redo(f"tables/{table.name}.md")) for table in report.tables],
        figures=[figure(name, FIGURES) for name in figure_names(config)],
        cluster_figures=[figure(name, CLUSTER_FIGURES) for name in report.clusters],
        whole=f"snakemake {report.root}/report.html {options}",
        runs=[(run.id.folder, run_facts(run)) for run in report.runs],
        browser=_script_data(browser),
        topics=report.topics,
        theorems=[_theorem_row(row) for row in read_theorems(report.theory).to_dict("records")],
        theory_figures=[
            (f"theory-{name}", *THEORY_FIGURES[name], _data_uri(report.theory / "figures" / f"{name}.svg"), simulate)
            for name in REPORT_FIGURES
        ],
        simulate=simulate,
        manifest=report.manifest,
        policies=report.policies,
        protocols={model: protocol_rows(record) for model, record in report.records.items()},
        totals=_totals(report.runs),
        commit=report.commit,
        machines=_machines(report.runs),
        versions=package_versions(),
    )


def _verdicts(claims: Table) -> dict[str, int]:
    """Number of claims by verdict."""
    place = [column.header for column in claims.columns].index("Verdict")
    counts = Counter(row[place].text for row in claims.rows)
    return {verdict: counts[verdict] for verdict in ("supported", "not supported", "undecided")}


def _machines(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The different machines that the runs ended on."""
    found: list[dict[str, str]] = []
    for run in runs:
        if "machine" in run.summary and run.summary["machine"] not in found:
            found.append(run.summary["machine"])
    return found


def _totals(runs: Sequence[Run]) -> dict[str, str]:
    """Completions sampled for training and hours of wall time, of all runs together."""
    sums = {
        key: sum(run.summary[key] for run in runs) if all(key in run.summary for run in runs) else None
        for key in ("completions_total", "seconds")
    }
    completions, seconds = sums["completions_total"], sums["seconds"]
    return {
        "runs": f"{len(runs):,}",
        "completions": "an unrecorded number of" if completions is None else f"{completions:,}",
        "hours": "an unrecorded number of" if seconds is None else f"{seconds / 3600:.2f}",
    }


def _script_data(value: Any) -> Markup:
    """JSON for a script element: no text in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


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
