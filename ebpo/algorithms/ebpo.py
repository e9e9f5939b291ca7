"""EBPO (arXiv 2602.05165, Algorithm 1): the group mean shrunk towards a running prior.

    S = (sigma2 / G) / (sigma2 / G + tau2),   V_m = (1 - S) * mean_m + S * mu_glob,   raw = r - V_m,
    A = (raw - mean(raw)) / (std(raw) + epsilon) over the whole batch.

The raw advantage of an all-0 group is -S * mu_glob, not 0. After the batch normalisation a batch in which every
group is saturated alike has A = 0 again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ebpo.algorithms.groups import Groups, group_rewards
from ebpo.algorithms.moments import Moments
from ebpo.algorithms.settings import EBPOSettings

GLOBAL = "global"


@dataclass(frozen=True)
class Prior:
    """What EBPO remembers of one scope.

    Attributes:
        rewards: over every single reward (W_reward).
        group_means: over every group mean (W_group).
        within: pooled inside-group M2, with `count` the degrees of freedom (sum of n - 1).
        inverse_size: over 1/n of every group, for debiasing tau2.
    """

    rewards: Moments = Moments()
    group_means: Moments = Moments()
    within: Moments = Moments()
    inverse_size: Moments = Moments()

    def updated(self, groups: Groups, members: Tensor, half_life: float | None) -> Prior:
        """The prior after a batch; only the groups in `members` ([M] bool) count."""
        used = members & groups.occupied
        rows = used[groups.index] & groups.scorable
        sizes = groups.sizes[used]
        batch = Prior(
            rewards=Moments.of(groups.rewards[rows]),
            group_means=Moments.of(groups.means[used]),
            within=Moments(float((sizes - 1).sum()), 0.0, float(groups.m2[used].sum())),
            inverse_size=Moments.of(1 / sizes),
        )
        factor = 1.0 if half_life is None else 0.5 ** (float(used.sum()) / half_life)
        return Prior(
            rewards=self.rewards.decay(factor).merge(batch.rewards),
            group_means=self.group_means.decay(factor).merge(batch.group_means),
            within=self.within.decay(factor).merge(batch.within),
            inverse_size=self.inverse_size.decay(factor).merge(batch.inverse_size),
        )

    def variances(self, settings: EBPOSettings) -> tuple[float, float]:
        """(sigma2, tau2) as the options `within` and `between` define them."""
        pooled = max(self.within.m2, 0.0) / self.within.count if self.within.count > 0 else 0.0
        sigma2 = self.rewards.variance if settings.within == "total" else pooled
        tau2 = self.group_means.variance
        if settings.between == "debiased":
            tau2 = max(tau2 - pooled * self.inverse_size.mean, 0.0)
        return sigma2, tau2

    def pseudo_count(self) -> float:
        """a + b of the Beta prior, by the method of moments on group means with theta's variance debiased.

        For theta ~ Beta(a, b): Var(theta) = mu (1 - mu) / (a + b + 1) and E[within] = mu (1 - mu) - Var(theta).
        Infinite when theta does not vary, 0 when it is always 0 or 1.
        """
        mean = min(max(self.rewards.mean, 0.0), 1.0)
        total = mean * (1 - mean)
        share = self.inverse_size.mean
        # E[Var(group means)] = Var(theta) + (total - Var(theta)) * E[1/n]
        theta = (self.group_means.variance - total * share) / (1 - share) if share < 1 else 0.0
        if total == 0.0 or theta <= 0.0:
            return torch.inf
        return max(total / theta - 1, 0.0)

    def to_dict(self) -> dict[str, dict[str, float]]:
        return {name: getattr(self, name).to_dict() for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, values: Mapping[str, Mapping[str, float]]) -> Prior:
        return cls(**{name: Moments.from_dict(moments) for name, moments in values.items()})


@dataclass(frozen=True)
class EBPOState:
    """One prior per scope: `global` alone, or one per cluster id."""

    priors: Mapping[str, Prior] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {scope: prior.to_dict() for scope, prior in self.priors.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EBPOState:
        return cls({scope: Prior.from_dict(prior) for scope, prior in values.items()})


def _shrinkage(prior: Prior, sizes: Tensor, settings: EBPOSettings) -> Tensor:
    """S of each group, [M] in [0, 1]; 0 where no variance has been seen (0/0): then the raw advantage is 0 anyway."""
    if settings.prior == "beta_binomial":
        pseudo = prior.pseudo_count()
        return torch.ones_like(sizes) if pseudo == torch.inf else pseudo / (pseudo + sizes)
    sigma2, tau2 = prior.variances(settings)
    noise = sigma2 / sizes
    return torch.where(noise + tau2 > 0, noise / (noise + tau2), 0.0)


def ebpo_advantages(
    rewards: Tensor,
    group_ids: Tensor,
    state: EBPOState | None = None,
    *,
    settings: EBPOSettings | None = None,
    clusters: Mapping[int, str] | None = None,
    **options: Any,
) -> tuple[Tensor, EBPOState, dict[str, float]]:
    """Advantages of one training step (Algorithm 1, steps 1 to 7).

    Args:
        rewards: [N] float; NaN marks an unscorable completion, which leaves every statistic and gets 0.
        group_ids: [N] int; rows with the same id are completions of the same draw of a prompt.
        state: what the previous step returned; None at the start of training.
        settings: options as an object, or
        options: options by name, such as half_life=512 (see `EBPOSettings`).
        clusters: group id -> cluster, for scope="cluster".

    Returns:
        advantages [N] in the dtype of `rewards` (float32 for integers), the new state, and the step's metrics.

    Raises:
        ValueError: shapes differ, an option is invalid, or scope="cluster" lacks a cluster.

    Example:
        An all-0 group beside a mixed one is pushed down, not ignored:

        >>> import torch
        >>> from ebpo import ebpo_advantages
        >>> rewards = torch.tensor([0.0, 0.0, 1.0, 0.0])
        >>> advantages, state, metrics = ebpo_advantages(rewards, torch.tensor([7, 7, 9, 9]))
        >>> [round(a, 3) for a in advantages.tolist()]
        [-0.289, -0.289, 1.443, -0.866]
        >>> metrics["mu_glob"], round(metrics["shrinkage"], 3)
        (0.25, 0.5)
    """
    if settings is not None and options:
        raise ValueError("give either settings or options by name, not both")
    settings = settings or EBPOSettings(**options)
    state = state or EBPOState()
    groups = group_rewards(rewards, group_ids)
    scopes = _scopes(groups, settings, clusters)

    old = {scope: state.priors.get(scope, Prior()) for scope in scopes}
    new = {scope: old[scope].updated(groups, members, settings.half_life) for scope, members in scopes.items()}
    scoring = new if settings.update == "before" else old

    baseline = groups.means.clone()
    shrinkage = torch.zeros_like(groups.means)
    for scope, members in scopes.items():
        prior = scoring[scope]
        if not prior.rewards.count:
            continue  # update="after" on the very first batch: nothing to shrink towards
        shrinkage[members] = _shrinkage(prior, groups.sizes[members].clamp(min=1), settings)
        baseline[members] = groups.means[members] + shrinkage[members] * (prior.rewards.mean - groups.means[members])

    raw = torch.where(groups.scorable, groups.rewards - baseline[groups.index], 0.0)
    seen = raw[groups.scorable]
    moments = Moments.of(seen)
    std = moments.variance**0.5
    advantages = torch.where(groups.scorable, (raw - moments.mean) / (std + settings.normalise_epsilon), 0.0)
    advantages = torch.zeros_like(advantages) if moments.m2 == 0.0 else advantages

    metrics = _metrics(scoring, scopes, shrinkage, groups, settings)
    metrics["raw_advantage_std"] = std
    all_zero = groups.occupied & groups.saturated & (groups.high == 0)
    if bool(all_zero.any()):
        metrics["raw_advantage_all_0_groups"] = float(-baseline[all_zero].mean())
    dtype = rewards.dtype if rewards.is_floating_point() else torch.float32
    return advantages.to(dtype), EBPOState({**state.priors, **new}), metrics


def _scopes(groups: Groups, settings: EBPOSettings, clusters: Mapping[int, str] | None) -> dict[str, Tensor]:
    """Scope name -> [M] bool of its groups, in a fixed order."""
    if settings.scope == "global":
        return {GLOBAL: torch.ones_like(groups.saturated)}
    ids = groups.ids.tolist()
    missing = [i for i in ids if clusters is None or i not in clusters]
    if missing or clusters is None:
        raise ValueError(f"scope='cluster' needs a cluster for every group id; missing for {missing[:5]}")
    names = sorted({clusters[i] for i in ids})
    number = {name: position for position, name in enumerate(names)}
    scope = torch.tensor([number[clusters[i]] for i in ids], device=groups.means.device)
    return {name: scope == position for name, position in number.items()}


def _metrics(
    priors: Mapping[str, Prior],
    scopes: Mapping[str, Tensor],
    shrinkage: Tensor,
    groups: Groups,
    settings: EBPOSettings,
) -> dict[str, float]:
    metrics: dict[str, float] = {}
    weights = {scope: float((members & groups.occupied).sum()) for scope, members in scopes.items()}
    total = sum(weights.values()) or 1.0
    values: dict[str, dict[str, float]] = {}
    for scope, prior in priors.items():
        sigma2, tau2 = prior.variances(settings)
        values[scope] = {"mu_glob": prior.rewards.mean, "sigma2": sigma2, "tau2": tau2}
    for name in ("mu_glob", "sigma2", "tau2"):
        metrics[name] = sum(weights[scope] * values[scope][name] for scope in scopes) / total
        if settings.scope == "cluster":
            metrics |= {f"{name}/{scope}": values[scope][name] for scope in scopes}
    metrics["shrinkage"] = float(shrinkage[groups.occupied].mean()) if bool(groups.occupied.any()) else 0.0
    return metrics


class EBPOBaseline:
    """EBPO's estimator with its state, for a trainer of your own.

    Call it once per training step with the whole batch, gathered over all processes; save `state_dict()` with the
    weights, or the prior starts cold after a restart.

    Example:
        >>> import torch
        >>> from ebpo import EBPOBaseline
        >>> baseline = EBPOBaseline(half_life=512)
        >>> advantages = baseline(torch.tensor([1.0, 0.0, 0.0, 0.0]), torch.tensor([0, 0, 1, 1]))
        >>> restored = EBPOBaseline(half_life=512)
        >>> restored.load_state_dict(baseline.state_dict())
        >>> restored.state == baseline.state
        True
    """

    def __init__(self, settings: EBPOSettings | None = None, **options: Any) -> None:
        if settings is not None and options:
            raise ValueError("give either settings or options by name, not both")
        self.settings = settings or EBPOSettings(**options)
        self.state = EBPOState()
        self.metrics: dict[str, float] = {}

    def __call__(self, rewards: Tensor, group_ids: Tensor, clusters: Mapping[int, str] | None = None) -> Tensor:
        """Advantages [N] of one step; see `ebpo_advantages`."""
        advantages, self.state, self.metrics = ebpo_advantages(
            rewards, group_ids, self.state, settings=self.settings, clusters=clusters
        )
        return advantages

    def state_dict(self) -> dict[str, Any]:
        return self.state.to_dict()

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        self.state = EBPOState.from_dict(values)


def all_zero_raw_advantage(mu_glob: Tensor, shrinkage: Tensor) -> Tensor:
    """Raw advantage -S * mu_glob of a group without a success (paper, non-vanishing and penalty scale)."""
    return -shrinkage * mu_glob


__all__ = ["EBPOBaseline", "EBPOState", "Prior", "all_zero_raw_advantage", "ebpo_advantages"]
