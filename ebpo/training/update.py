"""One optimizer update. Everything that looks at the whole batch is fixed before it is split into micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ebpo.algorithms.losses import aggregation_weights, kl_k3
from ebpo.algorithms.registry import token_loss
from ebpo.algorithms.settings import AlgorithmSettings
from ebpo.rollouts.batch import Batch, token_logprobs
from ebpo.training.processes import Processes, accumulating


@dataclass
class UpdateStatistics:
    """Sums over the loss tokens that this process saw in a step's updates; `finish` turns them into metrics."""

    tokens: int = 0
    loss: float = 0.0
    clipped_low: int = 0
    clipped_high: int = 0
    ratio_max: float = 0.0
    kl_reference: float = 0.0
    grad_norms: list[float] = field(default_factory=list)
    skipped: int = 0

    def finish(self, processes: Processes) -> dict[str, float]:
        """Metrics of the step over all processes: means over tokens, mean norm (before clipping) over updates."""
        tokens, loss, low, high, kl = processes.reduce(
            [self.tokens, self.loss, self.clipped_low, self.clipped_high, self.kl_reference], sum
        )
        (ratio,) = processes.reduce([self.ratio_max], max)
        count = max(tokens, 1)
        metrics = {
            "loss": loss / max(len(self.grad_norms), 1),
            "clip/low": low / count,
            "clip/high": high / count,
            "ratio/max": ratio,
            "kl_reference": kl / count,
            "updates": float(len(self.grad_norms)),
            "updates/skipped": float(self.skipped),
        }
        if self.grad_norms:
            metrics["grad_norm"] = sum(self.grad_norms) / len(self.grad_norms)
        return metrics


@dataclass(frozen=True)
class OptimizerBatch:
    """The rows of one optimizer update, with all that was decided on the whole of them.

    Attributes:
        batch: N rows.
        old_logp, reference_logp: [N, T]; reference None means no KL penalty.
        advantages: [N].
        weights: [N, T], so that the loss is sum(weights * token loss).
        selected: [N, T] bool, tokens that EntropyMech treats apart; None for the other algorithms.
        importance: [N, T], factor of the policy loss that corrects for the rollout engine; None means 1.
    """

    batch: Batch
    old_logp: Tensor
    advantages: Tensor
    reference_logp: Tensor | None
    weights: Tensor
    selected: Tensor | None
    importance: Tensor | None = None

    @classmethod
    def of(
        cls,
        settings: AlgorithmSettings,
        batch: Batch,
        old_logp: Tensor,
        advantages: Tensor,
        reference_logp: Tensor | None,
        selected: Tensor | None,
        max_length: int,
        importance: Tensor | None = None,
    ) -> OptimizerBatch:
        """With the weights of the algorithm's aggregation; `max_length` is the configured maximal completion length."""
        weights = aggregation_weights(batch.mask, settings.aggregation, max_length)
        return cls(batch, old_logp, advantages, reference_logp, weights, selected, importance)

    @property
    def tokens(self) -> int:
        """Number of loss tokens; an update without any must not happen."""
        return int(self.batch.mask.sum())

    def __len__(self) -> int:
        return len(self.batch)

    def rows(self, part: slice) -> OptimizerBatch:
        """Some rows; their weights stay those of the whole."""
        return OptimizerBatch(
            self.batch.rows(part),
            self.old_logp[part],
            self.advantages[part],
            None if self.reference_logp is None else self.reference_logp[part],
            self.weights[part],
            None if self.selected is None else self.selected[part],
            None if self.importance is None else self.importance[part],
        )

    def padded_to_multiple(self, count: int) -> OptimizerBatch:
        """With rows of weight 0 at the end, so that the rows divide by `count`."""
        missing = -len(self) % count

        def padded(tensor: Tensor) -> Tensor:
            return torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])])

        return OptimizerBatch(
            self.batch.padded_to_multiple(count),
            padded(self.old_logp),
            padded(self.advantages),
            None if self.reference_logp is None else padded(self.reference_logp),
            padded(self.weights),
            None if self.selected is None else padded(self.selected),
            None if self.importance is None else padded(self.importance),
        )


def accumulate_gradient(
    model: nn.Module,
    settings: AlgorithmSettings,
    whole: OptimizerBatch,
    processes: Processes,
    *,
    temperature: float,
    micro_batch: int,
    statistics: UpdateStatistics,
) -> None:
    """Adds the gradient of a batch's loss to the parameters, each process computing its part of the rows.

    Args:
        micro_batch: rows per pass; changes memory, never the gradient.
        statistics: gets this process's sums.
    """
    # Every process makes the same number of equal passes, since sharded models synchronise in each.
    padded = whole.padded_to_multiple(processes.count)
    own = padded.rows(processes.part(len(padded)))
    for start in range(0, len(own), micro_batch):
        part = own.rows(slice(start, start + micro_batch))
        mask = part.batch.mask
        with accumulating(model, last=start + micro_batch >= len(own)):
            logp = token_logprobs(model, part.batch, temperature)
            result = token_loss(settings, logp, part.old_logp, part.advantages, part.selected)
            per_token = result.loss if part.importance is None else part.importance * result.loss
            if part.reference_logp is not None:
                penalty = kl_k3(logp, part.reference_logp)
                per_token = per_token + settings.kl_coef * penalty
                statistics.kl_reference += float(torch.where(mask, penalty.detach(), 0.0).sum())
            loss = torch.where(mask, part.weights * per_token, 0.0).sum()
            # DDP and FSDP2 average gradients over processes; ours add up.
            (loss * processes.count).backward()
        statistics.loss += float(loss.detach())
        statistics.clipped_low += int((result.clipped_low & mask).sum())
        statistics.clipped_high += int((result.clipped_high & mask).sum())
        ratios = result.ratio.detach()[mask]
        statistics.ratio_max = max(statistics.ratio_max, float(ratios.max()) if len(ratios) else 0.0)
        statistics.tokens += int(mask.sum())
