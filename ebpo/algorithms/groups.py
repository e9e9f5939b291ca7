"""Statistics of groups: the completions of one draw of one prompt, told apart by an explicit id."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """Rewards by group, unscorable completions left out of every statistic.

    Attributes:
        ids: [M] int64, sorted group ids.
        rewards: [N] float64, as given; NaN at unscorable completions.
        index: [N] int64, the row's group, 0..M-1 in the order of sorted ids.
        scorable: [N] bool.
        sizes: [M] float64, number of scorable completions.
        means: [M] float64; 0 where a group has no scorable completion.
        m2: [M] float64, sum of squared deviations from the group mean, exactly 0 for equal rewards.
        low, high: [M] float64, smallest and largest reward; +inf and -inf in an empty group.
    """

    ids: Tensor
    rewards: Tensor
    index: Tensor
    scorable: Tensor
    sizes: Tensor
    means: Tensor
    m2: Tensor
    low: Tensor
    high: Tensor

    @property
    def saturated(self) -> Tensor:
        """[M] bool: all scorable rewards of the group are equal (compared exactly, not by their variance)."""
        return self.low >= self.high

    @property
    def occupied(self) -> Tensor:
        """[M] bool: the group has a scorable completion."""
        return self.sizes > 0

    def std(self) -> Tensor:
        """[M] standard deviation with n - 1; 0 in groups of one."""
        return torch.sqrt(self.m2 / (self.sizes - 1).clamp(min=1))

    def centred(self) -> Tensor:
        """[N] reward minus group mean; exactly 0 in saturated groups and at unscorable completions."""
        centred = torch.where(self.scorable, self.rewards - self.means[self.index], 0.0)
        return torch.where(self.saturated[self.index], 0.0, centred)


def group_rewards(rewards: Tensor, group_ids: Tensor) -> Groups:
    """Groups of a batch.

    Args:
        rewards: [N]; NaN marks an unscorable completion.
        group_ids: [N] integers; rows with the same id form a group, wherever they stand.

    Raises:
        ValueError: the shapes differ, there is no row, or a reward is infinite.
    """
    if rewards.ndim != 1 or rewards.shape != group_ids.shape or rewards.numel() == 0:
        raise ValueError(
            f"rewards {tuple(rewards.shape)}, group_ids {tuple(group_ids.shape)}: must be 1-D, equally long, not empty"
        )
    if bool(torch.isinf(rewards).any()):
        raise ValueError("rewards must be finite, or NaN for an unscorable completion; an infinite one was given")
    exact = rewards.to(torch.float64)
    unique, index = torch.unique(group_ids, return_inverse=True)
    scorable = ~torch.isnan(exact)
    known = torch.where(scorable, exact, 0.0)

    def total(values: Tensor) -> Tensor:
        return torch.zeros(len(unique), dtype=torch.float64, device=exact.device).index_add(0, index, values)

    sizes = total(scorable.to(torch.float64))
    means = total(known) / sizes.clamp(min=1)
    empty = torch.full((len(unique),), torch.inf, dtype=torch.float64, device=exact.device)
    low = empty.scatter_reduce(0, index, torch.where(scorable, exact, torch.inf), "amin")
    high = (-empty).scatter_reduce(0, index, torch.where(scorable, exact, -torch.inf), "amax")
    deviations = torch.where(scorable, exact - means[index], 0.0)
    m2 = torch.where(low >= high, 0.0, total(deviations.square()))
    return Groups(unique, exact, index, scorable, sizes, means, m2, low, high)
