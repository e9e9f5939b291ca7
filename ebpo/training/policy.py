"""The policy that a run trains: model, reference and optimizer, whatever the number of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from ebpo.config import LoRA, Parallel, RunConfig
from ebpo.policy.loading import DTYPES, load_policy
from ebpo.rollouts.batch import Batch, logprobs_in_chunks
from ebpo.rollouts.weights import whole
from ebpo.training.processes import Processes, parallelise, shard_like, whole_parameters


class TrainedPolicy:
    """A policy in training.

    Attributes:
        model: called for log-probs, with gradient synchronisation.
        inner: the same model for sampling; under LoRA with its adapters.
        tokenizer: the policy's.
        optimizer: AdamW over the trainable parameters.
    """

    def __init__(self, folder: Path, config: RunConfig, processes: Processes, parallel: Parallel) -> None:
        training = config.training
        self.config, self.processes = config, processes
        # Master weights are float32: bfloat16 ones would swallow updates of 1e-6.
        base, self.tokenizer = load_policy(folder, "float32", str(processes.device))
        self.inner: PreTrainedModel = with_adapters(base, training.lora) if training.lora else base
        if training.gradient_checkpointing:
            enable_checkpointing(self.inner)
        self.model: nn.Module = parallelise(self.inner, processes, parallel, config.dtype)
        self._reference: nn.Module | None = None
        if config.settings.kl_coef > 0 and training.lora is None:
            frozen, _ = load_policy(folder, "float32", str(processes.device))
            frozen.requires_grad_(False)
            # Nothing is trained, so DDP has no use here; sharding has.
            self._reference = (
                parallelise(frozen, processes, parallel, config.dtype)
                if parallel == "fsdp2" or processes.count == 1
                else frozen
            )
        self.optimizer = torch.optim.AdamW(
            [p for p in self.model.parameters() if p.requires_grad],
            lr=training.learning_rate,
            weight_decay=training.weight_decay,
        )

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, `inner` has whole parameters: each process can sample from it, or copy it, on its own."""
        with whole_parameters(self.inner):
            yield

    def logprobs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies [N, T] of the whole batch, without gradient; each process computes its part."""
        return self._everywhere(self.model, batch)

    def reference_logprobs(self, batch: Batch) -> Tensor | None:
        """Log-probs [N, T] under the initial policy; None without a KL penalty."""
        if self.config.settings.kl_coef == 0:
            return None
        if self._reference is not None:
            return self._everywhere(self._reference, batch)[0]
        with self._unwrapped().disable_adapter():  # LoRA: the initial policy is the model without its adapters
            return self._everywhere(self.model, batch)[0]

    def _unwrapped(self) -> Any:
        return self.model.module if isinstance(self.model, DistributedDataParallel) else self.model

    def _everywhere(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        training = self.config.training
        # Every process runs the same number of equal passes, since sharded models synchronise in each.
        padded = batch.padded_to_multiple(self.processes.count)
        part = padded.rows(self.processes.part(len(padded)))
        logp, entropy = logprobs_in_chunks(model, part, training.temperature, training.micro_batch)
        gathered = [self.processes.gather_rows(values)[: len(batch)] for values in (logp, entropy)]
        return gathered[0], gathered[1]

    def trainable_state(self) -> dict[str, Tensor]:
        """Trainable parameters by name, whole and on the CPU, in the main process; every process must take part."""
        return {name: self._on_main(p.detach()) for name, p in self._trainable()}

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state with whole tensors on the CPU, in the main process; every process must take part."""
        return _map_state(self.optimizer.state_dict(), lambda value, _: self._on_main(value))

    def _on_main(self, tensor: Tensor) -> Tensor:
        """A whole tensor on the CPU; an empty one in the other processes, whose copies would fill a node's memory."""
        together = whole(tensor)
        return together.cpu() if self.processes.is_main else together.new_empty(0, device="cpu")

    def load_state(self, parameters: dict[str, Tensor], optimizer: dict[str, Any]) -> None:
        """Restores what `trainable_state` and `optimizer_state` gave, under any number of processes.

        Raises:
            ValueError: the parameters are not those of this policy.
        """
        own = dict(self._trainable())
        if own.keys() != parameters.keys():
            raise ValueError(f"the checkpoint's parameters differ: {sorted(own.keys() ^ parameters.keys())[:3]} ...")
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(shard_like(parameters[name].to(parameter.device), parameter))
        order = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.optimizer.load_state_dict(
            _map_state(optimizer, lambda value, i: shard_like(value, order[i]) if value.dim() else value)
        )

    def _trainable(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self._unwrapped().named_parameters() if p.requires_grad]


def write_model(base: Path, config: RunConfig, parameters: dict[str, Tensor], folder: Path) -> None:
    """Writes a whole policy in the Hugging Face format: the base with trained parameters, adapters merged.

    Args:
        base: folder of the base policy.
        parameters: what `TrainedPolicy.trainable_state` gave.
    """
    model, tokenizer = load_policy(base, "float32")
    lora = config.training.lora
    target = with_adapters(model, lora) if lora else model
    unknown = target.load_state_dict(parameters, strict=False).unexpected_keys
    if unknown:
        raise ValueError(f"{base}: has no parameters {unknown[:3]}")
    whole_model = target.merge_and_unload() if lora else target
    whole_model.to(DTYPES[config.dtype]).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def with_adapters(model: PreTrainedModel, lora: LoRA) -> PreTrainedModel:
    """The model with LoRA adapters (arXiv 2106.09685), its own weights frozen."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=lora.target_modules, task_type="CAUSAL_LM"
    )
    adapted: PreTrainedModel = get_peft_model(model, settings)
    return adapted


def enable_checkpointing(model: PreTrainedModel) -> None:
    """Recomputes activations in the backward pass. Layers do so in training mode only, so dropout must be absent.

    Raises:
        ValueError: the model has dropout.
    """
    dropout = [
        name
        for name, module in model.named_modules()
        if getattr(module, "attention_dropout", 0.0) or (isinstance(module, nn.Dropout) and module.p > 0)
    ]
    if dropout:
        raise ValueError(f"training.gradient_checkpointing: needs a model without dropout; {dropout[0]} has some")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model.train()


def _map_state(state: dict[str, Any], change: Callable[[Tensor, int], Tensor]) -> dict[str, Any]:
    """An optimizer's state dict with every tensor changed; `change` gets the tensor and its parameter's number."""
    changed = {
        number: {key: change(value, number) if isinstance(value, Tensor) else value for key, value in values.items()}
        for number, values in state["state"].items()
    }
    return {"state": changed, "param_groups": state["param_groups"]}
