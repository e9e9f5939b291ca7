"""A training step against TRL's: `make bench-training`, or `python benchmarks/bench_training.py`.

Both sides train GRPO on the same problems from the same weights: 128 completions a step (32 prompts of 4), two
updates, a KL penalty against a frozen reference, micro-batches of 64, the same grader, one thread. Each side lives in
a process of its own and does one step at a time, in turns, so that the machine's other work meets all. Ours takes part
twice: with the same work, and as it is by default, when it also measures the divergence between the policies before
and after the step, in a pass of its own. Before anything is timed, tests/reference/test_against_trl.py checks that both
trainers compute the same loss and gradient on the same batch.

Writes results/bench/training.csv.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measure import MODELS, REPOSITORY, experiment, make_policy, problems, ratios, spread, write_table

from ebpo.config import RunId
from ebpo.grading import Grader
from ebpo.policy.loading import load_policy
from ebpo.prompts import render
from ebpo.rollouts.graded import accuracy_of
from ebpo.training.metrics import process_rss_mb

OURS, MEASURING, TRL = "ours", "ours, measuring the KL of each step", "trl"
SIDES = (OURS, MEASURING, TRL)
SAME_LOSS = "tests/reference/test_against_trl.py"
END = 10_000  # steps; a side is ended before
COMPLETIONS, UPDATES, GROUP_SIZE, MICRO_BATCH, KL = 128, 2, 4, 64, 0.001
COLUMNS = ("model", "side", "steps", "median_s", "min_s", "max_s", "tokens_per_s", "peak_rss_mb")


@dataclass(frozen=True)
class Step:
    """A training step: seconds, completion tokens sampled, resident memory of its process after it."""

    seconds: float
    tokens: int
    resident_mb: float


class Turns:
    """This side's half of the measurement: waits for its turn, and answers with a step's seconds and tokens."""

    def begin(self) -> None:
        """Returns when the other side has finished; ends the process where no step is wanted any more."""
        if not sys.stdin.readline():
            os._exit(0)
        self.started = time.perf_counter()

    def end(self, tokens: int) -> None:
        """Reports the step."""
        seconds = time.perf_counter() - self.started
        print("step", seconds, tokens, process_rss_mb(), flush=True)


def serve_ours(policy: Path, length: int, turns: Turns, measure_kl_every: int = 1) -> None:
    """Steps of this project's trainer."""
    from ebpo.training.collect import Sampler
    from ebpo.training.trainer import Trainer, TrainingInputs

    class Timed(Trainer):
        def _step(self, sampler: Sampler) -> dict[str, float]:
            before = self.state.tokens_total
            start_worker(sampler.grader)
            turns.begin()
            metrics = super()._step(sampler)
            turns.end(self.state.tokens_total - before)
            return metrics

    from ebpo.training.processes import Processes

    train = problems()
    resolved = experiment().run_config(RunId(model="demo", method="grpo", order="topic", group_size=GROUP_SIZE, seed=0))
    changes = {
        "steps": END, "validate_every": END, "checkpoint_every": END, "validation_samples": 1,
        "measure_kl_every": measure_kl_every, "max_new_tokens": length, "completions_per_step": COMPLETIONS,
        "completions_per_update": COMPLETIONS // UPDATES, "micro_batch": MICRO_BATCH, "threads": 1,
    }  # fmt: skip
    config = resolved.model_copy(
        update={
            "run": resolved.run.model_copy(update={"order": "shuffle"}),
            "settings": resolved.settings.model_copy(update={"kl_coef": KL}),
            "training": resolved.training.model_copy(update=changes),
        }
    )
    _, tokenizer = load_policy(policy)
    inputs = TrainingInputs(
        policy=policy,
        train=train[1:],
        validation=train[:1],
        prompt_ids={p.id: render(tokenizer, "plain", p.problem) for p in train},
        topics=None,
        pass_rates=None,
        digest="benchmark",
    )
    with tempfile.TemporaryDirectory() as folder:
        Timed(config, inputs, Path(folder), Processes("cpu"), "ddp").run(Path(folder))


