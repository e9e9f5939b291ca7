"""vLLM samples from the same policy as transformers, also after weight updates, and a failed update is noticed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from ebpo.algorithms.rollout_correction import logprob_difference, padded_values
from ebpo.config.rollouts import Rollouts
from ebpo.policy.loading import load_policy
from ebpo.prompts import render
from ebpo.rollouts.batch import logprobs_in_chunks, make_batch, token_logprobs
from ebpo.rollouts.engines import fixed_engine, training_engine
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed; make test-vllm"),
]

PROBLEMS = [
    *(f"Calculate {a} + {b}." for a in (3, 14, 27) for b in (4, 15, 36, 58)),
    *(f"Solve for x: x + {a} = {b}" for a in (5, 8) for b in (9, 13, 21, 30)),
    *(f"Is {year} a leap year? Answer with Yes or No." for year in range(1996, 2008)),
]


@pytest.fixture(scope="module")
def policy(policy_folder):
    torch.set_num_threads(1)
    return load_policy(policy_folder)


@pytest.fixture(scope="module")
def vllm(policy, policy_folder):
    # What a trainer sets must not disturb the engine.
    torch.use_deterministic_algorithms(True)
    model, tokenizer = policy
    yield training_engine(Rollouts(engine="vllm"), model, tokenizer, policy_folder, "float32", max_length=256)
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def model(policy_folder, vllm):
    """A model of its own for tests that train, with the engine in step before and after."""
    own, _ = load_policy(policy_folder)
    yield own
    vllm.sync(load_policy(policy_folder)[0])


@pytest.fixture(scope="module")
def prompts(policy):
    rendered = [render(policy[1], "plain", p) for p in PROBLEMS]
    # Longer than a block of vLLM's prefix cache (128 tokens on CPU).
    return [*rendered[:31], [token for prompt in rendered for token in prompt][:150]]


def difference(model, prompts, groups, temperature: float = 1.0) -> dict[str, float]:
    """The engine's log-probs against the trainer's, over all completions."""
    rows = [(prompt, c) for prompt, group in zip(prompts, groups, strict=True) for c in group]
    batch = make_batch([p for p, _ in rows], [c for _, c in rows], 0, "cpu")
    with torch.no_grad():
        trainer = token_logprobs(model, batch, temperature)
    engine = padded_values([c.logprobs for _, c in rows], batch.mask.shape[1], "cpu")
    return logprob_difference(engine, trainer, batch.mask)


def train_once(model, prompts, groups) -> None:
    """One optimizer step that changes every weight."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = make_batch(prompts, [group[0] for group in groups], 0, "cpu")
    logp = token_logprobs(model, batch, 1.0)
    logp.sum().backward()
    optimizer.step()


def test_greedy_completions_equal_those_of_transformers(policy, vllm, prompts):
    greedy = Sampling(0.0, 10, 0)
    ours = vllm.generate(prompts, 1, greedy)
    theirs = TransformersRollouts(*policy).generate(prompts, 1, greedy)
    for (a,), (b,) in zip(ours, theirs, strict=True):
        assert (a.token_ids, a.text, a.finish_reason) == (b.token_ids, b.text, b.finish_reason)
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_logprobs_are_the_trainers(policy, vllm, prompts, temperature):
    groups = vllm.generate(prompts, 4, Sampling(temperature, 10, 1))
    assert difference(policy[0], prompts, groups, temperature)["rollout_logp/max_abs"] < 1e-3


def test_after_three_updates_the_engine_samples_from_the_new_policy(model, vllm, prompts):
    for step in range(3):
        groups = vllm.generate(prompts, 4, Sampling(1.0, 10, step))
        train_once(model, prompts, groups)
        assert difference(model, prompts, groups)["rollout_logp/mean_abs"] > 1e-2  # stale, before the push
        vllm.sync(model)
        groups = vllm.generate(prompts, 4, Sampling(1.0, 10, step))
        assert difference(model, prompts, groups)["rollout_logp/max_abs"] < 1e-3
    greedy = Sampling(0.0, 10, 0)
    ours = vllm.generate(prompts, 1, greedy)
    theirs = TransformersRollouts(model, vllm.tokenizer).generate(prompts, 1, greedy)
    assert [g[0].token_ids for g in ours] == [g[0].token_ids for g in theirs]


