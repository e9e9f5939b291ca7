"""EBPO in verl: importing this module registers the advantage estimator "ebpo".

    algorithm.adv_estimator=ebpo
    trainer.checkpoint_callback_class=ebpo.integrations.verl.PriorCheckpoint

verl builds the checkpoint callback in the process that computes advantages, so the second line both imports this
module there and saves the prior beside verl's checkpoints. VERL_USE_EXTERNAL_MODULES=ebpo.integrations.verl imports it
too, but saves nothing. Options are `+algorithm.ebpo.half_life=512` and so on.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor
from verl.trainer.ppo.checkpoint_callback import CheckpointCallback
from verl.trainer.ppo.core_algos import register_adv_est
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path

from ebpo.algorithms.ebpo import EBPOState, ebpo_advantages
from ebpo.algorithms.settings import EBPOSettings
from ebpo.files import write_json
from ebpo.integrations.options import ESTIMATOR_OPTIONS, estimator_settings

log = logging.getLogger(__name__)

ESTIMATOR = "ebpo"
PRIOR_FILE = "ebpo_prior.json"
METRICS_FILE = "ebpo_metrics.jsonl"


@dataclass
class Driver:
    """What EBPO keeps in the one process that computes advantages.

    Attributes:
        state: the prior.
        batches: batches in the prior; verl in its synchronous mode has one a training step.
        metrics: of the last batch.
        metrics_path: where a line per batch is appended; None without a PriorCheckpoint.
    """

    state: EBPOState = field(default_factory=EBPOState)
    batches: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    metrics_path: Path | None = None


driver = Driver()


def algorithm_settings(algorithm: Any) -> EBPOSettings:
    """The estimator's settings from verl's `algorithm` section (an omegaconf mapping or AlgoConfig).

    Raises:
        ValueError: an option of `algorithm.ebpo` is unknown or not allowed, or asks for a prior per cluster.
    """
    options = algorithm.get("ebpo", None) if algorithm is not None else None
    if isinstance(options, DictConfig):
        options = OmegaConf.to_container(options, resolve=True)
    settings = estimator_settings(dict(options or {}), "algorithm.ebpo.")
    if settings.scope == "cluster":
        raise ValueError(
            "algorithm.ebpo.scope: verl tells an estimator the group of a row and no other column, so there is no "
            "cluster; allowed: global"
        )
    return settings


@register_adv_est(ESTIMATOR)
def compute_ebpo_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray | None = None,
    config: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """EBPO's advantages of a batch (paper, Algorithm 1); updates the prior.

    Rows without a loss token are the padding that verl adds, or were rejected: they leave every statistic. So do rows
    whose reward is NaN (unscorable); they get advantage 0.

    Args:
        token_level_rewards: [N, T]; a row's reward is their sum.
        response_mask: [N, T], the loss tokens.
        index: [N], the uid of the row's prompt.
        config: verl's `algorithm` section.

    Returns:
        advantages [N, T], 0 outside the mask, and the same once more as returns.

    Raises:
        ValueError: the rows have no uid, or an option is not allowed.
    """
    if index is None:
        raise ValueError("the batch has no uid, so EBPO cannot tell groups apart")
    settings = algorithm_settings(config)
    if driver.metrics_path is None and driver.batches == 0:
        log.warning(
            "EBPO's prior will not be saved: set trainer.checkpoint_callback_class=%s.PriorCheckpoint", __name__
        )
    trained = response_mask.bool().any(dim=-1)
    rewards = torch.where(trained, token_level_rewards.double().sum(dim=-1), torch.nan).cpu()
    group_ids = torch.from_numpy(pd.factorize(np.asarray(index, dtype=object))[0].astype(np.int64))
    advantages, driver.state, metrics = ebpo_advantages(rewards, group_ids, driver.state, settings=settings)
    driver.batches += 1
    scorable = ~torch.isnan(rewards)
    metrics["unscorable"] = 1 - float(scorable.sum()) / max(int(trained.sum()), 1)
    driver.metrics = metrics
    _append_metrics()
    per_token = advantages.to(token_level_rewards).unsqueeze(-1) * response_mask
    return per_token, per_token


def _append_metrics() -> None:
    if driver.metrics_path is None:
        return
    driver.metrics_path.parent.mkdir(parents=True, exist_ok=True)
    with driver.metrics_path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"batch": driver.batches, **driver.metrics}) + "\n")


class PriorCheckpoint(CheckpointCallback):
    """Saves the prior in each of verl's checkpoint folders, and restores it when verl resumes from one.

    Raises:
        ValueError: the configuration does not fit EBPO.
        FileNotFoundError: verl is about to resume from a checkpoint that has no prior.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config=config)
        if config.algorithm.adv_estimator != ESTIMATOR:
            raise ValueError(
                f"algorithm.adv_estimator: {config.algorithm.adv_estimator!r} has no prior to save; "
                f"allowed with {type(self).__name__}: {ESTIMATOR}"
            )
        self._options = algorithm_settings(config.algorithm).model_dump(include=set(ESTIMATOR_OPTIONS))
        folder = _resume_folder(config.trainer)
        state, batches = (EBPOState(), 0) if folder is None else self._read(folder / PRIOR_FILE)
        driver.state, driver.batches, driver.metrics = state, batches, {}
        driver.metrics_path = Path(config.trainer.default_local_dir).absolute() / METRICS_FILE

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **_: Any) -> None:
        """Called by verl when it has saved a checkpoint."""
        content = {"options": self._options, "batches": driver.batches, "prior": driver.state.to_dict()}
        write_json(Path(checkpoint_dir) / PRIOR_FILE, content)

    def _read(self, path: Path) -> tuple[EBPOState, int]:
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: missing, so EBPO's prior cannot be restored; resume from a checkpoint that has it "
                "(trainer.resume_mode=resume_path trainer.resume_from_path=...), or start anew (resume_mode=disable)"
            )
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for name, value in content["options"].items():
            if self._options[name] != value:
                raise ValueError(
                    f"{path}: the prior was collected with {name} {value!r}, and algorithm.ebpo.{name} is "
                    f"{self._options[name]!r}; resume with the same options"
                )
        return EBPOState.from_dict(content["prior"]), int(content["batches"])


def _resume_folder(trainer: Any) -> Path | None:
    """The checkpoint that verl will resume from, found as verl's trainer does (`PPOTrainer._load_checkpoint`)."""
    if trainer.resume_mode == "auto":
        found = find_latest_ckpt_path(os.path.abspath(trainer.default_local_dir))
        return None if found is None else Path(found)
    if trainer.resume_mode == "resume_path":
        return Path(os.path.abspath(trainer.resume_from_path))
    return None


__all__ = ["ESTIMATOR", "METRICS_FILE", "PRIOR_FILE", "PriorCheckpoint", "compute_ebpo_advantage", "driver"]
