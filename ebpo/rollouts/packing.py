"""Several short completions in a row of a model's pass, without a change of what each of them sees."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ebpo.rollouts.batch import Batch

# Longer rows are not packed: there the attention that a mask throws away costs more than the padding and the prompts
# that are saved, and kernels for long rows take no such mask.
_PACKED_TOKENS = 512
# Rows of shorter ones are filled up to this: wide enough for little padding, and short enough that the attention that
# a mask throws away stays small.
_FILLED_TOKENS = 64


@dataclass(frozen=True)
class Packed:
    """N completions in R rows.

    Attributes:
        input_ids, position_ids: [R, L].
        attention_mask: [R, L], or [R, 1, L, L] bool (True: attends) where completions share a row.
        kept: [S] columns whose logits are needed.
        row, position: [N] and [N, T], where among [R, S] the distributions of a completion's tokens are.
    """

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    kept: Tensor
    row: Tensor
    position: Tensor


def pack(batch: Batch) -> Packed:
    """Lays a batch out so that few tokens are computed; log-probs and gradients are those of separate rows.

    Where no prompt with its completion is longer than 512 tokens, neighbouring completions of one prompt share it, so
    that it is computed once instead of G times, and rows are filled up with other prompts' completions. Longer ones
    have a row each, without the columns that are padding in all.
    """
    before = batch.input_ids.shape[1] - batch.mask.shape[1]
    prompts = batch.attention_mask[:, :before].sum(dim=1)
    completions = batch.attention_mask[:, before:].sum(dim=1)
    if int((prompts + completions).max()) > _PACKED_TOKENS:
        return _separate_rows(batch, int(prompts.max()), max(1, int(completions.max())))
    return _shared_rows(batch, prompts.tolist(), completions.tolist())


def _separate_rows(batch: Batch, longest: int, width: int) -> Packed:
    before, device = batch.input_ids.shape[1] - batch.mask.shape[1], batch.input_ids.device
    columns = slice(before - longest, before + width)
    attention = batch.attention_mask[:, columns]
    position = torch.arange(batch.mask.shape[1], device=device).clamp(max=width - 1)
    return Packed(
        input_ids=batch.input_ids[:, columns],
        attention_mask=attention,
        position_ids=(attention.cumsum(dim=1) - 1).clamp(min=0),
        kept=torch.arange(longest - 1, longest + width - 1, device=device),
        row=torch.arange(len(batch), device=device),
        position=position.expand(len(batch), -1),
    )


def _shared_rows(batch: Batch, prompts: list[int], completions: list[int]) -> Packed:
    """Blocks of a prompt and completions of it, several in a row where they fit.

    A row has first the prompts without their last tokens, whose logits nobody needs, then each block's last prompt
    token and completions. Order in a row means nothing: the mask goes by block, completion and position.
    """
    before, device = batch.input_ids.shape[1] - batch.mask.shape[1], batch.input_ids.device
    ids = batch.input_ids.tolist()
    blocks = _blocks([ids[n][before - prompts[n] : before] for n in range(len(ids))], completions)
    rows = _rows([prompts[block[0]] + sum(completions[n] for n in block) for block in blocks])

    # Per token of a row: (id, position, block, completion; -1 is the prompt).
    layout: list[list[tuple[int, int, int, int]]] = []
    first_kept: list[int] = []
    row_of, column = [0] * len(ids), [[0] * batch.mask.shape[1] for _ in ids]
    for number, row in enumerate(rows):
        tokens = [
            (ids[n][before - prompts[n] + i], i, block, -1)
            for block in row
            for n in blocks[block][:1]
            for i in range(prompts[n] - 1)
        ]
        first_kept.append(len(tokens))
        for block in row:
            last = len(tokens)
            size = prompts[blocks[block][0]]
            tokens.append((ids[blocks[block][0]][before - 1], size - 1, block, -1))
            for n in blocks[block]:
                row_of[n] = number
                # The first token is predicted by the prompt's last, the others by the one before.
                column[n][1 : completions[n]] = range(len(tokens), len(tokens) + completions[n] - 1)
                column[n][0] = last
                tokens += [(ids[n][before + i], size + i, block, n) for i in range(completions[n])]
        layout.append(tokens)

    length, start = max(map(len, layout)), min(first_kept)
    padded = [tokens + [(0, 0, -1, -1)] * (length - len(tokens)) for tokens in layout]
    input_ids, position_ids, block_of, part = torch.tensor(padded, device=device).unbind(dim=-1)
    same_block = block_of.unsqueeze(2) == block_of.unsqueeze(1)
    own = (part.unsqueeze(1) == -1) | (part.unsqueeze(2) == part.unsqueeze(1))
    earlier = position_ids.unsqueeze(2) >= position_ids.unsqueeze(1)
    return Packed(
        input_ids=input_ids,
        attention_mask=(same_block & own & earlier).unsqueeze(1),
        position_ids=position_ids,
        kept=torch.arange(start, length, device=device),
        row=torch.tensor(row_of, device=device),
        position=(torch.tensor(column, device=device) - start).clamp(min=0),
    )


def _blocks(prompts: list[list[int]], completions: list[int]) -> list[list[int]]:
    """Neighbouring completions of one prompt, as many as fit into a row together."""
    blocks, size = [[0]], len(prompts[0]) + completions[0]
    for previous, n in pairwise(range(len(prompts))):
        size += completions[n]
        if prompts[n] == prompts[previous] and size <= _PACKED_TOKENS:
            blocks[-1].append(n)
        else:
            blocks.append([n])
            size = len(prompts[n]) + completions[n]
    return blocks


def _rows(sizes: list[int]) -> list[list[int]]:
    """Blocks by row, none longer than 64 tokens or the largest block; first fit, the largest first."""
    capacity = max(_FILLED_TOKENS, *sizes)
    rows: list[list[int]] = []
    used: list[int] = []
    for block in sorted(range(len(sizes)), key=lambda b: -sizes[b]):
        row = next((r for r, length in enumerate(used) if length + sizes[block] <= capacity), len(rows))
        if row == len(rows):
            rows.append([])
            used.append(0)
        rows[row].append(block)
        used[row] += sizes[block]
    return rows
