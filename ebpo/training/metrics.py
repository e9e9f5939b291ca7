"""Metrics of a step. Each is defined here, once."""

from __future__ import annotations

import psutil
import torch
from torch import Tensor

from ebpo.algorithms.groups import group_rewards
from ebpo.training.collect import Collected, RolloutBatch


def _nan_free(values: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in values.items() if value == value}


def rollout_metrics(collected: Collected, shaped: Tensor) -> dict[str, float]:
    """What was sampled, before the gate; accuracy after it as `accuracy/gated`.

    Args:
        shaped: [N] rewards of the sampled rows, NaN at unscorable ones.
    """
    batch = collected.sampled
    accuracy, ids = batch.tensors()
    groups = group_rewards(accuracy, ids)
    occupied = groups.occupied
    lengths = torch.tensor([len(c.token_ids) for c in batch.completions], dtype=torch.float64)
    truncated = torch.tensor([c.finish_reason == "length" for c in batch.completions])
    count = max(int(occupied.sum()), 1)
    return _nan_free(
        {
            "reward": float(shaped.nanmean()),
            "accuracy": float(accuracy.nanmean()),
            "accuracy/gated": float(collected.trained.tensors()[0].nanmean())
            if collected.trained.group_ids
            else torch.nan,
            "groups/all_0": float((groups.saturated & occupied & (groups.high == 0)).sum()) / count,
            "groups/all_1": float((groups.saturated & occupied & (groups.low == 1)).sum()) / count,
            "groups/duplicates": duplicate_fraction(batch),
            "completion/length": float(lengths.mean()),
            "completion/truncated": float(truncated.double().mean()),
            "completion/unscorable": float(torch.isnan(accuracy).double().mean()),
            "rounds": float(collected.rounds),
        }
    )


def duplicate_fraction(batch: RolloutBatch) -> float:
    """Share of completions that repeat an earlier one of their group."""
    distinct = {(g, tuple(c.token_ids)) for g, c in zip(batch.group_ids, batch.completions, strict=True)}
    return 1 - len(distinct) / len(batch.group_ids)


def advantage_metrics(advantages: Tensor) -> dict[str, float]:
    """Mean, standard deviation (n - 1) and largest magnitude of the advantages that the update sees."""
    return {
        "advantage/mean": float(advantages.mean()),
        "advantage/std": float(advantages.std()) if len(advantages) > 1 else 0.0,
        "advantage/max": float(advantages.abs().max()),
    }


def masked_mean(values: Tensor, mask: Tensor) -> float:
    """Mean over the loss tokens of a [N, T] tensor, token-weighted; 0 where there is none."""
    return float(torch.where(mask, values.double(), 0.0).sum() / mask.sum().clamp(min=1))


def step_kl(old_logp: Tensor, new_logp: Tensor, mask: Tensor) -> float:
    """KL(pi_t || pi_t+1) per token, estimated on the step's own tokens, which were sampled from pi_t.

    The k3 estimate with ratio pi_t+1 / pi_t: mean of exp(d) - 1 - d, d = new - old log-prob. Non-negative, unbiased.
    """
    difference = (new_logp - old_logp).double()
    return masked_mean(torch.exp(difference) - 1 - difference, mask)


def process_rss_mb() -> float:
    """Resident memory of this process in MB."""
    return float(psutil.Process().memory_info().rss / 1e6)
