"""Reads a run's input files, and the digest that ties checkpoints to them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ebpo.clustering.curriculum import select
from ebpo.config import RunConfig, dump_yaml
from ebpo.files import file_digest
from ebpo.problems.record import read_problems
from ebpo.prompts import read_prompts
from ebpo.training.trainer import TrainingInputs

log = logging.getLogger(__name__)


def read_inputs(
    config: RunConfig,
    *,
    policy: Path,
    train: Path,
    validation: Path,
    prompts: Path,
    topics: Path | None = None,
    difficulty: Path | None = None,
) -> TrainingInputs:
    """The run's inputs; problem sets that are missing, empty or lack a column are named.

    Args:
        prompts: folder with the rendered prompts, train.parquet and validation.parquet. A training problem without a
            prompt was dropped as too long; a validation problem must have one.

    Raises:
        ValueError: a table is empty or lacks a column, or a validation problem has no prompt.
        FileNotFoundError: a file is missing.
    """
    problems = {name: read_problems(path) for name, path in (("train", train), ("validation", validation))}
    for name, path in (("train", train), ("validation", validation)):
        if not problems[name]:
            raise ValueError(f"{path}: holds no problem; {name} needs at least one")
    prompt_ids = {name: read_prompts(prompts / f"{name}.parquet") for name in problems}
    lost = [p.id for p in problems["validation"] if p.id not in prompt_ids["validation"]]
    if lost:
        raise ValueError(f"{prompts}: {len(lost)} validation problems have no prompt, the first is {lost[0]}")
    pass_rates = {i: float(v) for i, v in _column(difficulty, "pass_rate")} if difficulty else None
    rendered = [p for p in problems["train"] if p.id in prompt_ids["train"]]
    selection = select([p.id for p in rendered], pass_rates, config.curriculum)
    if config.curriculum.drops:
        log.info(
            "training problems dropped: %d never solved by the base policy, %d always; %d are left",
            selection.dropped_all_fail,
            selection.dropped_all_pass,
            len(selection.kept),
        )
    kept = set(selection.kept)
    digest = hashlib.sha256(dump_yaml(config).encode())
    for source in (policy, train, validation, prompts, topics, difficulty):
        digest.update((file_digest(source) if source else "none").encode())
    return TrainingInputs(
        policy=policy,
        train=[p for p in rendered if p.id in kept],
        validation=problems["validation"],
        prompt_ids={**prompt_ids["train"], **prompt_ids["validation"]},
        topics={i: str(v) for i, v in _column(topics, "topic")} if topics else None,
        pass_rates=pass_rates,
        digest=digest.hexdigest(),
        dropped={
            "too_long": len(problems["train"]) - len(rendered),
            "never_solved": selection.dropped_all_fail,
            "always_solved": selection.dropped_all_pass,
        },
    )


def _column(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    frame = pd.read_parquet(path)
    if name not in frame.columns:
        raise ValueError(f"{path}: column {name!r} is missing; it has {list(frame.columns)}")
    return zip(frame["id"], frame[name], strict=True)
