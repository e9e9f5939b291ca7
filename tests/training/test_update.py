"""The gradient does not depend on micro-batches, row order, padding; log-probs are those of the sampler."""

from __future__ import annotations

import pytest
import torch
from tiny_model import ALGORITHMS, optimizer_batch, rows, tiny_model

from ebpo.rollouts.batch import logprobs_in_chunks, make_batch, token_logprobs
from ebpo.rollouts.protocol import Completion
from ebpo.training.processes import Processes
from ebpo.training.update import UpdateStatistics, accumulate_gradient

ALONE = Processes("cpu")


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def gradient(model, settings, *, micro_batch, **options):
    whole = optimizer_batch(model, settings, **options)
    model.zero_grad()
    statistics = UpdateStatistics()
    accumulate_gradient(model, settings, whole, ALONE, temperature=1.0, micro_batch=micro_batch, statistics=statistics)
    return torch.cat([p.grad.flatten() for p in model.parameters()]), statistics


@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("micro_batch", [1, 2, 3])
def test_micro_batches_do_not_change_the_gradient(model, settings, micro_batch):
    whole, expected = gradient(model, settings, micro_batch=8)
    split, found = gradient(model, settings, micro_batch=micro_batch)
    torch.testing.assert_close(split, whole, rtol=1e-9, atol=1e-12)
    assert found.finish(ALONE) == pytest.approx(expected.finish(ALONE), rel=1e-6)


@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
def test_fifty_columns_of_padding_change_nothing(model, settings):
    plain, _ = gradient(model, settings, micro_batch=4)
    padded, _ = gradient(model, settings, micro_batch=4, extra_padding=50)
    torch.testing.assert_close(padded, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - {"clip_cov"}))
def test_row_order_does_not_change_the_gradient(model, name):
    # Clip-Cov draws tokens by position, so it is left out; its selection has tests of its own.
    plain, _ = gradient(model, ALGORITHMS[name], micro_batch=4)
    permuted, _ = gradient(model, ALGORITHMS[name], micro_batch=4, order=[5, 2, 7, 0, 1, 6, 3, 4])
    torch.testing.assert_close(permuted, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
def test_masked_rows_count_in_no_denominator(model, settings):
    # The first four rows alone, and all eight with the last four masked, are the same batch.
    data = rows()
    masked, _ = gradient(model, settings, data=data, micro_batch=8, blank={4, 5, 6, 7})
    for weight in torch.unique(masked.isnan()):
        assert not weight
    four = [*data[:4], *[(p, Completion([2], "", "stop")) for p, _ in data[4:]]]
    other, _ = gradient(model, settings, data=four, micro_batch=8, blank={4, 5, 6, 7})
    torch.testing.assert_close(masked, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
def test_an_update_does_not_depend_on_the_rollout_batch_that_it_is_cut_from(model, settings):
    # pitfalls of token counts: the denominator is that of the optimizer batch, not of the generation batch.
    cut = optimizer_batch(model, settings, generated=8, order=range(4))
    alone = optimizer_batch(model, settings, generated=4, order=range(4))
    assert cut.batch.mask.shape[1] > alone.batch.mask.shape[1]
    found = []
    for whole in (cut, alone):
        model.zero_grad()
        accumulate_gradient(
            model, settings, whole, ALONE, temperature=1.0, micro_batch=3, statistics=UpdateStatistics()
        )
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_logprobs_are_those_of_the_tempered_distribution(model, temperature):
    prompt, completion = rows()[6]
    batch = make_batch([prompt], [completion], 0, "cpu")
    logp, entropy = logprobs_in_chunks(model, batch, temperature, 1)
    ids = torch.tensor([prompt + completion.token_ids])
    logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    distribution = torch.log_softmax(logits, -1)
    expected = distribution.gather(-1, torch.tensor(completion.token_ids).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(logp[0].float(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(entropy[0].float(), -(distribution.exp() * distribution).sum(-1), rtol=1e-4, atol=1e-5)


def test_left_padding_does_not_change_logprobs(model):
    data = rows()
    together = make_batch([d[0] for d in data], [d[1] for d in data], 0, "cpu")
    logp = token_logprobs(model, together, 1.0)
    for number, (prompt, completion) in enumerate(data):
        alone = token_logprobs(model, make_batch([prompt], [completion], 0, "cpu"), 1.0)
        torch.testing.assert_close(logp[number, : len(completion.token_ids)], alone[0], rtol=1e-5, atol=1e-6)


def test_the_mask_keeps_an_end_token_that_equals_the_pad():
    batch = make_batch([[5]], [Completion([7, 0], "", "stop")], 0, "cpu", extra_padding=2)
    assert batch.mask.tolist() == [[True, True, False, False]]
