"""Training runs as the figures and the report read them: configuration, metrics, summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ebpo.config import ExperimentConfig, RunId, comparison_runs, read_run_config
from ebpo.reporting.json_files import read_object, read_objects


@dataclass(frozen=True)
class Run:
    """A run: what it is, its target of steps, its metrics indexed by step, and its summary ({} if there is none)."""

    id: RunId
    steps: int
    metrics: pd.DataFrame
    summary: dict[str, Any]

    def series(self, key: str) -> pd.Series[float]:
        """The recorded values of a metric, indexed by step; empty if it was never recorded."""
        if key not in self.metrics.columns:
            return pd.Series(dtype="float64")
        return self.metrics[key].dropna().astype("float64")


def read_run(folder: Path) -> Run:
    """Reads a run's folder.

    Raises:
        FileNotFoundError: the folder, its config.yaml or its metrics.jsonl is missing.
        ValueError: a file is malformed, or a step occurs twice.
    """
    for name in ("config.yaml", "metrics.jsonl"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"run {folder}: {name} is missing")
    config = read_run_config(folder / "config.yaml")
    path = folder / "metrics.jsonl"
    rows = read_objects(path)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row.get("step"), int):
            raise ValueError(f"{path}:{number}: step is {row.get('step')!r}; it must be a whole number")
    if not rows:
        raise ValueError(f"{path}: holds no step")
    metrics = pd.DataFrame(rows).set_index("step").sort_index()
    if metrics.index.has_duplicates:
        raise ValueError(f"{path}: step {metrics.index[metrics.index.duplicated()][0]} occurs twice")
    summary = folder / "summary.json"
    found = read_object(summary) if summary.is_file() else {}
    return Run(config.run, config.training.steps, metrics, found)


def read_runs(folders: Iterable[Path]) -> list[Run]:
    """Reads several runs. Raises like `read_run`, and ValueError if two folders hold the same run."""
    runs: dict[str, Run] = {}
    for folder in folders:
        run = read_run(folder)
        if run.id.folder in runs:
            raise ValueError(f"run {folder}: {run.id.folder} was given twice")
        runs[run.id.folder] = run
    return list(runs.values())


def reading_order(config: ExperimentConfig, runs: Sequence[Run]) -> list[Run]:
    """Runs as a reader looks for them: by model, order, group size, method and seed.

    Names come as the configuration's comparisons list them (unlisted ones last), numbers from the smallest.
    """
    listed = [run for comparison in config.comparisons.values() for run in comparison_runs(comparison)]
    places = [
        {name: place for place, name in enumerate(dict.fromkeys(names))}
        for names in zip(*((run.model, run.order, run.method) for run in listed), strict=True)
    ]

    def key(run: Run) -> tuple[int, int, int, int, int]:
        names = (run.id.model, run.id.order, run.id.method)
        model, order, method = (own.get(name, len(own)) for own, name in zip(places, names, strict=True))
        return model, order, run.id.group_size, method, run.id.seed

    return sorted(runs, key=key)
