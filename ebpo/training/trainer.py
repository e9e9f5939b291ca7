"""The training loop: collect, estimate, update, measure, checkpoint.

Everything random is a function of (seed, step): k steps, a kill and a resume end in the same bits as an unbroken run.
"""

from __future__ import annotations

import fcntl
import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from ebpo.algorithms.ebpo import EBPOState
from ebpo.algorithms.registry import estimate, needs_selection, select_tokens, shape_rewards
from ebpo.algorithms.rollout_correction import (
    check_logprob_difference,
    importance_weights,
    logprob_difference,
    padded_values,
)
from ebpo.algorithms.settings import DAPOSettings, EBPOSettings
from ebpo.clustering.curriculum import epoch_order
from ebpo.config import Parallel, RunConfig
from ebpo.files import atomic_folder, write_json, write_text
from ebpo.grading import Grader, check_unscorable
from ebpo.machine import machine
from ebpo.policy.loading import set_determinism
from ebpo.problems.record import Problem
from ebpo.rollouts.batch import Batch, make_batch
from ebpo.rollouts.engines import training_engine
from ebpo.rollouts.protocol import Sampling
from ebpo.seeds import derive_seed
from ebpo.training.checkpoint import TrainerState, load_best, load_checkpoint, save_best, save_checkpoint
from ebpo.training.collect import RolloutBatch, Sampler, collect
from ebpo.training.history import append_row, read_rows
from ebpo.training.metrics import (
    advantage_metrics,
    masked_mean,
    process_rss_mb,
    rollout_metrics,
    step_kl,
)
from ebpo.training.policy import TrainedPolicy, write_model
from ebpo.training.processes import Processes, clip_gradient
from ebpo.training.progress import Progress
from ebpo.training.stream import PromptStream
from ebpo.training.update import OptimizerBatch, UpdateStatistics, accumulate_gradient
from ebpo.training.validation import validate

log = logging.getLogger(__name__)

# Rows of a step on which an engine that is the trainer's own model is checked all the same.
_CHECKED_ROWS = 16
# A budget that cuts most answers scores them wrong, and then no method seems to work.
_TRUNCATION_ALARM = 0.5


@dataclass(frozen=True)
class TrainingInputs:
    """What a run reads.

    Attributes:
        policy: folder of the base policy.
        train, validation: problems.
        prompt_ids: problem id -> token ids of its prompt, for all of them.
        topics, pass_rates: problem id -> value; None where the run does not use it.
        digest: of the configuration and of the contents of every input file; checkpoints of another digest are
            never resumed.
        dropped: reason -> number of training problems that were left out for it.
    """

    policy: Path
    train: Sequence[Problem]
    validation: Sequence[Problem]
    prompt_ids: Mapping[str, list[int]]
    topics: Mapping[str, str] | None
    pass_rates: Mapping[str, float] | None
    digest: str
    dropped: Mapping[str, int] = field(default_factory=dict)


def train(config: RunConfig, inputs: TrainingInputs, folder: Path, parallel: Parallel = "ddp") -> None:
    """Trains a run, resuming from its last checkpoint; writes model/, best/, metrics.jsonl, summary.json to `folder`.

    Two jobs never train the same run: the second waits, then finds the work done or goes on with it.
    """
    processes = Processes(config.training.device)
    with _sole_trainer(folder, processes):
        if processes.same(_finished(folder, config, inputs)):
            log.info("%s: already trained to step %d by another process", folder, config.training.steps)
            return
        state_folder = folder / "state" / inputs.digest[:16]
        Trainer(config, inputs, state_folder, processes, parallel).run(folder)
        if processes.is_main:
            shutil.rmtree(folder / "state")


def _finished(folder: Path, config: RunConfig, inputs: TrainingInputs) -> bool:
    path = folder / "summary.json"
    if not path.exists() or not (folder / "model" / "config.json").exists():
        return False
    summary = json.loads(path.read_text(encoding="utf-8"))
    return bool(summary["digest"] == inputs.digest and summary["step"] == config.training.steps)