def test_an_output_layer_that_keeps_its_old_weight_fails_the_probe(model, vllm, prompts, monkeypatch):
    # What vLLM's packed copy of a tied output layer does on CPU.
    head = vllm.llm.llm_engine.model_executor.driver_worker.model_runner.model.lm_head
    old = head.weight.detach().clone()
    monkeypatch.setattr(head, "cpu_linear", lambda x, weight, bias: torch.nn.functional.linear(x, old, bias))
    train_once(model, prompts, vllm.generate(prompts, 1, Sampling(1.0, 10, 0)))
    with pytest.raises(ValueError, match="holds other weights than the trainer"):
        vllm.sync(model)


def test_a_push_that_writes_nothing_fails_the_probe(model, vllm, prompts, monkeypatch):
    monkeypatch.setattr("ebpo.rollouts.vllm_engine.checkpoint_weights", lambda model: iter(()))
    train_once(model, prompts, vllm.generate(prompts, 1, Sampling(1.0, 10, 0)))
    with pytest.raises(ValueError, match="holds other weights than the trainer"):
        vllm.sync(model)


def test_adapters_are_pushed_merged(model, vllm, prompts):
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    for name, parameter in adapted.named_parameters():
        if ".lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(0))
    vllm.sync(adapted)
    groups = vllm.generate(prompts, 2, Sampling(1.0, 10, 0))
    assert difference(adapted, prompts, groups)["rollout_logp/max_abs"] < 1e-3


def test_a_seed_fixes_the_completions_and_another_changes_them(vllm, prompts):
    first = vllm.generate(prompts, 4, Sampling(1.0, 10, 5))
    again = vllm.generate(prompts, 4, Sampling(1.0, 10, 5))
    other = vllm.generate(prompts, 4, Sampling(1.0, 10, 6))
    ids = [[c.token_ids for c in group] for group in first]
    assert ids == [[c.token_ids for c in group] for group in again]
    assert ids != [[c.token_ids for c in group] for group in other]
    assert all(len(group) == 4 for group in first)


def test_a_completion_does_not_depend_on_the_batch_around_it(vllm, prompts):
    together = vllm.generate(prompts, 4, Sampling(1.0, 10, 5))
    for i in (0, 13, 31):
        (alone,) = vllm.generate([prompts[i]], 2, Sampling(1.0, 10, 5), keys=[i])
        assert [c.token_ids for c in alone] == [c.token_ids for c in together[i][:2]]


def test_more_prompt_tokens_than_one_batch_takes_are_sampled_alike(vllm, prompts):
    # vLLM's batch is 4,096 tokens on CPU, and the prompt at its end must not be split. Different ones: no cached start.
    long = [prompts[31][i:] + prompts[31][:i] for i in range(40)]
    assert sum(map(len, long)) > 4_096
    assert 4_096 % len(long[0])
    together = vllm.generate(long, 1, Sampling(1.0, 4, 5))
    for i in (0, 27, 39):
        (alone,) = vllm.generate(long[i : i + 1], 1, Sampling(1.0, 4, 5), keys=[i])
        assert alone[0].token_ids == together[i][0].token_ids


def test_the_samples_of_a_prompt_differ(vllm, prompts):
    (group,) = vllm.generate(prompts[8:9], 64, Sampling(1.5, 10, 0))
    assert len({tuple(c.token_ids) for c in group}) > 8


def test_sampling_leaves_the_global_random_state_alone(vllm, prompts):
    before = torch.get_rng_state()
    vllm.generate(prompts, 2, Sampling(1.0, 10, 5))
    assert torch.equal(before, torch.get_rng_state())


def test_truncation_is_told_from_stopping(vllm, prompts):
    (cut,) = vllm.generate(prompts[:1], 4, Sampling(1.0, 2, 0))
    assert {c.finish_reason for c in cut} == {"length"}
    assert {(len(c.token_ids), len(c.logprobs)) for c in cut} == {(2, 2)}
    (whole,) = vllm.generate(prompts[:1], 4, Sampling(1.0, 10, 0))
    assert {c.finish_reason for c in whole} == {"stop"}
    assert all(c.token_ids[-1] in vllm.eos_ids and c.text.endswith("}") for c in whole)


