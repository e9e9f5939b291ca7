"""A training step against TRL's: `make bench-training`, or `python benchmarks/bench_training.py`.

Both sides train GRPO on the same problems from the same weights: 128 completions a step (32 prompts of 4), two
updates, a KL penalty against a frozen reference, micro-batches of 64, the same grader, one thread. Each side lives in
a process of its own and does one step at a time, in turns, so that the machine's other work meets both. Ours measures
more in a step (the divergence between the policies before and after it, a pass of its own). That both compute the same
loss and gradient on the same batch is asserted by tests/reference/test_against_trl.py.

Writes results/bench/training.csv.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
import yaml

from ebpo.config import ExperimentConfig, RunId, parse_config
from ebpo.files import atomic_path
from ebpo.grading import Grader
from ebpo.policy.loading import load_policy
from ebpo.problems.build import build
from ebpo.problems.record import Problem
from ebpo.prompts import render
from ebpo.rollouts.graded import accuracy_of

REPOSITORY = Path(__file__).resolve().parent.parent
SIDES = ("ebpo-replication", "trl")
COMPLETIONS, UPDATES, GROUP_SIZE, MICRO_BATCH, KL = 128, 2, 4, 64, 0.001
# Name -> (Qwen3 layers, width, maximal completion length); None is the committed policy of the demo.
MODELS: dict[str, tuple[tuple[int, int] | None, int]] = {"demo 0.7M": (None, 10), "random 10M": ((8, 320), 32)}
COLUMNS = ("model", "side", "steps", "median_s", "min_s", "max_s", "tokens_per_s", "peak_rss_mb")


def experiment() -> ExperimentConfig:
    """The demo's experiment."""
    return parse_config(yaml.safe_load((REPOSITORY / "config" / "config.yaml").read_text(encoding="utf-8")))


def problems() -> list[Problem]:
    """The demo's training problems; the same in both processes."""
    return list(build(experiment().data).train)


def make_policy(shape: tuple[int, int] | None, folder: Path) -> Path:
    """The committed policy, or random weights of another size with its tokenizer."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    committed = REPOSITORY / "config" / "policy"
    if shape is None:
        return committed
    layers, width = shape
    small, tokenizer = load_policy(committed)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=small.config.vocab_size, hidden_size=width, num_hidden_layers=layers, head_dim=width // 5,
        num_attention_heads=5, num_key_value_heads=5, intermediate_size=3 * width, max_position_embeddings=256,
        tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
        print("step", seconds, tokens, psutil.Process().memory_info().rss / 2**20, flush=True)


def serve_ours(policy: Path, length: int, turns: Turns) -> None:
    """Steps of this project's trainer."""
    from ebpo.training.collect import Sampler
    from ebpo.training.trainer import Trainer, TrainingInputs

    class Timed(Trainer):
        def _step(self, sampler: Sampler) -> dict[str, float]:
            before = self.state.tokens_total
            turns.begin()
            metrics = super()._step(sampler)
            turns.end(self.state.tokens_total - before)
            return metrics

    from ebpo.training.processes import Processes

    train = problems()
    resolved = experiment().run_config(RunId(model="demo", method="grpo", order="topic", group_size=GROUP_SIZE, seed=0))
    changes = {
        "steps": 10_000, "validate_every": 10_000, "checkpoint_every": 10_000, "validation_samples": 1,
        "max_new_tokens": length, "completions_per_step": COMPLETIONS,
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

        def reward(
            completions: list[str], completion_ids: list[list[int]], question: list[str], **_: Any
        ) -> list[float]:
            seen["tokens"] = sum(len(ids) for ids in completion_ids)
            items = [train[q].grade_item(c) for q, c in zip(question, completions, strict=True)]
            return [accuracy_of(verdict) for verdict in grader.grade_batch(items)]

        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=MICRO_BATCH, steps_per_generation=UPDATES,
            num_generations=GROUP_SIZE, max_completion_length=length, max_steps=10_000, learning_rate=3e-4, beta=KL,
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
        self.steps: list[tuple[float, int, float]] = []

    def step(self) -> tuple[float, int, float]:
        """One step's (seconds, completion tokens, resident MiB)."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("step "):
                seconds, tokens, resident = line.split()[1:]
                return float(seconds), int(tokens), float(resident)
        raise ChildProcessError(f"{self.process.args!r} ended with status {self.process.wait()}")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def measure(model: str, pairs: int) -> dict[str, list[tuple[float, int, float]]]:
    """Steps of both sides in turns; the first two of each are not counted."""
    shape, length = MODELS[model]
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(shape, Path(folder))
        sides = {name: Side(name, policy, length) for name in SIDES}
        try:
            taken: dict[str, list[tuple[float, int, float]]] = {name: [] for name in SIDES}
            for turn in range(-2, pairs):
                for name, side in sides.items():
                    step = side.step()
                    if turn >= 0:
                        taken[name].append(step)
        finally:
            for side in sides.values():
                side.close()
    return taken


def summary(model: str, side: str, steps: Sequence[tuple[float, int, float]]) -> list[object]:
    """A row of the table."""
    seconds = [s for s, _, _ in steps]
    rate = statistics.median(tokens / s for s, tokens, _ in steps)
    times = [f"{value:.3f}" for value in (statistics.median(seconds), min(seconds), max(seconds))]
    return [model, side, len(steps), *times, f"{rate:.0f}", f"{max(r for _, _, r in steps):.0f}"]


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "bench" / "training.csv")
    parser.add_argument("--serve", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--policy", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        torch.set_num_threads(1)
        logging.disable(logging.INFO)
        serve = serve_ours if arguments.serve == SIDES[0] else serve_trl
        serve(arguments.policy, arguments.length, Turns())
        return
    rows = []
    for model in arguments.models:
        taken = measure(model, arguments.pairs)
        rows += [summary(model, side, steps) for side, steps in taken.items()]
        pairs = [b[0] / a[0] for a, b in zip(taken[SIDES[0]], taken[SIDES[1]], strict=True)]
        print(f"{model}: trl / ours {statistics.median(pairs):.2f} times ({min(pairs):.2f} to {max(pairs):.2f})")
        for row in rows[-2:]:
            print("  ", *row)
    with atomic_path(arguments.out) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
