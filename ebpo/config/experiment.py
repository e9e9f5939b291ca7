"""A whole experiment."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from ebpo.algorithms.settings import AlgorithmSettings, Settings
from ebpo.config.clustering import Curriculum, Difficulty, Topics
from ebpo.config.data import Data, GeneratedData, PublishedData
from ebpo.config.messages import own_message
from ebpo.config.models import Model
from ebpo.config.rollouts import Rollouts
from ebpo.config.runs import Comparison, Evaluation, Resources, RunConfig, RunId, Training, comparison_runs
from ebpo.config.types import Identifier, ModelIdentifier

# Every comparison is a target of the workflow, beside these.
RESERVED_TARGETS = {
    "all",
    "data",
    "policy",
    "clusters",
    "train_all",
    "evaluate",
    "tables",
    "figures",
    "report",
    "theory",
    "claims",
}


class ExperimentConfig(Settings):
    """An experiment: data, models, methods, and the comparisons that its tables show."""

    experiment: Identifier
    rebuild_policy: bool = False
    data: Data
    topics: Topics = Topics()
    difficulty: Difficulty = Difficulty()
    curriculum: Curriculum = Curriculum()
    models: Annotated[dict[ModelIdentifier, Model], Field(min_length=1)]
    methods: Annotated[dict[Identifier, AlgorithmSettings], Field(min_length=1)]
    training: Training
    rollouts: Rollouts = Rollouts()
    comparisons: Annotated[dict[Identifier, Comparison], Field(min_length=1)]
    evaluation: Evaluation
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentConfig:
        sources = sorted(self.data.benchmarks)
        for name in self.evaluation.benchmarks:
            if name not in sources:
                raise ValueError(
                    f"evaluation.benchmarks: {name!r} has no source in data.benchmarks; allowed: {sources}"
                )
        for name, comparison in self.comparisons.items():
            if name in RESERVED_TARGETS:
                raise ValueError(
                    f"comparisons.{name}: is the name of a target; not allowed: {sorted(RESERVED_TARGETS)}"
                )
            for key, known in (("models", self.models), ("methods", self.methods)):
                for value in getattr(comparison, key):
                    if value not in known:
                        raise ValueError(
                            f"comparisons.{name}.{key}: {value!r} is not defined; allowed: {sorted(known)}"
                        )
        if self.topics.method == "given" and isinstance(self.data, PublishedData) and self.data.train.topic is None:
            raise ValueError("topics.method: 'given' needs a topic column; data.train.topic names none")
        for name, model in self.models.items():
            if model.recipe is None:
                continue
            if not isinstance(self.data, GeneratedData):
                raise ValueError(f"models.{name}.recipe: needs data.source reasoning_gym, not {self.data.source!r}")
            cells, slips = {c.id for c in self.data.cells}, set(model.recipe.slip)
            if cells != slips:
                raise ValueError(
                    f"models.{name}.recipe.slip: must name each of data.cells once; "
                    f"missing {sorted(cells - slips)}, unknown {sorted(slips - cells)}"
                )
        for name, comparison in self.comparisons.items():
            for run in comparison_runs(comparison):
                try:
                    self.run_config(run)
                except ValidationError as error:
                    raise ValueError(f"comparisons.{name}.{own_message(error)}") from None
        return self

    def run_config(self, run: RunId) -> RunConfig:
        """The resolved configuration of one run."""
        model, training = self.models[run.model], self.training
        if run.order == "difficulty" and training.curriculum_steps is not None:
            training = training.model_copy(update={"steps": training.curriculum_steps, "curriculum_steps": None})
        return RunConfig(
            run=run,
            settings=self.methods[run.method],
            training=training,
            curriculum=self.curriculum.relevant_to(run.order),
            rollouts=self.rollouts,
            template=model.template,
            dtype=model.dtype,
        )

    def runs(self) -> list[RunId]:
        """Every run of every comparison, once, sorted by folder."""
        found = {run for comparison in self.comparisons.values() for run in comparison_runs(comparison)}
        return sorted(found, key=lambda run: run.folder)