def test_any_of_several_end_tokens_stops(vllm, prompts, monkeypatch):
    (whole,) = vllm.generate(prompts[:1], 1, Sampling(1.0, 10, 0))
    monkeypatch.setattr(vllm, "eos_ids", [*vllm.eos_ids, whole[0].token_ids[1]])
    (early,) = vllm.generate(prompts[:1], 1, Sampling(1.0, 10, 0))
    assert (early[0].token_ids, early[0].finish_reason) == (whole[0].token_ids[:2], "stop")


def test_only_the_given_end_tokens_stop(vllm, prompts, monkeypatch):
    own = vllm.eos_ids
    monkeypatch.setattr(vllm, "eos_ids", [])
    (group,) = vllm.generate(prompts[:1], 2, Sampling(1.0, 10, 0))
    assert all(len(c.token_ids) == 10 and c.finish_reason == "length" for c in group)
    assert all(set(own) & set(c.token_ids) for c in group)


def test_a_sleeping_engine_does_not_sample(policy, vllm, prompts):
    vllm.sleep()
    with pytest.raises(RuntimeError, match="sync"):
        vllm.generate(prompts[:1], 1, Sampling(1.0, 10, 0))
    vllm.sync(policy[0])
    assert vllm.generate(prompts[:1], 1, Sampling(0.0, 10, 0))


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_samples_follow_the_policys_distribution(policy, vllm, prompts, temperature):
    # The most frequent of 2,000 completions against their probability under the trainer: within five standard errors.
    count, prompt = 2_000, prompts[7]
    (group,) = vllm.generate([prompt], count, Sampling(temperature, 10, 1))
    frequency = Counter(tuple(c.token_ids) for c in group)
    assert len(frequency) > 5
    example = {tuple(c.token_ids): c for c in group}
    for ids, times in frequency.most_common(6):
        logp = token_logprobs(policy[0], make_batch([prompt], [example[ids]], 0, "cpu"), temperature)
        expected = float(logp.sum().detach().exp())
        error = (expected * (1 - expected) / count) ** 0.5
        assert times / count == pytest.approx(expected, abs=5 * error)


def test_samples_are_neither_sharper_nor_flatter_than_the_policy(policy, vllm, prompts):
    # Over samples of the policy itself, log-prob plus entropy is 0 in the mean, token by token.
    groups = vllm.generate(prompts, 64, Sampling(1.0, 10, 2))
    rows = [(prompt, c) for prompt, group in zip(prompts, groups, strict=True) for c in group]
    batch = make_batch([p for p, _ in rows], [c for _, c in rows], 0, "cpu")
    logp, entropy = logprobs_in_chunks(policy[0], batch, 1.0, rows=256)
    surplus = (logp + entropy)[batch.mask].double()
    assert float(surplus.mean()) == pytest.approx(0.0, abs=5 * float(surplus.std()) / len(surplus) ** 0.5)


def test_lengths_are_distributed_as_those_of_transformers(policy, vllm, prompts):
    sampling, count = Sampling(1.5, 10, 3), 2_000
    ours, theirs = (e.generate(prompts[8:9], count, sampling)[0] for e in (vllm, TransformersRollouts(*policy)))
    a, b = (torch.tensor([float(len(c.token_ids)) for c in group]) for group in (ours, theirs))
    error = float((a.var() / count + b.var() / count).sqrt())
    assert error > 0
    assert float(a.mean()) == pytest.approx(float(b.mean()), abs=5 * error)


@pytest.mark.slow
def test_processes_that_share_a_sharded_model_sample_what_one_process_does(vllm, prompts, policy_folder, tmp_path):
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    script, out = Path(__file__).parent / "sample_in_processes.py", tmp_path / "completions.json"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run(
        [*torchrun, script, policy_folder, tmp_path / "prompts.json", out],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=300,
    )
    expected = vllm.generate(prompts, 2, Sampling(1.0, 10, 5))
    assert json.loads(out.read_text()) == [[c.token_ids for c in group] for group in expected]


def test_a_fixed_policy_is_sampled_without_loading_it_twice(vllm, policy_folder, monkeypatch):
    # vLLM alone loads the weights, and the end tokens are those that transformers would use.
    made = {}
    monkeypatch.setattr("ebpo.rollouts.engines.VLLMRollouts", lambda *args, **options: made.update(options, args=args))
    monkeypatch.setattr("ebpo.rollouts.engines.load_policy", None)
    fixed_engine(Rollouts(engine="vllm"), policy_folder, "float32", "cpu", 80)
    assert made["args"][2] == vllm.eos_ids
    assert made["logprob_bound"] == 1e-3
