"""Checkpoints: whole or absent, newest first, nothing silently fresh, and free of the number of processes."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebpo.files import atomic_folder, atomic_path
from ebpo.training.policy import TrainedPolicy
from ebpo.training.processes import Processes

log = logging.getLogger(__name__)

_PARTS = ("model.pt", "optimizer.pt", "trainer.json")
_KEEP = 2


@dataclass
class TrainerState:
    """What a run remembers besides weights and optimizer. Random numbers need no state: they are f(seed, step).

    Attributes:
        step: training steps done.
        stream: the prompt stream's state; it counts prompts that were trained on or gated, never read ahead.
        estimator: EBPO's prior; None for algorithms without state.
        completions_total, tokens_total: sampled so far, gated ones included.
        seconds: wall time of training so far, over all attempts.
        best_step, best_score: the validation with the highest majority vote so far, the earliest of equals; step 0 is
            the base policy and does not count.
        resumed_at: steps at which an attempt started from a checkpoint.
    """

    step: int
    stream: dict[str, int]
    estimator: dict[str, Any] | None = None
    completions_total: int = 0
    tokens_total: int = 0
    seconds: float = 0.0
    best_step: int = 0
    best_score: float = -1.0
    resumed_at: list[int] = field(default_factory=list)


def save_checkpoint(folder: Path, policy: TrainedPolicy, state: TrainerState, processes: Processes) -> None:
    """Writes folder/step-NNNNNN beside its place and renames it; keeps the newest two. Every process takes part."""
    parameters, optimizer = policy.trainable_state(), policy.optimizer_state()
    if processes.is_main:
        with atomic_folder(folder / f"step-{state.step:06d}") as partial:
            torch.save(parameters, partial / "model.pt")
            torch.save(optimizer, partial / "optimizer.pt")
            (partial / "trainer.json").write_text(json.dumps(asdict(state)), encoding="utf-8")
        for old in _checkpoints(folder)[_KEEP:]:
            shutil.rmtree(old)
        # An earlier best is needed as long as a checkpoint that remembers it may be resumed.
        oldest = min(_state(path).best_step for path in _checkpoints(folder))
        for path in folder.glob("best-*.pt"):
            if path != _best(folder, state.best_step) and int(path.stem.removeprefix("best-")) < oldest:
                path.unlink()
    processes.wait()


def load_checkpoint(folder: Path, policy: TrainedPolicy, processes: Processes) -> TrainerState | None:
    """Restores the newest complete checkpoint in place; None if there is none.

    An incomplete one is named and skipped. A complete one that does not fit the policy raises.
    """
    path = processes.same(_newest_complete(folder) if processes.is_main else None)
    if path is None:
        return None
    policy.load_state(_load(path / "model.pt"), _load(path / "optimizer.pt"))
    return _state(path)


def save_best(folder: Path, policy: TrainedPolicy, step: int, processes: Processes) -> None:
    """Keeps the parameters of a step as the best so far. Every process takes part."""
    parameters = policy.trainable_state()
    if processes.is_main:
        with atomic_path(_best(folder, step)) as partial:
            torch.save(parameters, partial)


def load_best(folder: Path, step: int) -> dict[str, Tensor]:
    """The parameters that `save_best` kept."""
    parameters: dict[str, Tensor] = _load(_best(folder, step))
    return parameters


def _best(folder: Path, step: int) -> Path:
    return folder / f"best-{step:06d}.pt"


def _load(path: Path) -> Any:
    return torch.load(path, weights_only=True, map_location="cpu")


def _state(path: Path) -> TrainerState:
    return TrainerState(**json.loads((path / "trainer.json").read_text(encoding="utf-8")))


def _newest_complete(folder: Path) -> Path | None:
    for path in _checkpoints(folder):
        missing = [part for part in _PARTS if not (path / part).exists()]
        if not missing:
            return path
        log.warning("checkpoint %s skipped: %s missing", path, missing)
    return None


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)
