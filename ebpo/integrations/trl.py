"""EBPO in TRL: a GRPOTrainer whose advantages are EBPO's.

    -from trl import GRPOConfig, GRPOTrainer
    +from ebpo.integrations.trl import EBPOConfig as GRPOConfig, EBPOTrainer as GRPOTrainer

Generation, rewards, loss, optimizer, logging and checkpoints stay TRL's. The prior is updated once per generation
batch, on the rewards that TRL has gathered over all processes, so it is the same everywhere. It is saved in every
checkpoint as ebpo_state.json.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import trl
from accelerate.utils import gather_object
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy
from trl import GRPOConfig, GRPOTrainer

from ebpo.algorithms.ebpo import EBPOState, ebpo_advantages
from ebpo.algorithms.settings import EBPOSettings
from ebpo.files import write_json
from ebpo.integrations.options import ESTIMATOR_OPTIONS, estimator_settings

TRL_VERSION = "1.16"
STATE_FILE = "ebpo_state.json"

# What is overridden or called, with the parameters that are relied on.
_METHODS: Mapping[str, tuple[str, ...]] = {
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_generate_and_score_completions": ("inputs",),
    "_save_checkpoint": ("model", "trial"),
    "_load_optimizer_and_scheduler": ("checkpoint",),
    "_get_output_dir": ("trial",),
}
_ATTRIBUTES = (
    "_logs",
    "_metrics",
    "_step",
    "accelerator",
    "environment_factories",
    "multi_objective_aggregation",
    "num_generations",
    "num_generations_eval",
    "num_iterations",
    "reward_weights",
    "scale_rewards",
)


@dataclass
class EBPOConfig(GRPOConfig):
    """GRPOConfig with the paper's setting as default, and the estimator's options as `ebpo_*`.

    Changed defaults, all from the paper (arXiv 2602.05165): G = 4, KL coefficient 0.001, the GRPO aggregation (mean
    over a completion's tokens, then over completions), constant learning rate (1e-6, which is GRPOConfig's default);
    and the KL estimate without a ratio, as in verl, which the paper trained with.
    Where a GRPO run is to be compared with EBPO under its own settings, pass its GRPOConfig to EBPOTrainer instead.

    Attributes:
        ebpo_within, ebpo_between, ebpo_scope, ebpo_half_life, ebpo_prior, ebpo_update, ebpo_normalise_epsilon: see
            `ebpo.algorithms.settings.EBPOSettings`.
        ebpo_cluster_column: column of the dataset with a prompt's cluster, for ebpo_scope="cluster".
    """

    num_generations: int = field(default=4, metadata={"help": "Completions per prompt (the paper's G)."})
    beta: float = field(default=0.001, metadata={"help": "KL coefficient."})
    loss_type: str = field(default="grpo", metadata={"help": "Loss aggregation."})
    use_bias_correction_kl: bool = field(default=False, metadata={"help": "Multiply the KL estimate by the ratio."})
    lr_scheduler_type: str = field(default="constant", metadata={"help": "Learning rate schedule."})

    ebpo_within: str = field(default="total", metadata={"help": "Variance of one reward: total or pooled."})
    ebpo_between: str = field(default="raw", metadata={"help": "Variance of group means: raw or debiased."})
    ebpo_scope: str = field(default="global", metadata={"help": "One prior (global) or one per cluster."})
    ebpo_half_life: float | None = field(default=None, metadata={"help": "Groups until a weight halves."})
    ebpo_prior: str = field(default="gaussian", metadata={"help": "gaussian or beta_binomial."})
    ebpo_update: str = field(default="before", metadata={"help": "Prior updated before or after scoring."})
    ebpo_normalise_epsilon: float = field(default=1e-6, metadata={"help": "Added to the batch's std."})
    ebpo_cluster_column: str | None = field(default=None, metadata={"help": "Dataset column with the cluster."})

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = self.ebpo_settings()
        if (settings.scope == "cluster") != (self.ebpo_cluster_column is not None):
            raise ValueError(
                f"ebpo_cluster_column: {self.ebpo_cluster_column!r} with ebpo_scope {settings.scope!r}; "
                "scope cluster needs the column, scope global takes none"
            )

    def ebpo_settings(self) -> EBPOSettings:
        """The estimator's settings.

        Raises:
            ValueError: an option's value is not allowed.
        """
        return estimator_settings({name: getattr(self, f"ebpo_{name}") for name in ESTIMATOR_OPTIONS}, "ebpo_")


class EBPOTrainer(GRPOTrainer):
    """GRPOTrainer with EBPO's advantages (paper, Algorithm 1).

    A completion whose reward functions all return None is unscorable: it leaves every statistic and gets advantage 0.
    Evaluation scores its batches with the same estimator and leaves the prior as it is. `scale_rewards` has no
    meaning here: raw advantages are divided by the standard deviation of their batch.

    Attributes:
        ebpo_state: the prior, the same on every process.

    Raises:
        RuntimeError: the installed TRL is not the version that this class was made for.
        ValueError: a setting of TRL's contradicts EBPO.
    """

    _tag_names = ["trl", "ebpo"]
    _name = "EBPO"
    _paper = {
        "title": "EBPO: Empirical Bayes Shrinkage for Stabilizing Group-Relative Policy Optimization",
        "id": "2602.05165",
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _check_methods()
        self.ebpo_state = EBPOState()
        self._ebpo_rewards: list[Tensor] = []
        super().__init__(*args, **kwargs)
        missing = [name for name in _ATTRIBUTES if not hasattr(self, name)]
        if missing:
            raise _moved(f"a GRPOTrainer has no attribute {missing[0]}")
        own = isinstance(self.args, EBPOConfig)
        self._ebpo_settings = self.args.ebpo_settings() if own else EBPOSettings()
        self._ebpo_cluster_column = self.args.ebpo_cluster_column if own else None
        self._check_settings()

    def _check_settings(self) -> None:
        if self.multi_objective_aggregation != "sum_then_normalize":
            raise ValueError(
                f"multi_objective_aggregation: {self.multi_objective_aggregation!r} normalises rewards inside the "
                "group, which EBPO does not do; allowed: 'sum_then_normalize'"
            )
        if self.scale_rewards == "none":
            raise ValueError(
                "scale_rewards: 'none' cannot be had, EBPO divides by the batch's standard deviation; "
                "leave scale_rewards out"
            )
        updates = self._updates_per_generation()
        # Below 1, save_steps is a share of the run, whose length is not known yet.
        in_steps = self.args.save_strategy == SaveStrategy.STEPS and self.args.save_steps >= 1
        if in_steps and self.args.save_steps % updates:
            raise ValueError(
                f"save_steps: {self.args.save_steps:g} must be a multiple of {updates}, the optimizer updates of one "
                "generation batch: a run resumed inside a batch would generate it anew and count it twice in the prior"
            )

    def _updates_per_generation(self) -> int:
        """Optimizer updates after which an update and a generation batch end together."""
        micro_batches = self._micro_batches_per_generation()
        return micro_batches // math.gcd(micro_batches, self.args.gradient_accumulation_steps)

    def _micro_batches_per_generation(self) -> int:
        return int(self.args.steps_per_generation * self.num_iterations)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards: Tensor = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._ebpo_rewards.append(rewards)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._ebpo_rewards.clear()
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        if len(self._ebpo_rewards) != 1 or len(output.get("advantages", ())) != len(inputs):
            raise _moved("_generate_and_score_completions no longer gives an advantage per row of _calculate_rewards")
        training = bool(self.model.training)
        rewards = self._weighted_rewards(self._ebpo_rewards[0])
        size = self.num_generations if training else self.num_generations_eval
        group_ids = torch.arange(len(rewards)) // size
        if training and self.environment_factories is None:
            self._check_groups(group_ids)
        advantages, state, metrics = ebpo_advantages(
            rewards, group_ids, self.ebpo_state, settings=self._ebpo_settings, clusters=self._clusters(inputs, size)
        )
        first = self.accelerator.process_index * len(inputs)
        output["advantages"] = advantages[first : first + len(inputs)].to(output["advantages"])
        self._relog_advantages(advantages)
        if training:
            self.ebpo_state = state
            metrics["unscorable"] = float(torch.isnan(rewards).double().mean())
            for name, value in metrics.items():
                self._metrics["train"][f"ebpo/{name}"].append(value)
        return output

    def _weighted_rewards(self, per_function: Tensor) -> Tensor:
        """[N] float64 on the CPU, so that every process computes the same bits; NaN where no function gave a reward."""
        values = per_function.detach().double().cpu()
        total = (values * self.reward_weights.double().cpu()).nansum(dim=1)
        return torch.where(torch.isnan(values).all(dim=1), torch.nan, total)

    def _check_groups(self, group_ids: Tensor) -> None:
        """The rows of a group must be completions of one prompt. TRL's log holds the gathered prompts in row order."""
        prompts = [_text(prompt) for prompt in list(self._logs["prompt"])[-len(group_ids) :]]
        if len(prompts) != len(group_ids):
            raise _moved("_logs does not hold the prompts of the generation batch")
        first: dict[int, str] = {}
        for group, prompt in zip(group_ids.tolist(), prompts, strict=True):
            if first.setdefault(group, prompt) != prompt:
                raise _moved(f"group {group} of the generation batch mixes prompts: {first[group]!r} and {prompt!r}")

    def _clusters(self, inputs: list[dict[str, Any]], size: int) -> dict[int, str] | None:
        if self._ebpo_cluster_column is None:
            return None
        if self._ebpo_cluster_column not in inputs[0]:
            raise ValueError(
                f"ebpo_cluster_column: the dataset has no column {self._ebpo_cluster_column!r}; it has "
                f"{', '.join(sorted(inputs[0]))}"
            )
        rows = gather_object([str(row[self._ebpo_cluster_column]) for row in inputs])
        return {row // size: cluster for row, cluster in enumerate(rows)}

    def _relog_advantages(self, advantages: Tensor) -> None:
        """Puts EBPO's advantages in place of those that TRL has just logged beside the completions."""
        log = self._logs["advantages"]
        for _ in range(min(len(advantages), len(log))):
            log.pop()
        log.extend(advantages.tolist())

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        # Before TRL's own files: a checkpoint that is complete for TRL then has the prior too.
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            content = {
                "settings": self._ebpo_settings.model_dump(include=set(ESTIMATOR_OPTIONS)),
                "micro_batches_into_generation": self._step % self._micro_batches_per_generation(),
                "prior": self.ebpo_state.to_dict(),
            }
            write_json(folder / STATE_FILE, content)
        super()._save_checkpoint(model, trial)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._load_prior(Path(checkpoint) / STATE_FILE)

    def _load_prior(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: missing, so EBPO's prior cannot be restored; resume from a checkpoint that EBPOTrainer saved"
            )
        content = json.loads(path.read_text(encoding="utf-8"))
        settings = self._ebpo_settings.model_dump(include=set(ESTIMATOR_OPTIONS))
        for name, value in content["settings"].items():
            if settings[name] != value:
                raise ValueError(
                    f"{path}: the prior was collected with {name} {value!r}, and ebpo_{name} is {settings[name]!r}; "
                    "resume with the same options"
                )
        if content["micro_batches_into_generation"]:
            raise ValueError(
                f"{path}: saved inside a generation batch, which would enter the prior twice; resume from a "
                f"checkpoint whose step is a multiple of {self._updates_per_generation()}"
            )
        self.ebpo_state = EBPOState.from_dict(content["prior"])


def _text(prompt: Any) -> str:
    """A prompt as text; of a conversation with images, its roles and texts."""
    if isinstance(prompt, str):
        return prompt
    parts = []
    for message in prompt:
        content = message["content"]
        texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        parts.append(": ".join([message["role"], *texts]))
    return "\n".join(parts)


def _check_methods() -> None:
    if not trl.__version__.startswith(f"{TRL_VERSION}."):
        raise _moved(f"its version is {trl.__version__}")
    for name, parameters in _METHODS.items():
        method = getattr(GRPOTrainer, name, None)
        if method is None:
            raise _moved(f"GRPOTrainer has no method {name}")
        found = inspect.signature(method).parameters
        absent = [parameter for parameter in parameters if parameter not in found]
        if absent:
            raise _moved(f"GRPOTrainer.{name} has no parameter {absent[0]}")


def _moved(what: str) -> RuntimeError:
    return RuntimeError(
        f"EBPOTrainer is made for trl {TRL_VERSION}, and the installed trl {trl.__version__} differs: {what}; "
        f"install trl=={TRL_VERSION}.0"
    )


__all__ = ["STATE_FILE", "TRL_VERSION", "EBPOConfig", "EBPOTrainer"]
