"""Checkpoints: whole or absent, newest first, nothing silently fresh."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ebpo.files import atomic_folder

log = logging.getLogger(__name__)

_PARTS = ("model.pt", "optimizer.pt", "rng.pt", "trainer.json")
_KEEP = 2


@dataclass
class TrainerState:
    """What a run remembers besides weights, optimizer and random state.

    Attributes:
        step: training steps done.
        stream: the prompt stream's state; it counts prompts that were trained on or gated, never read ahead.
        estimator: EBPO's prior; None for algorithms without state.
        completions_total, tokens_total: sampled so far, gated ones included.
        seconds: wall time of training so far, over all attempts.
        resumed_at: steps at which an attempt started from a checkpoint.
    """

    step: int
    stream: dict[str, int]
    estimator: dict[str, Any] | None
    completions_total: int
    tokens_total: int
    seconds: float
    resumed_at: list[int]


def save_checkpoint(
    folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer, state: TrainerState
) -> None:
    """Writes folder/step-NNNNNN beside its place and renames it; keeps the newest two."""
    with atomic_folder(folder / f"step-{state.step:06d}") as partial:
        torch.save(model.state_dict(), partial / "model.pt")
        torch.save(optimizer.state_dict(), partial / "optimizer.pt")
        random_state: dict[str, Any] = {"cpu": torch.get_rng_state()}
        if torch.cuda.is_available():
            random_state["cuda"] = torch.cuda.get_rng_state_all()
        torch.save(random_state, partial / "rng.pt")
        (partial / "trainer.json").write_text(json.dumps(asdict(state)), encoding="utf-8")
    for old in _checkpoints(folder)[_KEEP:]:
        shutil.rmtree(old)


def load_checkpoint(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> TrainerState | None:
    """Restores the newest complete checkpoint in place; None if there is none.

    An incomplete one is named and skipped. A complete one that does not fit the model raises.
    """
    for path in _checkpoints(folder):
        missing = [part for part in _PARTS if not (path / part).exists()]
        if missing:
            log.warning("checkpoint %s skipped: %s missing", path, missing)
            continue
        model.load_state_dict(torch.load(path / "model.pt", weights_only=True, map_location=model.device))
        optimizer.load_state_dict(torch.load(path / "optimizer.pt", weights_only=True, map_location=model.device))
        random_state = torch.load(path / "rng.pt", weights_only=True)
        torch.set_rng_state(random_state["cpu"])
        if "cuda" in random_state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(random_state["cuda"])
        return TrainerState(**json.loads((path / "trainer.json").read_text(encoding="utf-8")))
    return None


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)
