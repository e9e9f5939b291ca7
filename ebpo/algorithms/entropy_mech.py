"""EntropyMech (arXiv 2505.22617): find the tokens that drive entropy down, and detach or KL-penalise them.

The selection sees a whole optimizer batch, before any split, so it does not depend on the micro-batch size.
"""

from __future__ import annotations

import torch
from torch import Tensor


def covariance(logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """(A - mean A) * (log p - mean log p) per token, means over the loss tokens. [N, T], 0 outside the mask."""
    column = advantages.to(torch.float64).unsqueeze(-1).expand(mask.shape)
    exact = logp.to(torch.float64)
    count = mask.sum().clamp(min=1)
    mean_advantage = torch.where(mask, column, 0.0).sum() / count
    mean_logp = torch.where(mask, exact, 0.0).sum() / count
    return torch.where(mask, (column - mean_advantage) * (exact - mean_logp), 0.0)


def clip_cov_tokens(
    cov: Tensor, candidates: Tensor, count: int, low: float, high: float, generator: torch.Generator
) -> Tensor:
    """Clip-Cov: up to `count` candidates with a covariance inside (low, high), drawn without replacement.

    Args:
        cov: [N, T] from `covariance`.
        candidates: [N, T] bool, loss tokens that the ratio clip left alone.

    Returns:
        [N, T] bool, the tokens to detach.
    """
    eligible = (candidates & (cov > low) & (cov < high)).flatten().nonzero().flatten()
    chosen = eligible[torch.randperm(len(eligible), generator=generator).to(eligible.device)[:count]]
    selected = torch.zeros(cov.numel(), dtype=torch.bool, device=cov.device)
    selected[chosen] = True
    return selected.view(cov.shape)


def kl_cov_tokens(cov: Tensor, mask: Tensor, count: int) -> Tensor:
    """KL-Cov: the `count` loss tokens with the largest covariance. [N, T] bool."""
    flat = torch.where(mask, cov, -torch.inf).flatten()
    selected = torch.zeros_like(flat, dtype=torch.bool)
    selected[flat.topk(min(count, int(mask.sum()))).indices] = True
    return selected.view(cov.shape)


def token_count(fraction: float, tokens: int) -> int:
    """Number of tokens to select: the fraction of the optimizer batch, at least one."""
    return max(1, int(fraction * tokens))
