"""The processes of a training job: one, or several that torchrun or `accelerate launch` started.

Prompts and rows are shared out in contiguous parts, in rank order, so that gathered results stand in the order that one
process would have given them. Everything that is decided on the whole batch (advantages, token selection, EBPO's prior)
is computed by every process from the same gathered values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather, gather_object
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from transformers import PreTrainedModel

from ebpo.config import Parallel
from ebpo.rollouts.weights import whole

T = TypeVar("T")


class Processes:
    """This process among those of the job.

    Args:
        device: `cpu` or `cuda`.
    """

    def __init__(self, device: str) -> None:
        self._state = PartialState(cpu=device == "cpu")

    @property
    def rank(self) -> int:
        return int(self._state.process_index)

    @property
    def count(self) -> int:
        return int(self._state.num_processes)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def device(self) -> torch.device:
        return torch.device(self._state.device)

    def accelerator(self) -> dict[str, str]:
        """The name of this process's GPU; nothing on a CPU."""
        return {"GPU": torch.cuda.get_device_name(self.device)} if self.device.type == "cuda" else {}

    def part(self, total: int) -> slice:
        """This process's part of `total` items; parts differ by at most one item."""
        return slice(total * self.rank // self.count, total * (self.rank + 1) // self.count)

    def gather(self, items: list[T]) -> list[T]:
        """The items of all processes, in rank order, on every process."""
        return list(gather_object(items)) if self.count > 1 else items

    def gather_rows(self, rows: Tensor) -> Tensor:
        """Rows of all processes in rank order; every process must bring the same shape."""
        return torch.as_tensor(gather(rows.contiguous())) if self.count > 1 else rows

    def reduce(self, values: Sequence[float], how: Callable[[Sequence[float]], float]) -> list[float]:
        """Each number combined over the processes, by `sum` or `max`."""
        return [how(column) for column in zip(*self.gather([tuple(values)]), strict=True)]

    def same(self, value: T) -> T:
        """The main process's value, on every process."""
        values: list[Any] = [value]
        if self.count > 1:
            broadcast_object_list(values)
        result: T = values[0]
        return result

    def wait(self) -> None:
        """Returns once every process has come here."""
        self._state.wait_for_everyone()


def parallelise(model: PreTrainedModel, processes: Processes, parallel: Parallel, dtype: str) -> nn.Module:
    """The model ready for training by these processes.

    Weights stay in float32; with dtype bfloat16 the passes compute in it. FSDP2 shards layer by layer, the rest
    (embeddings, final norm, output) with the root.
    """
    half = dtype == "bfloat16"
    if processes.count > 1 and parallel == "fsdp2":
        mesh = init_device_mesh(processes.device.type, (processes.count,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if half else None, reduce_dtype=torch.float32)
        layers = set(model._no_split_modules or ())
        for module in list(model.modules()):
            if type(module).__name__ in layers:
                fully_shard(module, mesh=mesh, mp_policy=policy)
        # The root too is sharded again after each forward pass: else, after one without gradient, model.parameters()
        # would be whole copies, and zero_grad() on them would leave the gradients of the shards as they are.
        fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    else:
        if half:
            model.forward = torch.autocast(processes.device.type, torch.bfloat16)(model.forward)
        if processes.count > 1:
            return DistributedDataParallel(model)
    prepared: nn.Module = model
    return prepared


@contextmanager
def accumulating(model: nn.Module, last: bool) -> Iterator[None]:
    """Backward passes inside synchronise gradients over the processes only if they are the `last` of an update.

    A sharded model synchronises in each: to wait for the last, every process would hold a whole gradient (59 GB of a
    14B model), which is what sharding is there to avoid.
    """
    if isinstance(model, DistributedDataParallel) and not last:
        with model.no_sync():
            yield
    else:
        yield


@contextmanager
def whole_parameters(model: nn.Module) -> Iterator[None]:
    """Inside, a sharded model's parameters are whole: processes may run different numbers of forward passes."""
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in sharded:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in sharded:
            module.set_reshard_after_forward(True, recurse=False)
            module.reshard()


def clip_gradient(model: nn.Module, limit: float) -> float:
    """Clips the norm of the whole gradient to `limit` and returns what it was.

    Raises:
        ValueError: the norm is not finite; no optimizer step may follow.
    """
    norm = float(whole(torch.nn.utils.clip_grad_norm_(model.parameters(), limit)))
    if not math.isfinite(norm):
        raise ValueError(f"the gradient's norm is {norm}; this step must not be applied")
    return norm


def shard_like(tensor: Tensor, example: Tensor) -> Tensor:
    """A whole tensor sharded as `example` is; the inverse of `whole`."""
    if not isinstance(example, DTensor):
        return tensor
    return distribute_tensor(tensor.to(example.device), example.device_mesh, example.placements)
