"""Where a training step and an evaluation spend their time: `python benchmarks/profile_step.py`.

CPU seconds of the demo's policy by cProfile, whose own cost falls on Python code; one thread. The parts of a step add
up to less than the step: the rest is bookkeeping. Writes results/bench/profile.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import pstats
import time
from collections.abc import Callable

import torch
from bench_training import Turns, serve_ours
from measure import COMMITTED, MODELS, problems, write_table

from ebpo.grading import Grader
from ebpo.policy.loading import load_policy
from ebpo.prompts import render
from ebpo.rollouts.graded import verdicts_of
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts

# Part -> (end of the file's name, function).
STEP = {
    "sampling": ("transformers_engine.py", "generate"),
    "grading": ("graded.py", "verdicts_of"),
    "reference pass": ("policy.py", "reference_logprobs"),
    "passes for old (a few rows) and new log-probs": ("policy.py", "logprobs"),
    "updates: forward": ("batch.py", "token_logprobs"),
    "updates: backward": ("_tensor.py", "backward"),
    "updates: optimizer": ("adam.py", "step"),
    "whole": ("trainer.py", "_step"),
}
EVALUATION = {k: STEP[k] for k in ("sampling", "grading")}


class Done(Exception):
    """Ends the trainer after the steps that are measured."""


class Profiled(Turns):
    """Profiles a number of steps after three others."""

    def __init__(self, steps: int) -> None:
        self.left, self.profile = steps + 3, cProfile.Profile(time.process_time)
        self.steps = steps

    def begin(self) -> None:
        if self.left == self.steps:
            self.profile.enable()
        if not self.left:
            self.profile.disable()
            raise Done
        self.left -= 1

    def end(self, tokens: int) -> None:
        """Nothing is reported."""


def seconds(profile: cProfile.Profile, parts: dict[str, tuple[str, str]]) -> dict[str, float]:
    """CPU seconds inside each part, what it calls included."""
    found = dict.fromkeys(parts, 0.0)
    for (file, _, function), (_, _, _, cumulative, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        for part, (end, name) in parts.items():
            if file.endswith(f"/{end}") and function == name:
                found[part] += cumulative
    return found


def evaluation(prompts: int, n: int) -> Callable[[], None]:
    """Samples and grades completions of the demo's policy."""
    model, tokenizer = load_policy(COMMITTED)
    engine, chosen = TransformersRollouts(model, tokenizer), problems()[:prompts]
    ids = [render(tokenizer, "plain", p.problem) for p in chosen]

    def run() -> None:
        with Grader(workers=1) as grader:
            groups = engine.generate(ids, n, Sampling(1.0, 10, 0))
            verdicts_of(grader, [p for p in chosen for _ in range(n)], [c for group in groups for c in group])

    return run


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    turns = Profiled(steps)
    with contextlib.suppress(Done):
        serve_ours(COMMITTED, MODELS["demo 0.7M"][1], turns)
    step = seconds(turns.profile, STEP)
    rows = [["training step", part, f"{1000 * t / steps:.1f}", f"{t / step['whole']:.3f}"] for part, t in step.items()]
    run, profile = evaluation(75, 8), cProfile.Profile(time.process_time)
    start = time.process_time()
    profile.runcall(run)
    whole = time.process_time() - start
    parts = {**seconds(profile, EVALUATION), "whole": whole}
    rows += [["evaluation of 75 x 8", part, f"{1000 * t:.1f}", f"{t / whole:.3f}"] for part, t in parts.items()]
    write_table("profile", ("what", "part", "cpu_ms", "share"), rows)


if __name__ == "__main__":
    main()
