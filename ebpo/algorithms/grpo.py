"""GRPO (arXiv 2402.03300): advantages standardised inside the group."""

from __future__ import annotations

import torch
from torch import Tensor

from ebpo.algorithms.groups import group_rewards


def grpo_advantages(rewards: Tensor, group_ids: Tensor, std_epsilon: float) -> Tensor:
    """A = (r - mean) / (std + std_epsilon) inside each group, std with n - 1.

    Saturated groups, groups of one and unscorable completions (NaN) get 0. [N] in, [N] float64 out.
    """
    groups = group_rewards(rewards, group_ids)
    return groups.centred() / (groups.std()[groups.index] + std_epsilon)


def dr_grpo_advantages(rewards: Tensor, group_ids: Tensor) -> Tensor:
    """Dr. GRPO (arXiv 2503.20783): A = r - mean inside each group, no division. [N] in, [N] float64 out."""
    return group_rewards(rewards, group_ids).centred()


def soft_overlong_penalty(lengths: Tensor, max_length: int, buffer: int, penalty: float) -> Tensor:
    """DAPO's soft overlong punishment (arXiv 2503.14476, equation 13), to be added to the reward.

    0 up to max_length - buffer tokens, then linear, -penalty at max_length and beyond. [N] in, [N] float64 out.
    """
    over = (lengths.to(torch.float64) - (max_length - buffer)) / buffer
    return -penalty * over.clamp(0.0, 1.0)
