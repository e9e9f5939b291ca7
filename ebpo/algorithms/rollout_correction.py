"""The difference between the engine that samples and the model that is trained, and its correction.

A rollout engine computes the log-probabilities of its samples with other kernels, and perhaps with stale weights, than
the trainer. The difference is measured in every step, bounded, and can be corrected by truncated importance sampling:
Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def padded_values(values: Sequence[Sequence[float] | None], width: int, device: str | torch.device) -> Tensor:
    """The engine's log-probs (or entropies) of N completions as a tensor [N, width] float32, 0 after their ends.

    Raises:
        ValueError: a completion has none, or more than `width`.
    """
    rows = []
    for number, row in enumerate(values):
        if row is None or len(row) > width:
            have = "no numbers" if row is None else f"{len(row)} numbers"
            raise ValueError(
                f"completion {number} has {have} from the rollout engine; needed: one per token, <= {width}"
            )
        rows.append([*row, *([0.0] * (width - len(row)))])
    return torch.tensor(rows, dtype=torch.float32, device=device).reshape(len(rows), width)


def logprob_difference(engine_logp: Tensor, trainer_logp: Tensor, mask: Tensor) -> dict[str, float]:
    """Mean and largest |log pi_engine - log pi_trainer| in nats over the completion tokens.

    Args:
        engine_logp, trainer_logp: [N, T], both under softmax(logits / temperature) with the same weights.
        mask: [N, T] bool, the completion tokens.

    Returns:
        `rollout_logp/mean_abs` and `rollout_logp/max_abs`, 0 for an empty mask. NaN in either input is kept.
    """
    difference = (engine_logp - trainer_logp).abs()[mask].double()
    if not len(difference):
        return {"rollout_logp/mean_abs": 0.0, "rollout_logp/max_abs": 0.0}
    return {"rollout_logp/mean_abs": float(difference.mean()), "rollout_logp/max_abs": float(difference.max())}


def check_logprob_difference(metrics: dict[str, float], bound: float, where: str) -> None:
    """Stops a run whose engine does not sample from the policy that is trained.

    The bound is on the mean: in bfloat16 a single improbable token may differ by tenths of a nat without a fault.

    Args:
        metrics: what `logprob_difference` returned.
        bound: largest allowed mean, in nats.
        where: for the message, such as `step 12`.

    Raises:
        ValueError: the mean is above the bound, or not a number.
    """
    mean, largest = metrics["rollout_logp/mean_abs"], metrics["rollout_logp/max_abs"]
    if not mean <= bound:
        raise ValueError(
            f"{where}: log-probs of the rollout engine differ from the trainer's by {mean:.3g} nats in the mean "
            f"(largest {largest:.3g}); rollouts.logprob_bound allows {bound:g}. "
            "The engine's weights are stale, or its arithmetic differs too much"
        )


def importance_weights(
    trainer_logp: Tensor, engine_logp: Tensor, mask: Tensor, cap: float
) -> tuple[Tensor, dict[str, float]]:
    """Truncated importance-sampling weight of each token: min(pi_trainer / pi_engine, cap).

    It multiplies the token's loss, beside the ratio pi / pi_old that the clip acts on, and carries no gradient.

    Args:
        trainer_logp: [N, T], the trainer's log-probabilities with the weights that sampled (old policy).
        engine_logp: [N, T], the engine's.
        mask: [N, T] bool, the completion tokens.
        cap: C > 0; C = 2 in the source.

    Returns:
        [N, T] in the dtype of `trainer_logp`, 1 outside the mask, and the metrics `importance/mean` (1 without a
        difference) and `importance/capped` (share of tokens), over the mask.

    Raises:
        ValueError: the cap is not above 0.
    """
    if not cap > 0:
        raise ValueError(f"rollouts.importance_cap: {cap} must be above 0, or null for no correction")
    ratio = torch.exp(trainer_logp - engine_logp).detach()
    weights = torch.where(mask, ratio.clamp(max=cap), 1.0)
    tokens = max(int(mask.sum()), 1)
    metrics = {
        "importance/mean": float(weights[mask].double().sum()) / tokens,
        "importance/capped": int((ratio > cap)[mask].sum()) / tokens,
    }
    return weights, metrics
