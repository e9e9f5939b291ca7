"""Token losses, and the weights with which tokens add up to a batch's loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ebpo.algorithms.settings import Aggregation


@dataclass(frozen=True)
class TokenLoss:
    """Per-token surrogate loss and what happened to each token.

    Attributes:
        loss: [N, T], to be minimised.
        ratio: [N, T], pi / pi_old.
        clipped_low, clipped_high: [N, T] bool, the clip cut this token's gradient at the lower or upper end.
    """

    loss: Tensor
    ratio: Tensor
    clipped_low: Tensor
    clipped_high: Tensor


def clipped_surrogate(
    logp: Tensor, old_logp: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> TokenLoss:
    """PPO's clipped surrogate per token: -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    Args:
        logp, old_logp: [N, T] log-probabilities of the sampled tokens, now and when they were sampled.
        advantages: [N].
    """
    column = advantages.to(logp.dtype).unsqueeze(-1)
    ratio = torch.exp(logp - old_logp)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = -torch.minimum(ratio * column, clipped * column)
    return TokenLoss(
        loss,
        ratio,
        clipped_low=(ratio < 1 - clip_low) & (column < 0),
        clipped_high=(ratio > 1 + clip_high) & (column > 0),
    )


def kl_k3(logp: Tensor, reference_logp: Tensor) -> Tensor:
    """Per-token estimate of KL(pi || reference) on tokens sampled from pi: exp(d) - d - 1, d = log reference - log pi.

    Non-negative, with the right expectation (Schulman 2020); arXiv 2402.03300 equation 4.
    """
    difference = reference_logp - logp
    return torch.exp(difference) - difference - 1


def aggregation_weights(mask: Tensor, aggregation: Aggregation, max_length: int) -> Tensor:
    """Weight of each token, so that a batch's loss is sum(weights * token loss).

    Computed once for an optimizer batch before any split, so micro-batches, ranks, row order and padding cannot
    change the gradient. A row without loss tokens counts nowhere.

    Args:
        mask: [N, T] bool, the loss tokens.
        aggregation: `seq_mean_token_mean` (GRPO, EBPO): mean over a row's tokens, then over rows; `token_mean`
            (DAPO): mean over all tokens; `constant` (Dr. GRPO): sum over rows * max_length.
        max_length: configured maximal completion length, never the tensor's width.

    Returns:
        [N, T] float32, 0 outside the mask.
    """
    tokens = mask.sum(dim=1, dtype=torch.float64)
    rows = (tokens > 0).sum().clamp(min=1)
    if aggregation == "seq_mean_token_mean":
        per_row = 1 / (tokens.clamp(min=1) * rows)
    elif aggregation == "token_mean":
        per_row = torch.ones_like(tokens) / tokens.sum().clamp(min=1)
    else:
        per_row = torch.ones_like(tokens) / (rows * max_length)
    return torch.where(mask, per_row.unsqueeze(-1), 0.0).to(torch.float32)