@contextmanager
def _sole_trainer(folder: Path, processes: Processes) -> Iterator[None]:
    """Holds the run's lock in the main process; the job's other processes come in once it has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.lock").open("a") as lock:
        if processes.is_main:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if processes.count > 1:  # the others would wait in a collective until it times out
                    raise ValueError(f"{folder}: another process is training this run") from None
                log.warning("%s: another process is training this run; waiting for it", folder)
                fcntl.flock(lock, fcntl.LOCK_EX)
        processes.wait()
        yield


class Trainer:
    """A run in progress. Construct, then `run`."""

    def __init__(
        self, config: RunConfig, inputs: TrainingInputs, state_folder: Path, processes: Processes, parallel: Parallel
    ) -> None:
        self.config, self.inputs, self.state_folder, self.processes = config, inputs, state_folder, processes
        set_determinism(config.training.threads)
        torch.manual_seed(derive_seed("trainer", config.run.seed))  # LoRA's initial weights
        self.policy = TrainedPolicy(inputs.policy, config, processes, parallel)
        self.rollouts = training_engine(
            config.rollouts,
            self.policy.inner,
            self.policy.tokenizer,
            inputs.policy,
            config.dtype,
            config.training.max_prompt_tokens + config.training.max_new_tokens,
        )
        self.problems = {p.id: p for p in (*inputs.train, *inputs.validation)}
        self.stream = PromptStream(self._order)
        self.estimator: EBPOState | None = None
        self.state = TrainerState(step=0, stream=self.stream.state_dict())

    def _order(self, epoch: int) -> list[str]:
        run, inputs = self.config.run, self.inputs
        ids = [p.id for p in inputs.train]
        return epoch_order(
            ids,
            run.order,
            run.seed,
            epoch,
            inputs.topics,
            inputs.pass_rates,
            interleave_block=self.config.curriculum.interleave_block,
        )

    def run(self, folder: Path) -> None:
        """Trains to the target step and writes the results; raises if the target was not reached."""
        training, target = self.config.training, self.config.training.steps
        self.state_folder.mkdir(parents=True, exist_ok=True)
        history = self.state_folder / "metrics.jsonl"
        self._resume(history)
        with (
            Grader(workers=1) as grader,
            Progress(self.config.run.folder, target, self.state.step, self.processes.is_main) as progress,
        ):
            sampler = Sampler(
                self.problems, self.inputs.prompt_ids, self.rollouts, grader, self.processes, self._sampling_context
            )
            if self.state.step == 0:
                self._record(history, {"step": 0, **self._validate(sampler)})
            while self.state.step < target:
                metrics = self._step(sampler)
                if self.state.step % training.validate_every == 0 or self.state.step == target:
                    metrics |= self._validate(sampler)
                self._record(history, {"step": self.state.step, **metrics})
                progress.update(self.state.step, metrics)
                if self.state.step % training.checkpoint_every == 0 and self.state.step < target:
                    save_checkpoint(self.state_folder, self.policy, self.state, self.processes)
        self._write_results(folder, history)

    @contextmanager
    def _sampling_context(self) -> Iterator[None]:
        """Inside, this process samples on its own, from the present weights."""
        # vLLM has weights of its own, and takes over shards one by one.
        samples_from_model = self.config.rollouts.engine == "transformers"
        with self.policy.whole() if samples_from_model else nullcontext():
            self.rollouts.sync(self.policy.inner)
            yield
            self.rollouts.sleep()

    def _record(self, history: Path, row: dict[str, float]) -> None:
        if self.processes.is_main:
            append_row(history, row)

    def _resume(self, history: Path) -> None:
        restored = load_checkpoint(self.state_folder, self.policy, self.processes)
        if restored is not None:
            self.state = restored
            self.state.resumed_at.append(restored.step)
            self.stream.load_state_dict(restored.stream)
            self.estimator = None if restored.estimator is None else EBPOState.from_dict(restored.estimator)
            log.info("resumed from the checkpoint of step %d", restored.step)
        if self.processes.is_main and history.exists():
            # Steps after the checkpoint are trained again; their rows of the killed attempt go.
            rows = [row for row in read_rows(history) if restored and row["step"] <= restored.step]
            write_text(history, "".join(json.dumps(row) + "\n" for row in rows))

    def _sampling(self, purpose: str, step: int, attempt: int = 0) -> Sampling:
        training = self.config.training
        seed = derive_seed(purpose, self.config.run.seed, step, attempt)
        return Sampling(training.temperature, training.max_new_tokens, seed)

    def _validate(self, sampler: Sampler) -> dict[str, float]:
        samples, step = self.config.training.validation_samples, self.state.step
        ids = [p.id for p in self.inputs.validation]
        metrics = validate(sampler, ids, samples, self._sampling("validation", step))
        score = metrics[f"validation/maj@{samples}"]
        # The base policy is no checkpoint of the run, even where no step beats it.
        if step > 0 and score > self.state.best_score:
            save_best(self.state_folder, self.policy, step, self.processes)
            self.state = replace(self.state, best_step=step, best_score=score)
        return metrics

    def _step(self, sampler: Sampler) -> dict[str, float]:
        training, settings, size = self.config.training, self.config.settings, self.config.run.group_size
        started, step = time.monotonic(), self.state.step + 1
        collected = collect(
            self.stream,
            sampler,
            prompts=training.completions_per_step // size,
            group_size=size,
            sampling=lambda attempt: self._sampling("rollout", step, attempt),
            max_rounds=settings.dynamic_sampling.max_rounds if isinstance(settings, DAPOSettings) else None,
        )
        check_unscorable(collected.verdicts)
        metrics = rollout_metrics(collected, self._rewards(collected.sampled))
        if metrics["completion/truncated"] > _TRUNCATION_ALARM:
            log.warning(
                "step %d: %.0f %% of the completions were cut at max_new_tokens %d",
                step,
                100 * metrics["completion/truncated"],
                training.max_new_tokens,
            )
        if collected.trained.group_ids:
            metrics |= self._update(collected.trained, step)
        tokens = sum(len(c.token_ids) for c in collected.sampled.completions)
        seconds = time.monotonic() - started
        self.state = replace(
            self.state,
            step=step,
            stream=self.stream.state_dict(),
            estimator=None if self.estimator is None else self.estimator.to_dict(),
            completions_total=self.state.completions_total + len(collected.sampled.completions),
            tokens_total=self.state.tokens_total + tokens,
            seconds=self.state.seconds + seconds,
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

    def _update(self, rollouts: RolloutBatch, step: int) -> dict[str, float]:
        """The step's optimizer updates; every process has the same rollouts, and computes its part of the passes."""
        training, settings = self.config.training, self.config.settings
        accuracy, group_ids = rollouts.tensors()
        result = estimate(settings, self._rewards(rollouts), group_ids, self.estimator, self._clusters(rollouts))
        self.estimator = result.state
        device = self.processes.device
        batch = make_batch(
            [self.inputs.prompt_ids[i] for i in rollouts.problem_ids],
            rollouts.completions,
            self.rollouts.eos_ids[0],
            device,
        )
        # Unscorable completions teach nothing and count in no denominator.
        scorable = ~torch.isnan(accuracy)
        batch = Batch(batch.input_ids, batch.attention_mask, batch.mask & scorable.to(device).unsqueeze(-1))
        advantages = result.advantages.to(torch.float32).to(device)

        old_logp, entropy, importance, agreement = self._old_logprobs(rollouts, batch, step)
        reference_logp = self.policy.reference_logprobs(batch)
        statistics = UpdateStatistics()
        for number, start in enumerate(range(0, len(batch), training.completions_per_update)):
            rows = slice(start, start + training.completions_per_update)
            self._optimizer_update(
                step,
                number,
                batch.rows(rows),
                old_logp[rows],
                advantages[rows],
                None if reference_logp is None else reference_logp[rows],
                None if importance is None else importance[rows],
                statistics,
            )
        metrics = {
            **statistics.finish(self.processes),
            **agreement,
            **advantage_metrics(result.advantages[scorable]),
            **{f"ebpo/{name}": value for name, value in result.metrics.items()},
            "entropy": masked_mean(entropy, batch.mask),
        }
        if step % training.measure_kl_every == 0:
            new_logp, _ = self.policy.logprobs(batch)
            metrics["kl_step"] = step_kl(old_logp, new_logp, batch.mask)
        return metrics

    def _old_logprobs(
        self, rollouts: RolloutBatch, batch: Batch, step: int
    ) -> tuple[Tensor, Tensor, Tensor | None, dict[str, float]]:
        """Of the policy that sampled: log-probs and entropies [N, T], the importance weights that correct for the
        engine (None: not asked for), and how far the engine's log-probs are from the trainer's.

        The transformers engine in float32 is the trainer's model with the same arithmetic, so its own numbers are
        taken, and a few rows are computed again to check that. Every other engine's rows are all computed again.

        Raises:
            ValueError: the engine is further away than the configured bound.
        """
        settings, width = self.config.rollouts, batch.mask.shape[1]
        exact = settings.engine == "transformers" and self.config.dtype == "float32"
        checked = batch.rows(slice(0, _CHECKED_ROWS)) if exact else batch
        logp, entropy = self.policy.logprobs(checked)
        engine_logp = padded_values([c.logprobs for c in rollouts.completions], width, logp.device)
        metrics = logprob_difference(engine_logp[: len(checked)], logp, checked.mask)
        check_logprob_difference(metrics, settings.bound(self.config.dtype), f"step {step}")
        if exact:
            logp = torch.where(batch.mask, engine_logp, 0.0)
            entropy = padded_values([c.entropies for c in rollouts.completions], width, logp.device)
        if settings.importance_cap is None:
            return logp, entropy, None, metrics
        weights, more = importance_weights(logp, engine_logp, batch.mask, settings.importance_cap)
        return logp, entropy, weights, {**metrics, **more}

    def _optimizer_update(
        self,
        step: int,
        number: int,
        batch: Batch,
        old_logp: Tensor,
        advantages: Tensor,
        reference_logp: Tensor | None,
        importance: Tensor | None,
        statistics: UpdateStatistics,
    ) -> None:
        training, settings, policy = self.config.training, self.config.settings, self.policy
        if not bool(batch.mask.any()):  # no loss token anywhere: neither gradient nor optimizer step
            statistics.skipped += 1
            return
        selected = None
        if needs_selection(settings):
            # Before a step's first update the current policy is the old one.
            current = old_logp if number == 0 else policy.logprobs(batch)[0]
            seed = derive_seed("token selection", self.config.run.seed, step, number)
            selected = select_tokens(
                settings, current, old_logp, advantages, batch.mask, torch.Generator().manual_seed(seed)
            )
        whole = OptimizerBatch.of(
            settings,
            batch,
            old_logp,
            advantages,
            reference_logp,
            selected,
            training.max_new_tokens,
            importance,
        )
        policy.optimizer.zero_grad(set_to_none=True)
        accumulate_gradient(
            policy.model,
            settings,
            whole,
            self.processes,
            temperature=training.temperature,
            micro_batch=training.micro_batch,
            statistics=statistics,
        )
        statistics.grad_norms.append(clip_gradient(policy.model, training.gradient_clip))
        policy.optimizer.step()

    def _clusters(self, rollouts: RolloutBatch) -> dict[int, str] | None:
        settings = self.config.settings
        if not isinstance(settings, EBPOSettings) or settings.scope != "cluster" or self.inputs.topics is None:
            return None
        topics = self.inputs.topics
        return {g: topics[i] for g, i in zip(rollouts.group_ids, rollouts.problem_ids, strict=True)}

    def _write_results(self, folder: Path, history: Path) -> None:
        final = self.policy.trainable_state()
        if not self.processes.is_main:
            return
        target = self.config.training.steps
        rows = read_rows(history)
        steps = [row["step"] for row in rows]
        if self.state.step != target or steps != list(range(target + 1)):
            raise RuntimeError(f"{folder}: step {self.state.step} of {target} reached, metrics of {len(steps)} steps")
        best = final if self.state.best_step == target else load_best(self.state_folder, self.state.best_step)
        for name, parameters in (("model", final), ("best", best)):
            with atomic_folder(folder / name) as partial:
                write_model(self.inputs.policy, self.config, parameters, partial)
        write_text(folder / "metrics.jsonl", history.read_text(encoding="utf-8"))
        write_json(
            folder / "summary.json",
            {
                "digest": self.inputs.digest,
                "step": self.state.step,
                "target": target,
                "best_step": self.state.best_step,
                "best_validation": self.state.best_score,
                "seconds": round(self.state.seconds, 1),
                "completions_total": self.state.completions_total,
                "tokens_total": self.state.tokens_total,
                "training_problems": len(self.inputs.train),
                "dropped_problems": dict(self.inputs.dropped),
                "processes": self.processes.count,
                "machine": machine() | self.processes.accelerator(),
                "resumed_at": self.state.resumed_at,
                "final": {key: value for key, value in rows[-1].items() if not key.startswith("verdict/")},
            },
        )