def serve_trl(policy: Path, length: int, turns: Turns) -> None:
    """Steps of TRL's trainer: one generation and its updates."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = load_policy(policy)
    train = {p.problem: p for p in problems()}
    seen = {"tokens": 0}

    class Timed(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % UPDATES == 0:
                turns.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % UPDATES == 0:
                turns.end(seen["tokens"])

    with Grader(workers=1) as grader, tempfile.TemporaryDirectory() as folder:
        start_worker(grader)

        def reward(
            completions: list[str], completion_ids: list[list[int]], question: list[str], **_: Any
        ) -> list[float]:
            seen["tokens"] = sum(len(ids) for ids in completion_ids)
            items = [train[q].grade_item(c) for q, c in zip(question, completions, strict=True)]
            return [accuracy_of(verdict) for verdict in grader.grade_batch(items)]

        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=MICRO_BATCH, steps_per_generation=UPDATES,
            num_generations=GROUP_SIZE, max_completion_length=length, max_steps=END, learning_rate=3e-4, beta=KL,
            loss_type="grpo", temperature=1.0, use_cpu=True, bf16=False, gradient_checkpointing=False,
            logging_steps=UPDATES, save_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        rows = [{"prompt": render_text(tokenizer, q), "question": q} for q in train]
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[Timed()],
        )
        trainer.train()


def start_worker(grader: Grader) -> None:
    """Starts the grader's SymPy process, once.

    It takes a second or more, and would otherwise fall into that step of a side, counted or not, which samples the
    first answer that needs it.
    """
    if not grader.worker_pids:
        grader.grade(gold=r"\frac{\sqrt{3}}{2}", completion=r"\boxed{\frac{3}{2\sqrt{3}}}")
        assert grader.worker_pids


def render_text(tokenizer: Any, question: str) -> str:
    """The text whose tokens are the prompt's."""
    return str(tokenizer.decode(render(tokenizer, "plain", question)))


class Side:
    """A side's process."""

    def __init__(self, side: str, policy: Path, length: int) -> None:
        command = [sys.executable, __file__, "--serve", side, "--policy", policy, "--length", length]
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )

    def step(self) -> Step:
        """One step."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("step "):
                seconds, tokens, resident = line.split()[1:]
                return Step(float(seconds), int(tokens), float(resident))
        raise ChildProcessError(f"{self.process.args!r} ended with status {self.process.wait()}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(model: str, pairs: int) -> dict[str, list[Step]]:
    """Steps of both sides in turns; the first two of each are not counted, nor the start of the grader's process."""
    shape, length = MODELS[model]
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(shape, Path(folder))
        sides = {name: Side(name, policy, length) for name in SIDES}
        try:
            taken: dict[str, list[Step]] = {name: [] for name in SIDES}
            for turn in range(-2, pairs):
                for name, side in sides.items():
                    step = side.step()
                    if turn >= 0:
                        taken[name].append(step)
        finally:
            for side in sides.values():
                side.close()
    return taken


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--policy", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        torch.set_num_threads(1)
        logging.disable(logging.INFO)
        if arguments.serve == TRL:
            serve_trl(arguments.policy, arguments.length, Turns())
        else:
            serve_ours(arguments.policy, arguments.length, Turns(), END if arguments.serve == OURS else 1)
        return
    subprocess.run([sys.executable, "-m", "pytest", "-q", SAME_LOSS], cwd=REPOSITORY, check=True)
    rows = []
    for model in arguments.models:
        taken = measure(model, arguments.pairs)
        seconds = {side: [step.seconds for step in steps] for side, steps in taken.items()}
        for side, steps in taken.items():
            rate = statistics.median(step.tokens / step.seconds for step in steps)
            peak = max(step.resident_mb for step in steps)
            rows.append([model, side, len(steps), *spread(seconds[side]), f"{rate:.0f}", f"{peak:.0f}"])
        for side in (OURS, MEASURING):
            slower = [f"{ratio:.2f}" for ratio in ratios(seconds[TRL], seconds[side])]
            rows.append([model, f"trl / {side}", len(taken[side]), *slower, "", ""])
    write_table("training", COLUMNS, rows)


if __name__ == "__main__":
    main()
