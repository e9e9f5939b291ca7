"""Where a training step and an evaluation spend their time: `python benchmarks/profile_step.py`.

CPU seconds of the demo's policy, one thread, by clocks around the functions that are named; a profiler that looks at
every call would charge its own cost to Python code. The parts of a step add up to less than the step: the rest is
bookkeeping. Then torch's profiler says which operators they are (their own time; its cost is in the shares). Writes
results/bench/profile.csv and results/bench/operators.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from bench_training import Turns, serve_ours
from measure import COMMITTED, MODELS, problems, write_table
from torch.profiler import ProfilerActivity, profile

from ebpo.grading import Grader
from ebpo.policy.loading import load_policy
from ebpo.prompts import render
from ebpo.rollouts.graded import verdicts_of
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts
from ebpo.training import update
from ebpo.training.policy import TrainedPolicy
from ebpo.training.trainer import Trainer

# Part -> (owner, name) of the function that it is.
STEP: dict[str, tuple[Any, str]] = {
    "sampling": (TransformersRollouts, "generate"),
    "grading": (Grader, "grade_batch"),
    "reference pass": (TrainedPolicy, "reference_logprobs"),
    "passes for old (a few rows) and new log-probs": (TrainedPolicy, "logprobs"),
    "updates: forward": (update, "token_logprobs"),
    "updates: backward": (torch.Tensor, "backward"),
    "updates: optimizer": (torch.optim.AdamW, "step"),
    "whole": (Trainer, "_step"),
}
EVALUATION = {k: STEP[k] for k in ("sampling", "grading")}


class Done(Exception):
    """Ends the trainer after the steps that are measured."""


class Window(Turns):
    """Opens a measurement after three steps, and closes it and ends the trainer some steps later."""

    def __init__(self, steps: int, opens: Callable[[], object], closes: Callable[[], object] = lambda: None) -> None:
        self.left, self.steps, self.opens, self.closes = steps + 3, steps, opens, closes

    def begin(self) -> None:
        if self.left == self.steps:
            self.opens()
        if not self.left:
            self.closes()
            raise Done
        self.left -= 1

    def end(self, tokens: int) -> None:
        """Nothing is reported."""


@contextlib.contextmanager
def clocks_around(parts: Mapping[str, tuple[Any, str]]) -> Iterator[Counter[str]]:
    """Inside, the CPU seconds that each part takes, what it calls included, are added up."""
    spent: Counter[str] = Counter()

    def clocked(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            result = function(*args, **kwargs)
            spent[part] += time.process_time() - start  # type: ignore[assignment]
            return result

        return call

    originals = {part: getattr(owner, name) for part, (owner, name) in parts.items()}
    for part, (owner, name) in parts.items():
        setattr(owner, name, clocked(part, originals[part]))
    try:
        yield spent
    finally:
        for part, (owner, name) in parts.items():
            setattr(owner, name, originals[part])


def operators(what: str, profiler: profile) -> list[list[str]]:
    """The ten operators that took most of the profile, and the rest."""
    own = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
    whole = sum(own.values())
    most = sorted(own, key=lambda key: -own[key])[:10]
    shares = {key: own[key] / whole for key in most}
    shares["rest"] = 1 - sum(shares.values())
    return [[what, key, f"{share:.3f}"] for key, share in shares.items()]


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
    with contextlib.suppress(Done), clocks_around(STEP) as clocks:
        serve_ours(COMMITTED, MODELS["demo 0.7M"][1], Window(steps, clocks.clear))
    rows = [
        ["training step", part, f"{1000 * clocks[part] / steps:.1f}", f"{clocks[part] / clocks['whole']:.3f}"]
        for part in STEP
    ]
    run = evaluation(75, 8)
    run()
    with clocks_around(EVALUATION) as clocks:
        start = time.process_time()
        run()
        whole = time.process_time() - start
    parts = {**{part: clocks[part] for part in EVALUATION}, "whole": whole}
    rows += [["evaluation of 75 x 8", part, f"{1000 * t:.1f}", f"{t / whole:.3f}"] for part, t in parts.items()]
    write_table("profile", ("what", "part", "cpu_ms", "share"), rows)

    profiler = profile(activities=[ProfilerActivity.CPU])
    with contextlib.suppress(Done):
        serve_ours(COMMITTED, MODELS["demo 0.7M"][1], Window(steps, profiler.start, profiler.stop))
    rows = operators("training step", profiler)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    write_table("operators", ("what", "operator", "share"), rows + operators("evaluation of 75 x 8", profiler))


if __name__ == "__main__":
    main()
