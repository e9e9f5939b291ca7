"""A policy's weights as its checkpoint would name them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel


def checkpoint_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Name and value of each weight of the whole policy, LoRA adapters added to copies of theirs.

    The model is not changed: merging in place and taking it back would leave rounding errors in the frozen weights.

    Args:
        model: a transformers model, or peft's wrapper of one.

    Raises:
        ValueError: a weight is sharded over processes.
    """
    adapted = {}
    if hasattr(model, "peft_config"):
        from peft.tuners.lora import LoraLayer

        adapted = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            raise ValueError(f"weight {name} is sharded; its parts must be put together before they are pushed")
        if ".lora_" in name:
            continue
        value = parameter.detach()
        layer = adapted.get(name.removesuffix(".base_layer.weight"))
        if layer is not None:
            for adapter in layer.active_adapters:
                value = value + layer.get_delta_weight(adapter).detach().to(value.dtype)
        yield name.removeprefix("base_model.model.").replace(".base_layer.", "."), value
