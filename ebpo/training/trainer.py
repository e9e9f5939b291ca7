"""The training loop: collect, estimate, update, measure, checkpoint.

Everything random is a function of (seed, step): k steps, a kill and a resume end in the same bits as an unbroken run.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebpo.algorithms.ebpo import EBPOState
from ebpo.algorithms.registry import estimate, shape_rewards
from ebpo.algorithms.settings import DAPOSettings, EBPOSettings
from ebpo.clustering.curriculum import epoch_order
from ebpo.config import RunConfig
from ebpo.files import atomic_folder, write_json, write_text
from ebpo.grading import Grader, check_unscorable
from ebpo.policy.loading import load_policy, set_determinism
from ebpo.problems.record import Problem
from ebpo.prompts import render_all
from ebpo.rollouts.protocol import Sampling
from ebpo.rollouts.transformers_engine import TransformersRollouts
from ebpo.seeds import derive_seed
from ebpo.training.batch import Batch, logprobs_in_chunks, make_batch
from ebpo.training.checkpoint import TrainerState, load_checkpoint, save_checkpoint
from ebpo.training.collect import Collected, RolloutBatch, collect
from ebpo.training.metrics import (
    advantage_metrics,
    masked_mean,
    process_rss_mb,
    rollout_metrics,
    step_kl,
)
from ebpo.training.progress import Progress
from ebpo.training.stream import PromptStream
from ebpo.training.update import UpdateStatistics, accumulate_gradient
from ebpo.training.validation import validate

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingInputs:
    """What a run reads.

    Attributes:
        policy: folder of the base policy.
        topics, pass_rates: problem id -> value; None where the run does not use it.
        digest: of the configuration and of the contents of every input file; checkpoints of another digest are
            never resumed.
    """

    policy: Path
    train: Sequence[Problem]
    validation: Sequence[Problem]
    topics: Mapping[str, str] | None
    pass_rates: Mapping[str, float] | None
    digest: str


def train(config: RunConfig, inputs: TrainingInputs, folder: Path) -> None:
    """Trains a run, resuming from its last checkpoint, and writes model/, metrics.jsonl and summary.json to `folder`.

    Two processes never train the same run: the second waits, then finds the work done or goes on with it.
    """
    with _sole_trainer(folder):
        if _finished(folder, config, inputs):
            log.info("%s: already trained to step %d by another process", folder, config.training.steps)
            return
        state_folder = folder / "state" / inputs.digest[:16]
        Trainer(config, inputs, state_folder).run(folder)
        shutil.rmtree(folder / "state")


def _finished(folder: Path, config: RunConfig, inputs: TrainingInputs) -> bool:
    path = folder / "summary.json"
    if not path.exists() or not (folder / "model" / "config.json").exists():
        return False
    summary = json.loads(path.read_text(encoding="utf-8"))
    return bool(summary["digest"] == inputs.digest and summary["step"] == config.training.steps)


@contextmanager
def _sole_trainer(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning("%s: another process is training this run; waiting for it", folder)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Trainer:
    """A run in progress. Construct, then `run`."""

    def __init__(self, config: RunConfig, inputs: TrainingInputs, state_folder: Path) -> None:
        self.config, self.inputs, self.state_folder = config, inputs, state_folder
        training, run = config.training, config.run
        set_determinism(training.threads)
        torch.manual_seed(derive_seed("trainer", run.seed))
        self.model, self.tokenizer = load_policy(inputs.policy, config.dtype, training.device)
        self.reference = None
        if config.settings.kl_coef > 0:
            self.reference, _ = load_policy(inputs.policy, config.dtype, training.device)
            self.reference.requires_grad_(False)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay
        )
        self.rollouts = TransformersRollouts(self.model, self.tokenizer)
        self.problems = {p.id: p for p in inputs.train}
        self.prompt_ids = self._render(inputs.train)
        self.validation_ids = list(self._render(inputs.validation).values())
        self.stream = PromptStream(self._order)
        self.estimator: EBPOState | None = None
        self.state = TrainerState(0, self.stream.state_dict(), None, 0, 0, 0.0, [])

    def _render(self, problems: Sequence[Problem]) -> dict[str, list[int]]:
        pairs = [(p.id, p.problem) for p in problems]
        rendered = render_all(self.tokenizer, self.config.template, pairs, self.config.training.max_prompt_tokens)
        return {i: ids for (i, _), ids in zip(pairs, rendered, strict=True)}

    def _order(self, epoch: int) -> list[str]:
        run, inputs = self.config.run, self.inputs
        return epoch_order(list(self.problems), run.order, run.seed, epoch, inputs.topics, inputs.pass_rates)

    def run(self, folder: Path) -> None:
        """Trains to the target step and writes the results; raises if the target was not reached."""
        target = self.config.training.steps
        self.state_folder.mkdir(parents=True, exist_ok=True)
        history = self.state_folder / "metrics.jsonl"
        self._resume(history)
        with Grader(workers=1) as grader, Progress(self.config.run.folder, target, self.state.step) as progress:
            if self.state.step == 0:
                _append(history, {"step": 0, **self._validate(grader)})
            while self.state.step < target:
                metrics = self._step(grader)
                if self.state.step % self.config.training.validate_every == 0 or self.state.step == target:
                    metrics |= self._validate(grader)
                _append(history, {"step": self.state.step, **metrics})
                progress.update(self.state.step, metrics)
                if self.state.step % self.config.training.checkpoint_every == 0 and self.state.step < target:
                    save_checkpoint(self.state_folder, self.model, self.optimizer, self.state)
        self._write_results(folder, history)

    def _resume(self, history: Path) -> None:
        restored = load_checkpoint(self.state_folder, self.model, self.optimizer)
        if restored is None:
            history.unlink(missing_ok=True)
            return
        self.state = restored
        self.state.resumed_at.append(restored.step)
        self.stream.load_state_dict(restored.stream)
        self.estimator = None if restored.estimator is None else EBPOState.from_dict(restored.estimator)
        # Steps after the checkpoint are trained again; their rows of the killed attempt go.
        rows = [row for row in _read_rows(history) if row["step"] <= restored.step]
        write_text(history, "".join(json.dumps(row) + "\n" for row in rows))
        log.info("resumed from the checkpoint of step %d", restored.step)

    def _sampling(self, purpose: str, step: int, attempt: int = 0) -> Sampling:
        training = self.config.training
        seed = derive_seed(purpose, self.config.run.seed, step, attempt)
        return Sampling(training.temperature, training.max_new_tokens, seed)

    def _validate(self, grader: Grader) -> dict[str, float]:
        return validate(
            self.inputs.validation,
            self.validation_ids,
            self.rollouts,
            grader,
            self.config.training.validation_samples,
            self._sampling("validation", self.state.step),
        )

    def _step(self, grader: Grader) -> dict[str, float]:
        training, settings, size = self.config.training, self.config.settings, self.config.run.group_size
        started, step = time.monotonic(), self.state.step + 1
        collected = collect(
            self.stream,
            self.problems,
            self.prompt_ids,
            self.rollouts,
            grader,
            prompts=training.completions_per_step // size,
            group_size=size,
            sampling=lambda attempt: self._sampling("rollout", step, attempt),
            max_rounds=settings.dynamic_sampling.max_rounds if isinstance(settings, DAPOSettings) else None,
        )
        check_unscorable(collected.verdicts)
        metrics = rollout_metrics(collected, self._rewards(collected.sampled), training.max_new_tokens)
        if collected.trained.group_ids:
            metrics |= self._update(collected, step)
        tokens = sum(len(c.token_ids) for c in collected.sampled.completions)
        seconds = time.monotonic() - started
        self.state = TrainerState(
            step=step,
            stream=self.stream.state_dict(),
            estimator=None if self.estimator is None else self.estimator.to_dict(),
            completions_total=self.state.completions_total + len(collected.sampled.completions),
            tokens_total=self.state.tokens_total + tokens,
            seconds=self.state.seconds + seconds,
            resumed_at=self.state.resumed_at,
        )
        metrics |= collected.verdicts.metrics()
        metrics |= {
            "epoch": float(self.stream.epoch),
            "completions_total": float(self.state.completions_total),
            "tokens_per_second": tokens / seconds,
            "rss_mb": process_rss_mb(),
        }
        return metrics

    def _rewards(self, batch: RolloutBatch) -> Tensor:
        accuracy, _ = batch.tensors()
        lengths = torch.tensor([len(c.token_ids) for c in batch.completions])
        return shape_rewards(self.config.settings, accuracy, lengths, self.config.training.max_new_tokens)

    def _update(self, collected: Collected, step: int) -> dict[str, float]:
        training, settings, rollouts = self.config.training, self.config.settings, collected.trained
        accuracy, group_ids = rollouts.tensors()
        result = estimate(settings, self._rewards(rollouts), group_ids, self.estimator, self._clusters(rollouts))
        self.estimator = result.state
        batch = make_batch(
            [self.prompt_ids[i] for i in rollouts.problem_ids],
            rollouts.completions,
            self.rollouts.eos_ids[0],
            training.device,
        )
        # Unscorable completions teach nothing and count in no denominator.
        scorable = ~torch.isnan(accuracy).to(batch.mask.device)
        batch = Batch(batch.input_ids, batch.attention_mask, batch.mask & scorable.unsqueeze(-1))
        advantages = result.advantages.to(torch.float32).to(training.device)

        old_logp, entropy = logprobs_in_chunks(self.model, batch, training.temperature, training.micro_batch)
        reference_logp = None
        if self.reference is not None:
            reference_logp, _ = logprobs_in_chunks(self.reference, batch, training.temperature, training.micro_batch)
        statistics = UpdateStatistics()
        for number, start in enumerate(range(0, len(batch), training.completions_per_update)):
            rows = slice(start, start + training.completions_per_update)
            self.optimizer.zero_grad(set_to_none=True)
            generator = torch.Generator().manual_seed(
                derive_seed("token selection", self.config.run.seed, step, number)
            )
            if not accumulate_gradient(
                self.model,
                settings,
                batch.rows(rows.start, rows.stop),
                old_logp[rows],
                advantages[rows],
                None if reference_logp is None else reference_logp[rows],
                temperature=training.temperature,
                max_length=training.max_new_tokens,
                micro_batch=training.micro_batch,
                generator=generator,
                statistics=statistics,
            ):
                statistics.skipped += 1
                continue
            norm = torch.nn.utils.clip_grad_norm_(
                self.model.parameters(), training.gradient_clip, error_if_nonfinite=True
            )
            self.optimizer.step()
            statistics.grad_norms += (float(norm),)
        new_logp, _ = logprobs_in_chunks(self.model, batch, training.temperature, training.micro_batch)
        return {
            **statistics.finish(),
            **advantage_metrics(result.advantages[scorable.cpu()]),
            **{f"ebpo/{name}": value for name, value in result.metrics.items()},
            "entropy": masked_mean(entropy, batch.mask),
            "kl_step": step_kl(old_logp, new_logp, batch.mask),
        }

    def _clusters(self, rollouts: RolloutBatch) -> dict[int, str] | None:
        settings = self.config.settings
        if not isinstance(settings, EBPOSettings) or settings.scope != "cluster" or self.inputs.topics is None:
            return None
        topics = self.inputs.topics
        return {g: topics[i] for g, i in zip(rollouts.group_ids, rollouts.problem_ids, strict=True)}

    def _write_results(self, folder: Path, history: Path) -> None:
        target = self.config.training.steps
        rows = _read_rows(history)
        steps = [row["step"] for row in rows]
        if self.state.step != target or steps != list(range(target + 1)):
            raise RuntimeError(f"{folder}: step {self.state.step} of {target} reached, metrics of {len(steps)} steps")
        with atomic_folder(folder / "model") as partial:
            self.model.save_pretrained(partial)
            self.tokenizer.save_pretrained(partial)
        write_text(folder / "metrics.jsonl", history.read_text(encoding="utf-8"))
        write_json(
            folder / "summary.json",
            {
                "digest": self.inputs.digest,
                "step": self.state.step,
                "target": target,
                "seconds": round(self.state.seconds, 1),
                "completions_total": self.state.completions_total,
                "tokens_total": self.state.tokens_total,
                "resumed_at": self.state.resumed_at,
                "final": {key: value for key, value in rows[-1].items() if not key.startswith("verdict/")},
            },
        )


def _append(path: Path, row: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row, allow_nan=False) + "\n")
        # On disk before the checkpoint that follows it, whatever happens to the machine.
        stream.flush()
        os.fsync(stream.fileno())


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows by step, a later attempt's row in place of an earlier one's; a last line cut by a kill is dropped."""
    rows: dict[int, dict[str, Any]] = {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for line in lines:
        if line.endswith("\n"):
            row = json.loads(line)
            rows[row["step"]] = row
    return [rows[step] for step in sorted(rows)]
