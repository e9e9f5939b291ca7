"""From an algorithm's settings to its three choices: estimator, token loss, aggregation.

This is the one place where algorithms differ for the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ebpo.algorithms import entropy_mech
from ebpo.algorithms.ebpo import EBPOState, ebpo_advantages
from ebpo.algorithms.grpo import dr_grpo_advantages, grpo_advantages, soft_overlong_penalty
from ebpo.algorithms.losses import TokenLoss, clipped_surrogate
from ebpo.algorithms.settings import (
    AlgorithmSettings,
    DAPOSettings,
    DrGRPOSettings,
    EBPOSettings,
    EntropyMechSettings,
)


@dataclass(frozen=True)
class Estimate:
    """Advantages [N] float64, the estimator's new state (None where it has none), its metrics."""

    advantages: Tensor
    state: EBPOState | None
    metrics: dict[str, float]


def shape_rewards(settings: AlgorithmSettings, accuracy: Tensor, lengths: Tensor, max_length: int) -> Tensor:
    """Reward [N] from accuracy [N] (NaN: unscorable) and completion lengths [N]."""
    if not isinstance(settings, DAPOSettings):
        return accuracy
    overlong = settings.overlong
    buffer = max(1, round(overlong.buffer_fraction * max_length))
    return accuracy + soft_overlong_penalty(lengths, max_length, buffer, overlong.penalty)


def estimate(
    settings: AlgorithmSettings,
    rewards: Tensor,
    group_ids: Tensor,
    state: EBPOState | None,
    clusters: Mapping[int, str] | None = None,
) -> Estimate:
    """Advantages of a whole rollout batch, gathered over all processes."""
    if isinstance(settings, EBPOSettings):
        advantages, new_state, metrics = ebpo_advantages(
            rewards.to(torch.float64), group_ids, state, settings=settings, clusters=clusters
        )
        return Estimate(advantages, new_state, metrics)
    if isinstance(settings, DrGRPOSettings):
        return Estimate(dr_grpo_advantages(rewards, group_ids), None, {})
    return Estimate(grpo_advantages(rewards, group_ids, settings.std_epsilon), None, {})


def select_tokens(
    settings: AlgorithmSettings,
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    generator: torch.Generator,
) -> Tensor | None:
    """Tokens that EntropyMech treats apart, over the whole optimizer batch; None for the other algorithms.

    Args:
        logp: [N, T], the current policy's, without gradient.
    """
    if not isinstance(settings, EntropyMechSettings):
        return None
    cov = entropy_mech.covariance(logp, advantages, mask)
    tokens = int(mask.sum())
    if settings.variant == "kl_cov":
        return entropy_mech.kl_cov_tokens(cov, mask, entropy_mech.token_count(settings.kl_cov_fraction, tokens))
    surrogate = clipped_surrogate(logp, old_logp, advantages, settings.clip_low, settings.clip_high)
    return entropy_mech.clip_cov_tokens(
        cov,
        mask & ~surrogate.clipped_low & ~surrogate.clipped_high,
        entropy_mech.token_count(settings.clip_cov_fraction, tokens),
        settings.clip_cov_low,
        settings.clip_cov_high,
        generator,
    )


def needs_selection(settings: AlgorithmSettings) -> bool:
    """Whether the current policy's log-probs over the whole optimizer batch are needed before the update."""
    return isinstance(settings, EntropyMechSettings)


def token_loss(
    settings: AlgorithmSettings, logp: Tensor, old_logp: Tensor, advantages: Tensor, selected: Tensor | None
) -> TokenLoss:
    """Per-token policy loss [N, T], without the KL penalty to the reference."""
    surrogate = clipped_surrogate(logp, old_logp, advantages, settings.clip_low, settings.clip_high)
    if selected is None or not isinstance(settings, EntropyMechSettings):
        return surrogate
    if settings.variant == "clip_cov":
        loss = torch.where(selected, surrogate.loss.detach(), surrogate.loss)
    else:
        # KL-Cov has no ratio clip at all.
        unclipped = -surrogate.ratio * advantages.to(logp.dtype).unsqueeze(-1)
        penalty = settings.kl_cov_coef * (logp - old_logp).abs()
        never = torch.zeros_like(surrogate.clipped_low)
        return TokenLoss(unclipped + torch.where(selected, penalty, 0.0), surrogate.ratio, never, never)
    return TokenLoss(loss, surrogate.ratio, surrogate.clipped_low, surrogate.clipped_high)
