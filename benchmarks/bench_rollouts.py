"""Rollouts against transformers' `generate()`: `make bench-rollouts`, or `python benchmarks/bench_rollouts.py`.

The same weights, prompts, temperature and budget, one thread, one process, in turns. `generate()` gets the prompts
left-padded, all completions in one batch. "training" is 32 prompts of 4 completions, "evaluation" 16 prompts of 32.
Writes results/bench/rollouts.csv.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from functools import partial
from pathlib import Path

import torch
from measure import MODELS, in_turns, make_policy, problems, ratios, spread, write_table

from ebpo.policy.loading import load_policy
from ebpo.prompts import render
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts

CASES = {"training": (32, 4), "evaluation": (16, 32)}
COLUMNS = ("model", "case", "side", "calls", "median_s", "min_s", "max_s", "completions_per_s")


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    questions = problems()
    rows = []
    for name, (shape, length) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            model, tokenizer = load_policy(make_policy(shape, Path(folder)))
        engine = TransformersRollouts(model, tokenizer)
        for case, (prompts, n) in CASES.items():
            step = len(questions) // prompts
            ids = [render(tokenizer, "plain", p.problem) for p in questions[::step][:prompts]]
            width = max(map(len, ids))
            padded = torch.tensor([[0] * (width - len(p)) + p for p in ids])
            mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in ids])

            sides = {
                "ebpo-replication": partial(engine.generate, ids, n, Sampling(1.0, length, 0)),
                "generate()": partial(
                    model.generate, padded, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                    max_new_tokens=length, num_return_sequences=n, pad_token_id=0,
                ),
            }  # fmt: skip
            seconds = in_turns(sides, arguments.pairs)
            for side, values in seconds.items():
                rate = prompts * n / statistics.median(values)
                rows.append([name, case, side, len(values), *spread(values), f"{rate:.0f}"])
            slower = [f"{ratio:.2f}" for ratio in ratios(seconds["generate()"], seconds["ebpo-replication"])]
            rows.append([name, case, "generate() / ours", arguments.pairs, *slower, ""])
    write_table("rollouts", COLUMNS, rows)


if __name__ == "__main__":
    main()
