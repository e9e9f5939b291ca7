"""Rollout batches as tensors, and the one function that computes log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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


# Up to this many tokens a row of several completions is cheaper: in longer ones the attention that the mask throws away
# costs more than the prompts that are saved, and kernels for long rows take no such mask.
_PACKED_TOKENS = 512


@dataclass(frozen=True)
class Packed:
    """N completions in R rows: a prompt, then up to K completions of it that do not see each other.

    A group's prompt is computed once instead of G times. Log-probs and gradients are those of separate rows.

    Attributes:
        input_ids, position_ids: [R, P + K * T].
        attention_mask: [R, P + K * T], or [R, 1, L, L] bool (True: attends) with L = P + K * T where K > 1.
        kept: [S] columns whose logits are needed: the prompt's last and those of the completions.
        row, position: [N] and [N, T], where among [R, S] the distributions of a completion's tokens are.
    """

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    kept: Tensor
    row: Tensor
    position: Tensor


def pack(batch: Batch) -> Packed:
    """Puts neighbouring rows of the same prompt together, as many as fit, without columns that are padding in all."""
    total = batch.mask.shape[1]
    before = batch.input_ids.shape[1] - total
    lengths = batch.attention_mask[:, :before].sum(dim=1)
    width = max(1, int(batch.attention_mask[:, before:].sum(dim=1).max()))
    longest = int(lengths.max())
    device = batch.input_ids.device

    columns = slice(before - longest, before)
    prompts, prompt_mask = batch.input_ids[:, columns], batch.attention_mask[:, columns]
    columns = slice(before, before + width)
    completions, completion_mask = batch.input_ids[:, columns], batch.attention_mask[:, columns]

    row, slot = _places(prompts, prompt_mask, max(1, (_PACKED_TOKENS - longest) // width))
    first = torch.nonzero(slot == 0).flatten()
    slots = int(slot.max()) + 1
    ids, attended = (t.new_zeros(len(first), slots, width) for t in (completions, completion_mask))
    ids[row, slot], attended[row, slot] = completions, completion_mask
    attention = torch.cat([prompt_mask[first], attended.flatten(1)], dim=1)
    after = torch.arange(width, device=device).repeat(slots)
    positions = [(prompt_mask[first].cumsum(dim=1) - 1).clamp(min=0), lengths[first].unsqueeze(1) + after]
    # Kept column 0 is the prompt's last, which predicts every first token; column 1 + i is completion column i.
    token = torch.arange(total, device=device).clamp(max=width - 1)
    position = torch.where(token == 0, 0, slot.unsqueeze(1) * width + token)
    return Packed(
        input_ids=torch.cat([prompts[first], ids.flatten(1)], dim=1),
        attention_mask=attention if slots == 1 else _separate(attention, longest, slots, width),
        position_ids=torch.cat(positions, dim=1),
        kept=torch.arange(longest - 1, longest + slots * width - 1, device=device),
        row=row,
        position=position,
    )


def _places(prompts: Tensor, mask: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(packed row, place in it), both [N], with at most `most` rows of one prompt together."""
    same = ((prompts[1:] == prompts[:-1]) & (mask[1:] == mask[:-1])).all(dim=1).tolist()
    rows, slots = [0], [0]
    for with_previous in same:
        together = with_previous and slots[-1] + 1 < most
        rows.append(rows[-1] if together else rows[-1] + 1)
        slots.append(slots[-1] + 1 if together else 0)
    return torch.tensor(rows, device=prompts.device), torch.tensor(slots, device=prompts.device)


def _separate(attention: Tensor, before: int, slots: int, width: int) -> Tensor:
    """[R, 1, L, L] bool: each token sees its prompt and what came before it in its own completion."""
    total = before + slots * width
    index = torch.arange(total, device=attention.device)
    part = torch.where(index < before, -1, (index - before) // width)
    causal = index.unsqueeze(1) >= index
    own = (part.unsqueeze(1) == part) | (part == -1)
    visible = (causal & own).unsqueeze(0) & attention.bool().unsqueeze(1)
    # A padded token sees itself, since a softmax over nothing is not a number.
    return (visible | torch.eye(total, dtype=torch.bool, device=attention.device)).unsqueeze(1)
