"""Rollout batches as tensors, and the one function that computes log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

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

    def rows(self, start: int, stop: int) -> Batch:
        """A slice of rows, padding kept."""
        return Batch(self.input_ids[start:stop], self.attention_mask[start:stop], self.mask[start:stop])

    def __len__(self) -> int:
        return self.input_ids.shape[0]


def make_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Completion],
    pad_id: int,
    device: str,
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


def token_logprobs(model: PreTrainedModel, batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs of the completion tokens under softmax(logits / temperature), the distribution that was sampled.

    The only place where log-probs are computed: for the old, the current and the reference policy alike.

    Returns:
        log-probs [N, T] (with gradient where enabled) and entropies [N, T] in nats (without); 0 outside the mask.
    """
    width = batch.mask.shape[1]
    positions = (batch.attention_mask.cumsum(dim=1) - 1).clamp(min=0)
    logits = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        position_ids=positions,
        logits_to_keep=width + 1,
        use_cache=False,
    ).logits[:, :-1]
    distribution = torch.log_softmax(logits.float() / temperature, dim=-1)
    targets = batch.input_ids[:, -width:]
    logp = distribution.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        entropy = -(distribution.exp() * distribution).sum(dim=-1)
    return torch.where(batch.mask, logp, 0.0), torch.where(batch.mask, entropy, 0.0)


def logprobs_in_chunks(
    model: PreTrainedModel, batch: Batch, temperature: float, micro_batch: int
) -> tuple[Tensor, Tensor]:
    """`token_logprobs` without gradient, `micro_batch` rows at a time."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(batch), micro_batch):
            parts.append(token_logprobs(model, batch.rows(start, start + micro_batch), temperature))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
