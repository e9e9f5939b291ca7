from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from safetensors import safe_open

from ebpo.config import ExperimentConfig, LoRA, Training, read_config
from ebpo.estimate import (
    GPU,
    PUBLISHED,
    Architecture,
    Assumptions,
    RunEstimate,
    Sharing,
    cache_tokens,
    decoding_seconds,
    estimate_run,
    held_memory,
    run_disk_bytes,
    sampling_memory,
    update_memory,
    update_seconds,
)

# q 4*2*2=16, k and v 4*2=8 each, o 16, MLP 3*4*8=96, norms 8: 152 a block; embeddings 2*10*4=80; final norm 4.
SMALL = Architecture(4, 2, 8, 10, heads=2, kv_heads=1, head_dim=2, tied=False, head_norms=False)
TRAINING = Training(
    steps=1,
    completions_per_step=8,
    completions_per_update=4,
    micro_batch=2,
    learning_rate=1.0,
    max_new_tokens=3,
    max_prompt_tokens=5,
    checkpoint_every=1,
    validate_every=1,
    validation_samples=1,
)
ONE, TWO_SHARDS, TWO_COPIES = Sharing(1, "ddp"), Sharing(2, "fsdp2"), Sharing(2, "ddp")


def test_parameters_of_a_small_model():
    assert SMALL.layer_parameters == 152
    assert SMALL.parameters == 80 + 2 * 152 + 4
    assert replace(SMALL, tied=True).parameters == SMALL.parameters - 40


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen3-14B", 14_768_307_200),
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
    ],
)
def test_parameters_of_the_papers_models(name, parameters):
    assert PUBLISHED[name].parameters == parameters


