"""The weights that are pushed into an engine are those that a saved policy would hold."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from ebpo.policy.loading import load_policy
from ebpo.rollouts.weights import checkpoint_weights


@pytest.fixture
def model(policy_folder):
    return load_policy(policy_folder)[0]


def test_a_plain_model_gives_its_parameters(model):
    pushed = dict(checkpoint_weights(model))
    assert pushed.keys() == dict(model.named_parameters()).keys()
    assert all(torch.equal(pushed[name], p) for name, p in model.named_parameters())


def test_adapters_are_merged_as_peft_merges_them_and_the_model_is_left_alone(model):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if ".lora_" in name:
            parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
    before = {name: p.detach().clone() for name, p in adapted.named_parameters()}
    pushed = dict(checkpoint_weights(adapted))
    merged = dict(copy.deepcopy(adapted).merge_and_unload().named_parameters())
    assert pushed.keys() == merged.keys()
    for name, value in merged.items():
        torch.testing.assert_close(pushed[name], value)
    projection = "model.layers.0.self_attn.q_proj"
    frozen = before[f"base_model.model.{projection}.base_layer.weight"]
    assert not torch.equal(pushed[f"{projection}.weight"], frozen)
    assert all(torch.equal(before[name], p) for name, p in adapted.named_parameters())


@pytest.fixture
def mesh():
    """A mesh of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("adapters", [False, True])
def test_shards_are_put_together(model, mesh, adapters):
    if adapters:
        peft = pytest.importorskip("peft")
        config = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
        model = peft.get_peft_model(model, config)
    expected = {name: value.clone() for name, value in checkpoint_weights(model)}
    fully_shard(model, mesh=mesh)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    pushed = dict(checkpoint_weights(model))
    assert pushed.keys() == expected.keys()
    for name, value in pushed.items():
        assert not isinstance(value, DTensor)
        assert torch.equal(value, expected[name])
