"""How a training step grows, against the machine's arithmetic: `python benchmarks/bench_scaling.py`.

A step here is what the model computes: a pass without gradient (the reference) and an update with its backward pass,
GRPO with a KL penalty, on random tokens; prompts have 24. The ideal is the step's floating-point operations (4 passes
of 2 per weight and token, and attention; each prompt counted once) over the rate of matrix products as large as this
model's, measured on the same machine between the steps. One thread. Then resident memory over 500 updates.
Writes results/bench/scaling.csv and results/bench/memory.csv.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from measure import MODELS, in_turns, make_policy, spread, write_table
from transformers import PreTrainedModel

from ebpo.algorithms.settings import GRPOSettings
from ebpo.policy.loading import load_policy
from ebpo.rollouts.batch import logprobs_in_chunks, make_batch
from ebpo.rollouts.protocol import Completion
from ebpo.training.metrics import process_rss_mb
from ebpo.training.processes import Processes
from ebpo.training.update import OptimizerBatch, UpdateStatistics, accumulate_gradient

PROMPT = 24
SETTINGS = GRPOSettings(kl_coef=0.001)


@dataclass(frozen=True)
class Case:
    """A step's size."""

    model: str = "demo 0.7M"
    prompts: int = 16
    group_size: int = 4
    length: int = 16

    def flops(self, model: PreTrainedModel) -> float:
        """Of one pass without gradient and one update, which costs three."""
        config = model.config
        tokens = self.prompts * (PROMPT + self.group_size * self.length)
        weights = sum(p.numel() for p in model.parameters())  # embeddings are tied: counted once, for the output
        pairs = self.prompts * (PROMPT**2 / 2 + self.group_size * self.length * (PROMPT + self.length / 2))
        attention = 4 * pairs * config.num_attention_heads * config.head_dim * config.num_hidden_layers
        return float(4 * (2 * weights * tokens + attention))


BASE = Case()
CASES = [
    BASE,
    *(replace(BASE, group_size=g) for g in (2, 8, 16)),
    *(replace(BASE, prompts=m) for m in (8, 32, 64)),
    *(replace(BASE, length=t) for t in (4, 64)),
    replace(BASE, model="random 10M"),
]


def step(case: Case, model: PreTrainedModel) -> Callable[[], None]:
    """The step of a case."""
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> list[int]:
        return torch.randint(3, model.config.vocab_size, (count,), generator=generator).tolist()

    rows = case.prompts * case.group_size
    prompts = [p for p in (tokens(PROMPT) for _ in range(case.prompts)) for _ in range(case.group_size)]
    completions = [Completion(tokens(case.length), "", "length") for _ in range(rows)]
    batch = make_batch(prompts, completions, 0, "cpu")
    old, _ = logprobs_in_chunks(model, batch, 1.0, 64)
    processes = Processes("cpu")

    def run() -> None:
        reference, _ = logprobs_in_chunks(model, batch, 1.0, 64)
        whole = OptimizerBatch.of(SETTINGS, batch, old, torch.ones(rows), reference, None, case.length)
        model.zero_grad()
        accumulate_gradient(
            model, SETTINGS, whole, processes, temperature=1.0, micro_batch=64, statistics=UpdateStatistics()
        )

    return run


def matrix_products(model: PreTrainedModel) -> tuple[Callable[[], None], float]:
    """Twenty products as large as an MLP's on 1,024 tokens, and their floating-point operations."""
    width, inner = model.config.hidden_size, model.config.intermediate_size
    left, right = torch.randn(1024, width), torch.randn(width, inner)

    def run() -> None:
        for _ in range(20):
            left @ right

    return run, 20 * 2 * 1024 * width * inner


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("--updates", type=int, default=500)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    models = {}
    for name, (shape, _) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            models[name], _ = load_policy(make_policy(shape, Path(folder)))
    rows = []
    for case in CASES:
        model = models[case.model]
        products, operations = matrix_products(model)
        seconds = in_turns({"step": step(case, model), "products": products}, arguments.times)
        rate = operations / statistics.median(seconds["products"])
        share = case.flops(model) / rate / statistics.median(seconds["step"])
        size = (case.model, case.prompts, case.group_size, case.length)
        rows.append([*size, *spread(seconds["step"]), f"{rate / 1e9:.1f}", f"{share:.2f}"])
    columns = ("model", "prompts", "G", "length", "median_s", "min_s", "max_s", "gflops_of_products", "ideal_over_step")
    write_table("scaling", columns, rows)

    run = step(BASE, models[BASE.model])
    resident = []
    for update in range(1, arguments.updates + 1):
        run()
        if update % 50 == 0:
            resident.append([update, f"{process_rss_mb():.1f}"])
    write_table("memory", ("updates", "rss_mb"), resident)


if __name__ == "__main__":
    main()
