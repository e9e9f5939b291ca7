"""The engine samples from the model's own distribution, reproducibly, and says how each completion ended."""

from __future__ import annotations

import pytest
import torch
from transformers import GenerationConfig

from ebpo.algorithms.rollout_correction import padded_values
from ebpo.policy.loading import load_policy
from ebpo.prompts import render
from ebpo.rollouts.batch import logprobs_in_chunks, make_batch, token_logprobs
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts, eos_token_ids, sample_tokens

PROBLEMS = ["Calculate 3 + 4.", "Solve for x: x + 5 = 9", "Is 1996 a leap year? Answer with Yes or No."]


@pytest.fixture(scope="module")
def engine(policy_folder):
    torch.set_num_threads(1)
    model, tokenizer = load_policy(policy_folder)
    return TransformersRollouts(model, tokenizer)


@pytest.fixture(scope="module")
def prompts(engine):
    return [render(engine.tokenizer, "plain", p) for p in PROBLEMS]


def test_a_seed_fixes_the_completions_and_another_changes_them(engine, prompts):
    first = engine.generate(prompts, 8, Sampling(1.0, 10, 5))
    assert first == engine.generate(prompts, 8, Sampling(1.0, 10, 5))
    assert first != engine.generate(prompts, 8, Sampling(1.0, 10, 6))
    assert [len(group) for group in first] == [8, 8, 8]


def test_sampling_leaves_the_global_random_state_alone(engine, prompts):
    before = torch.get_rng_state()
    engine.generate(prompts, 2, Sampling(1.0, 10, 5))
    assert torch.equal(before, torch.get_rng_state())


def test_the_models_own_generation_config_is_not_used(engine, prompts):
    expected = engine.generate(prompts, 8, Sampling(1.0, 10, 5))
    own = engine.model.generation_config
    engine.model.generation_config = GenerationConfig(top_k=1, temperature=0.1, eos_token_id=own.eos_token_id)
    try:
        assert engine.generate(prompts, 8, Sampling(1.0, 10, 5)) == expected
    finally:
        engine.model.generation_config = own


def test_truncation_is_told_from_stopping(engine, prompts):
    (cut,) = engine.generate(prompts[:1], 4, Sampling(1.0, 2, 0))
    assert {c.finish_reason for c in cut} == {"length"}
    assert {len(c.token_ids) for c in cut} == {2}
    (whole,) = engine.generate(prompts[:1], 4, Sampling(1.0, 10, 0))
    assert {c.finish_reason for c in whole} == {"stop"}
    assert all(c.token_ids[-1] in engine.eos_ids and c.text.endswith("}") for c in whole)


def test_any_of_several_end_tokens_stops(engine, prompts):
    (whole,) = engine.generate(prompts[:1], 1, Sampling(1.0, 10, 0))
    own = engine.eos_ids
    engine.eos_ids = [*own, whole[0].token_ids[1]]
    try:
        (early,) = engine.generate(prompts[:1], 1, Sampling(1.0, 10, 0))
    finally:
        engine.eos_ids = own
    assert early[0].token_ids == whole[0].token_ids[:2]
    assert early[0].finish_reason == "stop"


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_samples_follow_the_distribution_that_the_trainer_computes(engine, prompts, temperature):
    # The first token of 4,000 completions against the trainer's own probabilities: within five standard errors.
    count = 4_000
    (group,) = engine.generate(prompts[1:2], count, Sampling(temperature, 2, 1))
    second = [c.token_ids[1] for c in group if c.token_ids[0] == group[0].token_ids[0]]
    most = max(set(second), key=second.count)
    sample = next(c for c in group if c.token_ids[:2] == [group[0].token_ids[0], most])
    logp = token_logprobs(engine.model, make_batch(prompts[1:2], [sample], 0, "cpu"), temperature)
    expected = float(logp[0, 1].detach().exp())
    error = (expected * (1 - expected) / len(second)) ** 0.5
    assert second.count(most) / len(second) == pytest.approx(expected, abs=5 * error)


def tokens(groups):
    return [[c.token_ids for c in group] for group in groups]


def test_a_prompts_completions_depend_on_its_key_alone(engine, prompts):
    sampling = Sampling(1.0, 10, 5)
    together = tokens(engine.generate(prompts, 8, sampling))
    small = TransformersRollouts(engine.model, engine.tokenizer, batch_size=8)
    assert tokens(small.generate(prompts, 8, sampling)) == together
    assert tokens(engine.generate([prompts[2], prompts[0]], 8, sampling, keys=[2, 0])) == [together[2], together[0]]
    assert [group[:3] for group in together] == tokens(engine.generate(prompts, 3, sampling))


def test_logprobs_and_entropies_are_those_of_the_trainer(engine, prompts):
    groups = engine.generate(prompts, 16, Sampling(0.8, 10, 3))
    flat = [c for group in groups for c in group]
    batch = make_batch([p for p in prompts for _ in range(16)], flat, 0, "cpu")
    logp, entropy = logprobs_in_chunks(engine.model, batch, 0.8, len(batch))
    assert entropy.max() > 0.5
    width = batch.mask.shape[1]
    found = [padded_values([getattr(c, name) for c in flat], width, "cpu") for name in ("logprobs", "entropies")]
    torch.testing.assert_close(found, [logp, entropy], rtol=0, atol=1e-4)


def test_greedy_tokens_are_those_of_generate(engine, prompts):
    groups = engine.generate(prompts, 1, Sampling(0.0, 10, 0))
    for prompt, (completion,) in zip(prompts, groups, strict=True):
        expected = engine.model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), do_sample=False, max_new_tokens=10
        )
        assert completion.token_ids == expected[0, len(prompt) :].tolist()


def test_sampling_inverts_the_distribution_function():
    # Probabilities 1/2, 0, 1/2: the token changes at 1/2, and the one without probability never comes.
    logits = torch.log(torch.tensor([[0.5, 0.0, 0.5]])).expand(4, 3)
    noise = torch.tensor([0.0, 0.4999, 0.5, 1 - 2**-53], dtype=torch.float64)
    chosen, logp, entropy = sample_tokens(logits, noise, 1.0)
    assert chosen.tolist() == [0, 0, 2, 2]
    torch.testing.assert_close(logp, torch.full((4,), 0.5).log())
    torch.testing.assert_close(entropy, torch.full((4,), 2.0).log())


def test_a_model_without_an_end_token_is_refused():
    class Nothing:
        eos_token_id = None

    with pytest.raises(ValueError, match="end-of-sequence"):
        eos_token_ids(None, Nothing())
