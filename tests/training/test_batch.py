"""Completions of one prompt share its computation; log-probs and gradients are those of separate rows."""

from __future__ import annotations

import pytest
import torch
from tiny_model import tiny_model

from ebpo.rollouts import packing
from ebpo.rollouts.batch import Batch, logprobs_in_chunks, make_batch, token_logprobs
from ebpo.rollouts.packing import pack
from ebpo.rollouts.protocol import Completion

PROMPTS = [[5, 6, 7], [9, 8], [9, 8, 7, 6, 5]]
LENGTHS = [[4, 1, 6], [2, 5, 3], [0, 1, 1]]


def grouped() -> Batch:
    """Three prompts with three completions each, of different lengths, one of them empty."""
    generator = torch.Generator().manual_seed(3)
    prompts, completions = [], []
    for prompt, lengths in zip(PROMPTS, LENGTHS, strict=True):
        for length in lengths:
            prompts.append(prompt)
            completions.append(Completion(torch.randint(2, 40, (length,), generator=generator).tolist(), "", "stop"))
    return make_batch(prompts, completions, 0, "cpu")


def gradient(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    model.zero_grad()
    weights = torch.arange(1.0, 1 + batch.mask.numel()).reshape(batch.mask.shape)
    (token_logprobs(model, batch, 0.7) * weights).sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.fixture(params=[0, 64])
def filled(request, monkeypatch) -> int:
    """Tokens up to which rows are filled with other prompts; 0: the largest prompt with its completions."""
    monkeypatch.setattr(packing, "_FILLED_TOKENS", request.param)
    return request.param


@pytest.fixture
def separate(monkeypatch):
    """Switches packing off."""
    return lambda: monkeypatch.setattr(packing, "_PACKED_TOKENS", 0)


def test_log_probs_and_entropies_are_those_of_separate_rows(filled, separate):
    model, batch = tiny_model(), grouped()
    together = logprobs_in_chunks(model, batch, 0.7, len(batch))
    assert pack(batch).row.tolist() == ([0] * 9 if filled else [0] * 3 + [1] * 3 + [2] * 3)
    separate()
    assert len(pack(batch).input_ids) == len(batch)
    alone = logprobs_in_chunks(model, batch, 0.7, len(batch))
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


def test_the_gradient_is_that_of_separate_rows(filled, separate):
    model, batch = tiny_model(), grouped()
    together = gradient(model, batch)
    separate()
    torch.testing.assert_close(together, gradient(model, batch), rtol=1e-5, atol=1e-5 * float(together.norm()))


def test_a_completion_does_not_see_its_neighbours(filled):
    model, batch = tiny_model(), grouped()
    before = token_logprobs(model, batch, 1.0)
    changed = batch.input_ids.clone()
    changed[0, len(PROMPTS[2])] = 39 if changed[0, len(PROMPTS[2])] != 39 else 38
    after = token_logprobs(model, Batch(changed, batch.attention_mask, batch.mask), 1.0)
    assert not torch.equal(before[0], after[0])
    torch.testing.assert_close(before[1:], after[1:], rtol=0, atol=1e-12)


def test_a_row_holds_no_more_than_fits(monkeypatch):
    monkeypatch.setattr(packing, "_FILLED_TOKENS", 0)
    monkeypatch.setattr(packing, "_PACKED_TOKENS", 3 + 4 + 1 + 2)
    # Blocks of 3 + 4 + 1, 3 + 6, 2 + 2 + 5, 2 + 3 and 5 + 0 + 1 + 1 tokens, the largest first into rows of 9.
    packed = pack(grouped())
    assert packed.row.tolist() == [2, 2, 0, 1, 1, 4, 3, 3, 3]
    assert packed.input_ids.shape == (5, 9)


def test_a_row_is_filled_with_other_prompts(monkeypatch):
    monkeypatch.setattr(packing, "_FILLED_TOKENS", 3 + 4 + 1 + 6 + 5 + 0 + 1 + 1)
    packed = pack(grouped())  # 14, 12 and 7 tokens in rows of 21
    assert packed.row.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert packed.input_ids.shape == (2, 21)
    # Row 0 begins with the 2 + 4 prompt tokens that are nobody's last, row 1 with one.
    assert packed.kept.tolist() == list(range(1, 21))


def test_rows_too_long_to_share_lose_the_padding_of_all(separate):
    separate()
    packed = pack(grouped().rows(slice(5, 7)))  # [9, 8] with 3 tokens, then the long prompt with none
    assert packed.row.tolist() == [0, 1]
    assert packed.attention_mask.tolist() == [[0, 0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0, 0]]
    assert packed.kept.tolist() == [4, 5, 6]
    assert packed.position.tolist() == [[0, 1, 2, 2, 2, 2]] * 2
