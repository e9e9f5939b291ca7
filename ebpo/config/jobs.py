"""What each kind of job reads of an experiment."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from ebpo.algorithms.settings import Settings
from ebpo.config.clustering import Difficulty
from ebpo.config.data import GeneratedData
from ebpo.config.experiment import ExperimentConfig
from ebpo.config.models import Model, PolicyRecipe
from ebpo.config.rollouts import Rollouts
from ebpo.config.runs import Evaluation
from ebpo.config.types import PositiveInt, TemplateName


class _ModelJob(Settings):
    """What a job that samples from a policy needs to know of it."""

    template: TemplateName
    dtype: Literal["float32", "bfloat16"]
    max_prompt_tokens: PositiveInt
    device: Literal["cpu", "cuda"]
    threads: PositiveInt
    rollouts: Rollouts


class PromptsJob(Settings):
    """Rendering of the problems to a model's token ids."""

    template: TemplateName
    max_prompt_tokens: PositiveInt


class EvaluationJob(_ModelJob):
    """Sampling of the benchmarks."""

    evaluation: Evaluation


class DifficultyJob(_ModelJob):
    """Measurement of pass rates."""

    difficulty: Difficulty
    max_new_tokens: PositiveInt


class PolicyBuild(Settings):
    """A build from a recipe, on the problems of `data`'s cells that belong to the training share."""

    data: GeneratedData
    recipe: PolicyRecipe


class PolicyJob(Settings):
    """Provision of a base policy; `build` is set when it is to be built anew."""

    model: Model
    build: PolicyBuild | None = None


def job_sections(config: ExperimentConfig) -> dict[str, BaseModel]:
    """What each kind of job reads, by name. A job sees nothing else, so it re-runs only when its own part changes."""
    training = config.training
    sections: dict[str, BaseModel] = {"data": config.data, "topics": config.topics}
    for name, model in config.models.items():
        common: dict[str, Any] = {
            "template": model.template,
            "dtype": model.dtype,
            "max_prompt_tokens": training.max_prompt_tokens,
            "device": training.device,
            "threads": training.threads,
            "rollouts": config.rollouts,
        }
        sections[f"prompts-{name}"] = PromptsJob(template=model.template, max_prompt_tokens=training.max_prompt_tokens)
        sections[f"evaluation-{name}"] = EvaluationJob(evaluation=config.evaluation, **common)
        sections[f"difficulty-{name}"] = DifficultyJob(
            difficulty=config.difficulty, max_new_tokens=training.max_new_tokens, **common
        )
        build = None
        if config.rebuild_policy and model.recipe is not None and isinstance(config.data, GeneratedData):
            build = PolicyBuild(data=config.data, recipe=model.recipe)
        sections[f"policy-{name}"] = PolicyJob(model=model, build=build)
    return sections
