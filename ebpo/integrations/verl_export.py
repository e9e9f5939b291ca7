"""A run of an experiment as verl's input: prompt tables in verl's schema, and the hydra overrides of its command.

Written for verl 0.9.1. Nothing here imports verl.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ebpo.algorithms.settings import (
    AlgorithmSettings,
    DAPOSettings,
    DrGRPOSettings,
    EBPOSettings,
    EntropyMechSettings,
)
from ebpo.clustering.curriculum import epoch_order
from ebpo.config import RunConfig
from ebpo.config.types import TemplateName
from ebpo.files import atomic_path
from ebpo.integrations.options import ESTIMATOR_OPTIONS
from ebpo.problems.record import Problem
from ebpo.prompts import TEMPLATES
from ebpo.training.stream import PromptStream

VERL_VERSION = "0.9.1"

# verl's estimators add this to the group's standard deviation, and no setting changes it.
_VERL_STD_EPSILON = 1e-6
# verl also clips -A * ratio at -A * clip_ratio_c where A < 0; none of the five algorithms does.
_NO_DUAL_CLIP = 1e6

_AGGREGATION = {
    "seq_mean_token_mean": "seq-mean-token-mean",
    "token_mean": "token-mean",
    "constant": "seq-mean-token-sum-norm",
}

_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("prompt", pa.list_(_MESSAGE)),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    ("split", pa.string()),
                    ("index", pa.int64()),
                    ("id", pa.string()),
                    ("required_answers", pa.list_(pa.string())),
                    ("answer_type", pa.string()),
                    ("tolerance", pa.float64()),
                ]
            ),
        ),
    ]
)


def drawn_problems(
    config: RunConfig,
    problems: Sequence[Problem],
    topics: Mapping[str, str] | None = None,
    pass_rates: Mapping[str, float] | None = None,
) -> list[Problem]:
    """The problems that the run's steps visit, one per prompt of a step, in our trainer's order (without a gate)."""
    run, training = config.run, config.training
    by_id = {problem.id: problem for problem in problems}
    stream = PromptStream(lambda epoch: epoch_order(list(by_id), run.order, run.seed, epoch, topics, pass_rates))
    prompts = training.steps * training.completions_per_step // run.group_size
    return [by_id[identifier] for identifier in stream.take(prompts)]


def write_prompt_table(path: Path, problems: Sequence[Problem], template: TemplateName, split: str) -> None:
    """Writes a parquet file in verl's schema, a row per problem in the given order; a problem may occur repeatedly.

    Raises:
        ValueError: the prompt template is no chat, and verl always applies the tokenizer's chat template.
    """
    form = TEMPLATES[template]
    if not form.chat:
        allowed = ", ".join(name for name, other in TEMPLATES.items() if other.chat)
        raise ValueError(
            f"template: {template!r} is no chat, and verl applies the tokenizer's chat template to every prompt; "
            f"allowed: {allowed}"
        )
    distinct = {problem.id: problem for problem in problems}
    position = {identifier: index for index, identifier in enumerate(distinct)}
    rows = [
        {
            "data_source": problem.source,
            "prompt": form.messages(problem.problem),
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {
                "split": split,
                "index": position[problem.id],
                "id": problem.id,
                "required_answers": list(problem.required_answers),
                "answer_type": problem.answer_type,
                "tolerance": problem.tolerance,
            },
        }
        for problem in distinct.values()
    ]
    table = pa.Table.from_pylist(rows, schema=_SCHEMA).take([position[problem.id] for problem in problems])
    with atomic_path(path) as partial:
        pq.write_table(table, partial)


def overrides(config: RunConfig, model: str, gpus_per_node: int, nodes: int) -> dict[str, Any]:
    """verl's settings for a run, key -> value; a key that is new to verl begins with `+`.

    Files are given relative to $here, the folder of the command.

    Args:
        model: what verl loads: a folder or a hub name.

    Raises:
        ValueError: a setting cannot be expressed in verl, or the GPUs do not divide an update.
    """
    training, settings, size = config.training, config.settings, config.run.group_size
    gpus = gpus_per_node * nodes
    share, rest = divmod(training.completions_per_update, gpus)
    if rest:
        raise ValueError(
            f"{gpus} GPUs must divide training.completions_per_update {training.completions_per_update}: verl splits "
            "an update evenly"
        )
    micro_batch = math.gcd(training.micro_batch, share)
    return {
        **_data(config),
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.model.enable_gradient_checkpointing": training.gradient_checkpointing,
        **_lora(config),
        "actor_rollout_ref.actor.optim.lr": training.learning_rate,
        "actor_rollout_ref.actor.optim.weight_decay": training.weight_decay,
        "actor_rollout_ref.actor.optim.lr_scheduler_type": "constant",
        "actor_rollout_ref.actor.optim.clip_grad": training.gradient_clip,
        "actor_rollout_ref.actor.grad_clip": training.gradient_clip,
        # In prompts, not completions.
        "actor_rollout_ref.actor.ppo_mini_batch_size": training.completions_per_update // size,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": micro_batch,
        "actor_rollout_ref.actor.ppo_epochs": 1,
        "actor_rollout_ref.actor.shuffle": False,
        "actor_rollout_ref.actor.entropy_coeff": 0,
        "actor_rollout_ref.actor.data_loader_seed": config.run.seed,
        **_loss(settings, training.max_new_tokens),
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": micro_batch,
        "actor_rollout_ref.rollout.name": "vllm",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": micro_batch,
        "actor_rollout_ref.rollout.n": size,
        "actor_rollout_ref.rollout.seed": config.run.seed,
        "actor_rollout_ref.rollout.temperature": training.temperature,
        "actor_rollout_ref.rollout.top_p": 1.0,
        "actor_rollout_ref.rollout.top_k": -1,
        "actor_rollout_ref.rollout.val_kwargs.do_sample": True,
        "actor_rollout_ref.rollout.val_kwargs.n": training.validation_samples,
        "actor_rollout_ref.rollout.val_kwargs.temperature": training.temperature,
        "actor_rollout_ref.rollout.val_kwargs.top_p": 1.0,
        **_estimator(settings),
        **_reward(settings, training.max_new_tokens),
        **_trainer(config, gpus_per_node, nodes),
    }


def _data(config: RunConfig) -> dict[str, Any]:
    training = config.training
    return {
        "data.train_files": "$here/train.parquet",
        "data.val_files": "$here/validation.parquet",
        "data.train_batch_size": training.completions_per_step // config.run.group_size,
        "data.max_prompt_length": training.max_prompt_tokens,
        "data.max_response_length": training.max_new_tokens,
        "data.filter_overlong_prompts": True,
        "data.truncation": "error",
        # train.parquet already is in the order of the run.
        "data.shuffle": False,
        "data.seed": config.run.seed,
    }


def _lora(config: RunConfig) -> dict[str, Any]:
    lora = config.training.lora
    if lora is None:
        return {}
    return {
        "actor_rollout_ref.model.lora_rank": lora.rank,
        "actor_rollout_ref.model.lora_alpha": lora.alpha,
        "actor_rollout_ref.model.target_modules": lora.target_modules,
    }


def _loss(settings: AlgorithmSettings, max_length: int) -> dict[str, Any]:
    actor = "actor_rollout_ref.actor"
    values: dict[str, Any] = {
        f"{actor}.loss_agg_mode": _AGGREGATION[settings.aggregation],
        f"{actor}.clip_ratio": settings.clip_low,
        f"{actor}.clip_ratio_low": settings.clip_low,
        f"{actor}.clip_ratio_high": settings.clip_high,
        f"{actor}.clip_ratio_c": _NO_DUAL_CLIP,
        f"{actor}.use_kl_loss": settings.kl_coef > 0,
        f"{actor}.kl_loss_coef": settings.kl_coef,
        f"{actor}.kl_loss_type": "low_var_kl",
    }
    if settings.aggregation == "constant":
        # Without it verl divides by the width of the padded batch.
        values[f"{actor}.loss_scale_factor"] = max_length
    if isinstance(settings, EntropyMechSettings):
        values |= {
            f"{actor}.policy_loss.loss_mode": settings.variant,
            f"{actor}.policy_loss.clip_cov_ratio": settings.clip_cov_fraction,
            f"{actor}.policy_loss.clip_cov_lb": settings.clip_cov_low,
            f"{actor}.policy_loss.clip_cov_ub": settings.clip_cov_high,
            f"{actor}.policy_loss.kl_cov_ratio": settings.kl_cov_fraction,
            f"{actor}.policy_loss.ppo_kl_coef": settings.kl_cov_coef,
        }
    return values


def _estimator(settings: AlgorithmSettings) -> dict[str, Any]:
    if isinstance(settings, EBPOSettings):
        if settings.scope == "cluster":
            raise ValueError("scope: 'cluster' cannot be had in verl, whose estimators see no column; allowed: global")
        published = EBPOSettings()
        options = {name: getattr(settings, name) for name in ESTIMATOR_OPTIONS}
        changed = {name: value for name, value in options.items() if value != getattr(published, name)}
        return {
            "algorithm.adv_estimator": "ebpo",
            **{f"+algorithm.ebpo.{name}": value for name, value in changed.items()},
            "trainer.checkpoint_callback_class": "ebpo.integrations.verl.PriorCheckpoint",
        }
    if not isinstance(settings, DrGRPOSettings) and settings.std_epsilon != _VERL_STD_EPSILON:
        raise ValueError(
            f"std_epsilon: {settings.std_epsilon:g} cannot be had in verl, where it is {_VERL_STD_EPSILON:g}"
        )
    values: dict[str, Any] = {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": not isinstance(settings, DrGRPOSettings),
    }
    if isinstance(settings, DAPOSettings):
        values |= {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "acc"}
    return values


def _reward(settings: AlgorithmSettings, max_length: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "reward.custom_reward_function.path": "pkg://ebpo.integrations.verl_reward",
        "reward.custom_reward_function.name": "compute_score",
    }
    if isinstance(settings, EBPOSettings):
        values["+reward.custom_reward_function.reward_kwargs.unscorable"] = "nan"
    if isinstance(settings, DAPOSettings):
        overlong = "+reward.reward_kwargs.overlong_buffer_cfg"
        values |= {
            "reward.reward_manager.name": "dapo",
            "+reward.reward_kwargs.max_resp_len": max_length,
            f"{overlong}.enable": settings.overlong.penalty > 0,
            f"{overlong}.len": max(1, round(settings.overlong.buffer_fraction * max_length)),
            f"{overlong}.penalty_factor": settings.overlong.penalty,
            f"{overlong}.log": False,
        }
    return values


def _trainer(config: RunConfig, gpus_per_node: int, nodes: int) -> dict[str, Any]:
    training, settings = config.training, config.settings
    # A gate draws more prompts than the table has; verl then starts the table again.
    passes = settings.dynamic_sampling.max_rounds if isinstance(settings, DAPOSettings) else 1
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "sync",
        "trainer.project_name": "ebpo",
        "trainer.experiment_name": config.run.folder.removeprefix("runs/").replace("/", "_"),
        "trainer.logger": ["console"],
        "trainer.nnodes": nodes,
        "trainer.n_gpus_per_node": gpus_per_node,
        "trainer.total_training_steps": training.steps,
        "trainer.total_epochs": passes,
        "trainer.save_freq": training.checkpoint_every,
        "trainer.test_freq": training.validate_every,
        "trainer.val_before_train": True,
        "trainer.default_local_dir": "$here/checkpoints",
    }


def command(values: Mapping[str, Any]) -> str:
    """The shell script that starts verl with these settings; further overrides may follow as its arguments."""
    lines = [f"  {_argument(key, value)} \\" for key, value in values.items()]
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# For verl {VERL_VERSION}.",
            "set -euo pipefail",
            'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
            "exec python -m verl.trainer.main_ppo \\",
            *lines,
            '  "$@"',
            "",
        ]
    )


def _argument(key: str, value: Any) -> str:
    if isinstance(value, str) and value.startswith("$here/"):
        return f'{key}="{value}"'
    if isinstance(value, list):
        value = f"[{','.join(value)}]"
    return f"{key}={shlex.quote(str(value))}"
