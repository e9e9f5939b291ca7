"""Rollout batches as tensors, and the one function that computes log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ebpo.rollouts.packing import pack
from ebpo.rollouts.protocol import Completion


@dataclass(frozen=True)
class Batch:
    """Left-padded prompts followed by right-padded completions.

    Attributes:
        input_ids, attention_mask: [N, P + T].
        mask: [N, T] bool, the completion tokens (the end-of-sequence token included).
    """

    input_ids: Tensor
    attention_mask: Tensor
    mask: Tensor

    def rows(self, part: slice) -> Batch:
        """Some rows, padding kept."""
        return Batch(self.input_ids[part], self.attention_mask[part], self.mask[part])

    def padded_to_multiple(self, count: int) -> Batch:
        """With copies of the first row without loss tokens at the end, so that the rows divide by `count`."""
        missing = -len(self) % count
        if not missing:
            return self
        ids, attention = (t[:1].expand(missing, -1) for t in (self.input_ids, self.attention_mask))
        blank = torch.zeros_like(self.mask[:1]).expand(missing, -1)
        return Batch(
            torch.cat([self.input_ids, ids]), torch.cat([self.attention_mask, attention]), torch.cat([self.mask, blank])
        )

    def __len__(self) -> int:
        return self.input_ids.shape[0]


def make_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Completion],
    pad_id: int,
    device: str | torch.device,
    extra_padding: int = 0,
) -> Batch:
    """Batch of N (prompt, completion) pairs. Masks come from lengths, never from the pad id.

    Args:
        extra_padding: further columns of padding on the right (it must change nothing, and a test says so).
    """
    left = max(len(p) for p in prompts)
    right = max(max(len(c.token_ids) for c in completions), 1) + extra_padding
    input_ids, attention, mask = [], [], []
    for prompt, completion in zip(prompts, completions, strict=True):
        before, after = left - len(prompt), right - len(completion.token_ids)
        input_ids.append([pad_id] * before + list(prompt) + completion.token_ids + [pad_id] * after)
        attention.append([0] * before + [1] * (len(prompt) + len(completion.token_ids)) + [0] * after)
        mask.append([True] * len(completion.token_ids) + [False] * after)
    return Batch(
        torch.tensor(input_ids, device=device),
        torch.tensor(attention, device=device),
        torch.tensor(mask, device=device),
    )


def token_logprobs(model: nn.Module, batch: Batch, temperature: float) -> Tensor:
    """Log-probs of the completion tokens under softmax(logits / temperature), the distribution that was sampled.

    The only place where log-probs are computed: for the old, the current and the reference policy alike.

    Returns:
        [N, T], with gradient where enabled; 0 outside the mask.
    """
    return _Distributions.of(model, batch, temperature).sampled()


def logprobs_in_chunks(model: nn.Module, batch: Batch, temperature: float, rows: int) -> tuple[Tensor, Tensor]:
    """`token_logprobs` without gradient, a number of rows at a time, and the entropies of the same distributions.

    Returns:
        log-probs [N, T] and entropies [N, T] in nats; 0 outside the mask.
    """
    logps, entropies = [], []
    with torch.no_grad():
        for start in range(0, len(batch), rows):
            distributions = _Distributions.of(model, batch.rows(slice(start, start + rows)), temperature)
            logps.append(distributions.sampled())
            entropies.append(distributions.entropies())
    return torch.cat(logps), torch.cat(entropies)


@dataclass(frozen=True)
class _Distributions:
    """The distributions that the completion tokens of a batch came from.

    Attributes:
        logp: [R, S, V] log-probabilities, as the model's pass laid them out.
        row, position: [N] and [N, T], where in `logp` a completion's distributions are.
    """

    batch: Batch
    logp: Tensor
    row: Tensor
    position: Tensor

    @classmethod
    def of(cls, model: nn.Module, batch: Batch, temperature: float) -> _Distributions:
        """One pass of the model over the batch."""
        packed = pack(batch)
        logits = model(
            input_ids=packed.input_ids,
            attention_mask=packed.attention_mask,
            position_ids=packed.position_ids,
            logits_to_keep=packed.kept,
            use_cache=False,
        ).logits
        logp = torch.log_softmax(logits.float() / temperature, dim=-1)
        return cls(batch, logp, packed.row, packed.position)

    def sampled(self) -> Tensor:
        """Log-probs [N, T] of the tokens themselves."""
        targets = self.batch.input_ids[:, -self.batch.mask.shape[1] :]
        return torch.where(self.batch.mask, self.logp[self.row.unsqueeze(1), self.position, targets], 0.0)

    def entropies(self) -> Tensor:
        """[N, T] in nats."""
        entropy = torch.special.entr(self.logp.exp()).sum(dim=-1)
        return torch.where(self.batch.mask, entropy[self.row.unsqueeze(1), self.position], 0.0)
