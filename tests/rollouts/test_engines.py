"""A configuration chooses the engine, and says what is missing."""

from __future__ import annotations

import json
import shutil

import pytest

from ebpo.config.rollouts import Rollouts
from ebpo.policy.loading import load_policy
from ebpo.rollouts.engines import fixed_engine, training_engine
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts


@pytest.fixture
def no_vllm(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_the_default_samples_from_the_trainers_own_model(policy_folder):
    model, tokenizer = load_policy(policy_folder)
    engine = training_engine(Rollouts(), model, tokenizer, policy_folder, "float32", 80)
    assert isinstance(engine, TransformersRollouts)
    assert engine.model is model


def test_the_transformers_engine_refuses_another_model(policy_folder):
    model, tokenizer = load_policy(policy_folder)
    engine = training_engine(Rollouts(), model, tokenizer, policy_folder, "float32", 80)
    engine.sync(model)
    with pytest.raises(ValueError, match="not from this one"):
        engine.sync(load_policy(policy_folder)[0])


def test_both_ways_of_making_the_default_engine_sample_alike(policy_folder):
    model, tokenizer = load_policy(policy_folder)
    trained = training_engine(Rollouts(), model, tokenizer, policy_folder, "float32", 80)
    fixed = fixed_engine(Rollouts(batch_size=2), policy_folder, "float32", "cpu", 80)
    assert fixed.batch_size == 2
    prompt = [tokenizer.encode("Calculate 3 + 4.\n")]
    drawn = [[c.token_ids for c in e.generate(prompt, 4, Sampling(1.0, 10, 0))[0]] for e in (trained, fixed)]
    assert drawn[0] == drawn[1]


@pytest.mark.usefixtures("no_vllm")
def test_a_missing_vllm_is_one_line_that_says_how_to_install_it(policy_folder):
    with pytest.raises(ValueError, match="not installed") as error:
        fixed_engine(Rollouts(engine="vllm"), policy_folder, "float32", "cpu", 80)
    assert "make env-vllm" in str(error.value)
    assert "'.[gpu]'" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_a_folder_without_a_model_is_named(tmp_path, engine):
    with pytest.raises(FileNotFoundError, match=r"config\.json is missing"):
        fixed_engine(Rollouts(engine=engine), tmp_path, "float32", "cpu", 80)


@pytest.mark.parametrize("named", [7, [1, 7]])
def test_vllm_stops_where_transformers_stops(policy_folder, tmp_path, monkeypatch, named):
    # generation_config.json where there is one, config.json where there is not.
    made = []
    monkeypatch.setattr("ebpo.rollouts.engines.VLLMRollouts", lambda *args, **options: made.append(args[2]))
    for removed in ([], ["generation_config.json"]):
        folder = tmp_path / f"policy-{len(removed)}"
        shutil.copytree(policy_folder, folder)
        for name in ("config.json", "generation_config.json"):
            values = json.loads((folder / name).read_text())
            (folder / name).write_text(json.dumps({**values, "eos_token_id": named}))
        for name in removed:
            (folder / name).unlink()
        fixed_engine(Rollouts(engine="vllm"), folder, "float32", "cpu", 80)
        assert made[-1] == TransformersRollouts(*load_policy(folder)).eos_ids == (named if type(named) is list else [7])


def test_the_bound_follows_the_dtype_unless_it_is_given():
    assert (Rollouts().bound("float32"), Rollouts().bound("bfloat16")) == (1e-3, 5e-2)
    assert Rollouts(logprob_bound=0.2).bound("float32") == 0.2
