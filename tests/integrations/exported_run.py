"""A run of config/paper.yaml written for verl, on a few problems: shared by the tests of the export."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from ebpo.algorithms.settings import AlgorithmSettings
from ebpo.config import RunId, read_config
from ebpo.integrations.verl_export import overrides
from ebpo.problems.record import Problem, write_problems

REPOSITORY = Path(__file__).resolve().parents[2]
METHODS = ("grpo", "dr_grpo", "dapo", "entropy_mech", "ebpo")


def settings_of(
    method: str, gpus: int = 8, settings: AlgorithmSettings | None = None, **coordinates: Any
) -> dict[str, Any]:
    """verl's settings for a run of config/paper.yaml.

    Args:
        settings: in place of the method's own.
        coordinates: those of the run, where they are not the paper's main table.
    """
    experiment = read_config(REPOSITORY / "config" / "paper.yaml")
    run = {"model": "qwen3-8b", "method": method, "order": "topic", "group_size": 4, "seed": 0, **coordinates}
    config = experiment.run_config(RunId(**run))
    if settings is not None:
        config = config.model_copy(update={"settings": settings})
    return overrides(config, experiment.models["qwen3-8b"].path, gpus, 1)


def problems(count: int = 6) -> list[Problem]:
    """Problems with a plain gold, and one each with several required answers, and with a tolerance."""
    plain = [Problem(f"q{i}", f"What is {i} plus {i}?", str(2 * i), "sums", "", 1.0) for i in range(count - 2)]
    several = Problem("two", "Which x solve x^2 = 4?", "2,-2", "sums", "", 2.0, ("2", "-2"))
    rounded = Problem("pi", "What is pi, to two digits?", "3.14", "sums", "", 2.0, (), "numerical", 0.01)
    return [*plain, several, rounded]


def export(out: Path, method: str, *options: str, config: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs scripts/to_verl.py on `problems()`, split evenly into two topics."""
    tables = out.parent / "tables"
    known = problems()
    write_problems(tables / "train.parquet", known)
    write_problems(tables / "validation.parquet", known[:2])
    topics = pd.DataFrame({"id": [p.id for p in known], "topic": ["a", "b"] * (len(known) // 2)})
    topics.to_parquet(tables / "topics.parquet")
    arguments = {
        "--config": str(config or REPOSITORY / "config" / "paper.yaml"),
        "--model": "qwen3-8b",
        "--method": method,
        "--train": str(tables / "train.parquet"),
        "--validation": str(tables / "validation.parquet"),
        "--topics": str(tables / "topics.parquet"),
        "--out": str(out),
    }
    command = [sys.executable, str(REPOSITORY / "scripts" / "to_verl.py")]
    for key, value in arguments.items():
        command += [key, value]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)
