"""One optimizer update. Weights of tokens are fixed for the whole batch before it is split into micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ebpo.algorithms.losses import aggregation_weights, kl_k3
from ebpo.algorithms.registry import needs_selection, select_tokens, token_loss
from ebpo.algorithms.settings import AlgorithmSettings
from ebpo.training.batch import Batch, logprobs_in_chunks, token_logprobs


@dataclass
class UpdateStatistics:
    """Sums over the loss tokens of the updates of one step; `finish` turns them into metrics."""

    tokens: int = 0
    loss: float = 0.0
    clipped_low: int = 0
    clipped_high: int = 0
    ratio_max: float = 0.0
    kl_reference: float = 0.0
    grad_norms: tuple[float, ...] = ()
    skipped: int = 0

    def finish(self) -> dict[str, float]:
        """Metrics of the step: means over tokens, mean gradient norm over updates (before clipping)."""
        tokens = max(self.tokens, 1)
        metrics = {
            "loss": self.loss / max(len(self.grad_norms), 1),
            "clip/low": self.clipped_low / tokens,
            "clip/high": self.clipped_high / tokens,
            "ratio/max": self.ratio_max,
            "kl_reference": self.kl_reference / tokens,
            "updates": float(len(self.grad_norms)),
            "updates/skipped": float(self.skipped),
        }
        if self.grad_norms:
            metrics["grad_norm"] = sum(self.grad_norms) / len(self.grad_norms)
        return metrics


def accumulate_gradient(
    model: PreTrainedModel,
    settings: AlgorithmSettings,
    batch: Batch,
    old_logp: Tensor,
    advantages: Tensor,
    reference_logp: Tensor | None,
    *,
    temperature: float,
    max_length: int,
    micro_batch: int,
    generator: torch.Generator,
    statistics: UpdateStatistics,
) -> bool:
    """Adds the gradient of an optimizer batch's loss to the parameters.

    Args:
        old_logp, reference_logp: [N, T]; reference None means no KL penalty.
        advantages: [N].
        max_length: configured maximal completion length (divisor of the constant aggregation).
        generator: for algorithms that draw tokens.

    Returns:
        False if the batch has no loss token, in which case nothing was added and no update may follow.
    """
    tokens = int(batch.mask.sum())
    if tokens == 0:
        return False
    weights = aggregation_weights(batch.mask, settings.aggregation, max_length)
    selected = None
    if needs_selection(settings):
        current, _ = logprobs_in_chunks(model, batch, temperature, micro_batch)
        selected = select_tokens(settings, current, old_logp, advantages, batch.mask, generator)
    for start in range(0, len(batch), micro_batch):
        rows = slice(start, start + micro_batch)
        part = batch.rows(start, start + micro_batch)
        logp, _ = token_logprobs(model, part, temperature)
        result = token_loss(
            settings, logp, old_logp[rows], advantages[rows], None if selected is None else selected[rows]
        )
        per_token = result.loss
        if reference_logp is not None:
            penalty = kl_k3(logp, reference_logp[rows])
            per_token = per_token + settings.kl_coef * penalty
            statistics.kl_reference += float(torch.where(part.mask, penalty.detach(), 0.0).sum())
        loss = torch.where(part.mask, weights[rows] * per_token, 0.0).sum()
        loss.backward()
        statistics.loss += float(loss.detach())
        statistics.clipped_low += int((result.clipped_low & part.mask).sum())
        statistics.clipped_high += int((result.clipped_high & part.mask).sum())
        ratios = result.ratio.detach()[part.mask]
        statistics.ratio_max = max(statistics.ratio_max, float(ratios.max()) if len(ratios) else 0.0)
    statistics.tokens += tokens
    return True