def test_parameters_of_the_committed_policy(policy_folder):
    model = Architecture.from_folder(policy_folder)
    with safe_open(policy_folder / "model.safetensors", framework="numpy") as weights:
        assert model.parameters == sum(prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118


def test_an_unknown_architecture_is_named():
    with pytest.raises(ValueError, match="model_type: 'mamba' is not known here; allowed: llama, qwen3"):
        Architecture.from_config({"model_type": "mamba"})


def test_lora_parameters():
    assert SMALL.adapter_parameters(LoRA(rank=3, alpha=1, target_modules=["q_proj", "down_proj"])) == 2 * 3 * (8 + 12)
    with pytest.raises(ValueError, match=r"training.lora.target_modules: \['query'\] are unknown; allowed:"):
        SMALL.adapter_parameters(LoRA(rank=3, alpha=1, target_modules=["query"]))


def test_an_8b_model_in_full_training_holds_16_bytes_a_parameter_with_its_reference():
    held = held_memory(PUBLISHED["Qwen/Qwen3-8B"], TRAINING, ONE, reference=True)
    assert held.total == 16 * 8_190_735_360


def test_held_memory_is_shared_by_shards_and_not_by_copies():
    assert held_memory(SMALL, TRAINING, ONE, reference=True).total == 388 * (4 + 8 + 4)
    assert held_memory(SMALL, TRAINING, TWO_SHARDS, reference=True).total == 388 * 16 / 2
    assert held_memory(SMALL, TRAINING, TWO_COPIES, reference=False).total == 388 * 12


def test_lora_holds_moments_of_the_adapters_alone_and_no_reference():
    training = TRAINING.model_copy(update={"lora": LoRA(rank=1, alpha=1, target_modules=["q_proj"])})
    held = held_memory(SMALL, training, ONE, reference=True)
    assert (held.weights, held.optimizer, held.reference) == (4 * (388 + 16), 8 * 16, 0)


def test_update_memory_on_one_gpu():
    memory = update_memory(SMALL, TRAINING, ONE, reference=False, half=True)
    # 2 rows of 8 tokens; a block keeps 4*4 + 3*4 + 3*2 + 4*8 = 66 values a token.
    assert (memory.gradients, memory.working_copy) == (4 * 388, 2 * 388)
    assert memory.activations == 2 * 2 * 66 * 16
    assert memory.logits == 14 * 2 * 3 * 10
    assert memory.total == 388 * (4 + 8 + 4 + 2) + memory.activations + memory.logits


def test_gradient_checkpointing_keeps_one_blocks_activations():
    training = TRAINING.model_copy(update={"gradient_checkpointing": True})
    assert update_memory(SMALL, training, ONE, reference=False, half=True).activations == 2 * (2 * 4 + 66) * 16


def test_sharded_gradients_stay_sharded_while_micro_batches_accumulate():
    accumulated = TRAINING.model_copy(update={"completions_per_update": 8, "micro_batch": 2})
    assert update_memory(SMALL, accumulated, TWO_SHARDS, reference=False, half=True).gradients == 4 * 388 / 2


def test_sampling_memory_of_both_engines():
    common = {"reference": False, "half": True, "batch_size": 3, "engine_bytes": 1000.0}
    vllm = sampling_memory(SMALL, TRAINING, TWO_SHARDS, engine="vllm", **common)
    assert (vllm.working_copy, vllm.total) == (0, 388 * 12 / 2 + 1000)
    assert sampling_memory(SMALL, TRAINING, TWO_COPIES, engine="vllm", **common).working_copy == 0
    own = sampling_memory(SMALL, TRAINING, TWO_SHARDS, engine="transformers", **common)
    # A token's cache: 2 * 2 blocks * 1 head * 2 * 2 bytes = 16; 3 of the 4 sequences at a time, 8 tokens each.
    assert (own.working_copy, own.engine) == (2 * 388, 3 * 8 * 16)


def test_cache_tokens_beside_the_weights():
    assert cache_tokens(SMALL, 2 * 388 + 16 * 7 + 3) == 7
    assert cache_tokens(SMALL, 100) == 0


def test_decoding_reads_weights_and_caches():
    gpu = GPU(flops=1.0, bandwidth=100.0, flops_used=1.0, bandwidth_used=0.5)
    # 776 bytes of weights and 4 caches of 10 tokens a step; 12 tokens are 3 steps of 4 sequences.
    assert decoding_seconds(SMALL, gpu, sequences=4, context=10, tokens=12) == pytest.approx(3 * (776 + 640) / 50)


def test_update_operations_per_parameter_and_token():
    gpu = GPU(flops=388.0, bandwidth=1.0, flops_used=0.5, bandwidth_used=1.0)
    plain = update_seconds(SMALL, gpu, tokens=7, reference=False, gradient_checkpointing=False, measure_kl_every=1)
    assert plain == pytest.approx(10 * 7 / 0.5)
    full = update_seconds(SMALL, gpu, tokens=7, reference=True, gradient_checkpointing=True, measure_kl_every=4)
    assert full == pytest.approx(12.5 * 7 / 0.5)


def test_disk_of_a_run():
    # Two checkpoints of 12 bytes a parameter, the best weights of 4, and two policies of 2.
    assert run_disk_bytes(SMALL, TRAINING, half=True) == 388 * (24 + 4 + 4)


@pytest.fixture
def paper(repository) -> ExperimentConfig:
    return read_config(repository / "config" / "paper.yaml")


ASSUMED = Assumptions(GPU(1e15, 3e12, 0.4, 0.5), 80e9, 2048, 200, dynamic_sampling_rounds=3)


def estimate_of(config: ExperimentConfig, method: str) -> RunEstimate:
    run = next(r for r in config.runs() if r.folder == f"runs/qwen3-8b/{method}-topic/G4/seed0")
    return estimate_run(config, run, PUBLISHED["Qwen/Qwen3-8B"], ASSUMED)


def test_dynamic_sampling_costs_its_rounds_and_no_reference(paper):
    grpo, dapo = estimate_of(paper, "grpo"), estimate_of(paper, "dapo")
    assert dapo.hours["sampling"] == pytest.approx(3 * grpo.hours["sampling"])
    # 4 + 1 forward passes and a backward pass, against 4 forward passes and a backward pass.
    assert dapo.hours["updates"] / grpo.hours["updates"] == pytest.approx(12 / 14)
    assert (dapo.update.reference, grpo.update.reference) == (0, 4 * 8_190_735_360 / 8)


def test_hours_of_updates_by_hand(paper):
    estimate = estimate_of(paper, "grpo")
    operations = 14 * 8_190_735_360 * 1000 * 512 * (2048 + 200)
    assert estimate.hours["updates"] == pytest.approx(operations / 0.4e15 / 3600)


def test_a_share_of_the_gpu_that_holds_no_sequence_is_refused(paper):
    small = paper.rollouts.model_copy(update={"gpu_memory_utilization": 0.3})
    config = paper.model_copy(update={"rollouts": small})
    run = next(r for r in config.runs() if r.model == "qwen3-14b")
    with pytest.raises(ValueError, match=r"gpu_memory_utilization: 0.3 of 80 GB does not hold the weights \(30 GB\)"):
        estimate_run(config, run, PUBLISHED["Qwen/Qwen3-14B"], ASSUMED)
