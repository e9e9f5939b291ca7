"""A policy's weights as its checkpoint would name them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel


def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Name and value of each weight of the whole policy, LoRA adapters added to copies of theirs.

    Sharded weights are put together one at a time, so every process that has a shard must take part.

    The model is not changed: merging in place and taking it back would leave rounding errors in the frozen weights.

    Args:
        model: a transformers model, or peft's wrapper of one.
    """
    adapted = {}
    if hasattr(model, "peft_config"):
        from peft.tuners.lora import LoraLayer

        adapted = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        value = whole(parameter.detach())
        layer = adapted.get(name.removesuffix(".base_layer.weight"))
        if layer is not None:
            for adapter in layer.active_adapters:
                value = value + whole(layer.get_delta_weight(adapter).detach()).to(value.dtype)
        yield name.removeprefix("base_model.model.").replace(".base_layer.", "."), value


def whole(tensor: Tensor) -> Tensor:
    """A sharded tensor put together (every process must take part); another one as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
