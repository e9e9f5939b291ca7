"""The gradient does not depend on micro-batches, row order, padding; log-probs are those of the sampler."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ebpo.algorithms.settings import DAPOSettings, DrGRPOSettings, EBPOSettings, EntropyMechSettings, GRPOSettings
from ebpo.rollouts.protocol import Completion
from ebpo.training.batch import Batch, logprobs_in_chunks, make_batch, token_logprobs
from ebpo.training.update import UpdateStatistics, accumulate_gradient

ALGORITHMS = [
    GRPOSettings(kl_coef=0.05),
    DrGRPOSettings(),
    DAPOSettings(),
    EBPOSettings(kl_coef=0.05),
    EntropyMechSettings(clip_cov_fraction=0.2, clip_cov_low=0.0, clip_cov_high=100.0),
    EntropyMechSettings(variant="kl_cov", kl_cov_fraction=0.2),
]
NAMES = ["grpo", "dr_grpo", "dapo", "ebpo", "clip_cov", "kl_cov"]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        intermediate_size=32, max_position_embeddings=128, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).double().eval()


def rows(seed: int = 0) -> list[tuple[list[int], Completion]]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for number in range(8):
        prompt = torch.randint(2, 40, (3 + number % 4,), generator=generator).tolist()
        completion = torch.randint(2, 40, (1 + (5 * number) % 7,), generator=generator).tolist()
        made.append((prompt, Completion(completion, "", "stop")))
    return made


def gradient(model, settings, data, *, micro_batch, extra_padding=0, order=range(8), blank=()):
    batch = make_batch([data[i][0] for i in order], [data[i][1] for i in order], 0, "cpu", extra_padding)
    keep = torch.tensor([[i not in blank] for i in order])
    batch = Batch(batch.input_ids, batch.attention_mask, batch.mask & keep)
    width = batch.mask.shape[1]
    noise = torch.randn(8, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)[list(order), :width]
    current, _ = logprobs_in_chunks(model, batch, 1.0, 8)
    old = torch.where(batch.mask, current + 0.3 * noise, 0.0)
    reference = torch.where(batch.mask, current - 0.2 * noise, 0.0) if settings.kl_coef else None
    advantages = torch.randn(8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)[list(order)]
    model.zero_grad()
    statistics = UpdateStatistics()
    done = accumulate_gradient(
        model, settings, batch, old, advantages, reference,
        temperature=1.0, max_length=12, micro_batch=micro_batch,
        generator=torch.Generator().manual_seed(3), statistics=statistics,
    )  # fmt: skip
    if not done:
        return None, statistics
    return torch.cat([p.grad.flatten() for p in model.parameters()]), statistics


@pytest.mark.parametrize("settings", ALGORITHMS, ids=NAMES)
@pytest.mark.parametrize("micro_batch", [1, 2, 3])
def test_micro_batches_do_not_change_the_gradient(model, settings, micro_batch):
    whole, expected = gradient(model, settings, rows(), micro_batch=8)
    split, found = gradient(model, settings, rows(), micro_batch=micro_batch)
    torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-12)
    assert found.finish() == pytest.approx(expected.finish(), rel=1e-6)


@pytest.mark.parametrize("settings", ALGORITHMS, ids=NAMES)
def test_fifty_columns_of_padding_change_nothing(model, settings):
    plain, _ = gradient(model, settings, rows(), micro_batch=4)
    padded, _ = gradient(model, settings, rows(), micro_batch=4, extra_padding=50)
    torch.testing.assert_close(padded, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", [s for s in ALGORITHMS if s != ALGORITHMS[4]], ids=lambda s: s.algorithm)
def test_row_order_does_not_change_the_gradient(model, settings):
    # Clip-Cov draws tokens by position, so it is left out; its selection has tests of its own.
    plain, _ = gradient(model, settings, rows(), micro_batch=4)
    permuted, _ = gradient(model, settings, rows(), micro_batch=4, order=[5, 2, 7, 0, 1, 6, 3, 4])
    torch.testing.assert_close(permuted, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", ALGORITHMS[:4], ids=NAMES[:4])
def test_masked_rows_count_in_no_denominator(model, settings):
    # The first four rows alone, and all eight with the last four masked, are the same batch.
    data = rows()
    masked, _ = gradient(model, settings, data, micro_batch=8, blank={4, 5, 6, 7})
    for weight in torch.unique(masked.isnan()):
        assert not weight
    four = [*data[:4], *[(p, Completion([2], "", "stop")) for p, _ in data[4:]]]
    other, _ = gradient(model, settings, four, micro_batch=8, blank={4, 5, 6, 7})
    torch.testing.assert_close(masked, other, rtol=1e-9, atol=1e-12)


def test_a_batch_without_loss_tokens_makes_no_update(model):
    found, statistics = gradient(model, ALGORITHMS[0], rows(), micro_batch=4, blank=set(range(8)))
    assert found is None
    assert statistics.finish()["updates"] == 0


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_logprobs_are_those_of_the_tempered_distribution(model, temperature):
    prompt, completion = rows()[6]
    batch = make_batch([prompt], [completion], 0, "cpu")
    logp, entropy = token_logprobs(model, batch, temperature)
    ids = torch.tensor([prompt + completion.token_ids])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    distribution = torch.log_softmax(logits, -1)
    expected = distribution.gather(-1, torch.tensor(completion.token_ids).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(logp[0].float(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy[0].float(), -(distribution.exp() * distribution).sum(-1), rtol=1e-4, atol=1e-5)


def test_left_padding_does_not_change_logprobs(model):
    data = rows()
    together = make_batch([d[0] for d in data], [d[1] for d in data], 0, "cpu")
    logp, _ = token_logprobs(model, together, 1.0)
    for number, (prompt, completion) in enumerate(data):
        alone, _ = token_logprobs(model, make_batch([prompt], [completion], 0, "cpu"), 1.0)
        torch.testing.assert_close(logp[number, : len(completion.token_ids)], alone[0], rtol=1e-5, atol=1e-6)


def test_the_mask_keeps_an_end_token_that_equals_the_pad():
    batch = make_batch([[5]], [Completion([7, 0], "", "stop")], 0, "cpu", extra_padding=2)
    assert batch.mask.tolist() == [[True, True, False, False]]
