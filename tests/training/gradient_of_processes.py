"""Run by torchrun: the gradient of one optimizer batch, put together over all processes, saved by the main one.

Arguments: ddp or fsdp2, and the file to write: {algorithm's name: flat gradient}.
"""

from __future__ import annotations

import sys

import torch
from tiny_model import ALGORITHMS, optimizer_batch, tiny_model

from ebpo.training.processes import Processes, parallelise, whole
from ebpo.training.update import UpdateStatistics, accumulate_gradient

if __name__ == "__main__":
    torch.set_num_threads(1)
    processes = Processes("cpu")
    inner = tiny_model().float()
    model = parallelise(inner, processes, sys.argv[1], "float32")
    gradients = {}
    for name, settings in ALGORITHMS.items():
        batch = optimizer_batch(inner, settings)
        model.zero_grad()
        accumulate_gradient(
            model, settings, batch, processes, temperature=1.0, micro_batch=2, statistics=UpdateStatistics()
        )
        gradients[name] = torch.cat([whole(p.grad).flatten() for p in inner.parameters()])
    if processes.is_main:
        torch.save(gradients, sys.argv[2])
