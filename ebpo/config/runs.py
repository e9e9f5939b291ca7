"""Training runs, the comparisons that they form, and their evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ebpo.algorithms.settings import (
    AlgorithmSettings,
    EntropyMechSettings,
    NonNegativeFloat,
    PositiveFloat,
    Settings,
)
from ebpo.config.clustering import Curriculum, Order
from ebpo.config.rollouts import Rollouts
from ebpo.config.types import Identifier, ModelIdentifier, PositiveInt, Seed, TemplateName

# How several processes share a model: replicated, or sharded layer by layer.
Parallel = Literal["ddp", "fsdp2"]


class LoRA(Settings):
    """Low-rank adapters (arXiv 2106.09685) in place of training all weights.

    Attributes:
        rank, alpha: of the adapters; their product with the input is scaled by alpha / rank.
        target_modules: names of the linear layers that get one, or `all-linear`.
    """

    rank: PositiveInt
    alpha: PositiveFloat
    target_modules: list[str] | Literal["all-linear"] = "all-linear"


class Training(Settings):
    """What all methods of an experiment share: data, batch, optimizer.

    Attributes:
        curriculum_steps: steps of difficulty-ordered runs, where they differ (the paper: one epoch).
        steps: training steps; each is one rollout batch and completions_per_step / completions_per_update
            optimizer updates.
        completions_per_step: completions of a rollout batch (global batch), prompts * group size.
        completions_per_update: completions of one optimizer update (mini-batch).
        micro_batch: completions per forward and backward pass; changes memory, never the gradient.
        learning_rate: constant.
        gradient_clip: maximal gradient norm.
        temperature: of the rollouts, and of every log-probability.
        max_new_tokens: completion budget L.
        max_prompt_tokens: longer training prompts are dropped, counted, when prompts are rendered; a longer benchmark
            prompt is an error.
        gradient_checkpointing: activations are computed again in the backward pass, to save memory.
        lora: trains adapters instead of all weights.
        checkpoint_every: steps between checkpoints.
        validate_every: steps between validations (0 and the last step included).
        validation_samples: completions per validation problem.
        measure_kl_every: steps between measurements of KL(pi_t || pi_t+1), a forward pass over the step's rollouts.
        device, threads: where and with how many CPU threads the job computes.
    """

    steps: PositiveInt
    curriculum_steps: PositiveInt | None = None
    completions_per_step: PositiveInt
    completions_per_update: PositiveInt
    micro_batch: PositiveInt
    learning_rate: PositiveFloat
    weight_decay: NonNegativeFloat = 0.0
    gradient_clip: PositiveFloat = 1.0
    temperature: PositiveFloat = 1.0
    max_new_tokens: PositiveInt
    max_prompt_tokens: PositiveInt
    checkpoint_every: PositiveInt
    validate_every: PositiveInt
    validation_samples: PositiveInt
    measure_kl_every: PositiveInt = 1
    device: Literal["cpu", "cuda"] = "cpu"
    threads: PositiveInt = 1
    gradient_checkpointing: bool = False
    lora: LoRA | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Training:
        if self.completions_per_step % self.completions_per_update:
            raise ValueError(
                f"completions_per_update: {self.completions_per_update} must divide "
                f"completions_per_step {self.completions_per_step}"
            )
        return self


class Comparison(Settings):
    """A table: every combination of the listed values is a run."""

    models: Annotated[list[ModelIdentifier], Field(min_length=1)]
    methods: Annotated[list[Identifier], Field(min_length=1)]
    orders: Annotated[list[Order], Field(min_length=1)]
    group_sizes: Annotated[list[PositiveInt], Field(min_length=1)] = [4]
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0]


class Evaluation(Settings):
    """Protocol of the benchmarks: pass@1 averaged over `samples` completions per problem."""

    benchmarks: Annotated[list[Identifier], Field(min_length=1)]
    samples: PositiveInt
    temperature: PositiveFloat = 1.0
    max_new_tokens: PositiveInt
    seed: Seed = 0


class Resources(Settings):
    """What jobs ask for, and how many processes train a run; none of it changes a result beyond rounding.

    Attributes:
        gpus: of a GPU rule; 0 on a CPU-only configuration.
        mem_mb, train_minutes: memory, and time limit of the long jobs.
        processes: training processes of a run (one a GPU).
        parallel: how they share the model.
    """

    gpus: Annotated[int, Field(ge=0)] = 0
    mem_mb: PositiveInt = 2_000
    train_minutes: PositiveInt = 30
    processes: PositiveInt = 1
    parallel: Parallel = "ddp"


class RunId(Settings):
    """Which run: the coordinates of a folder under runs/."""

    model: ModelIdentifier
    method: Identifier
    order: Order
    group_size: PositiveInt
    seed: Seed

    @property
    def folder(self) -> str:
        """Path below the experiment's folder."""
        return f"runs/{self.model}/{self.method}-{self.order}/G{self.group_size}/seed{self.seed}"


class RunConfig(Settings):
    """Everything that determines a run's outcome, apart from its input files."""

    run: RunId
    settings: AlgorithmSettings
    training: Training
    curriculum: Curriculum = Curriculum()
    rollouts: Rollouts = Rollouts()
    template: TemplateName
    dtype: Literal["float32", "bfloat16"]

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        size, training, settings = self.run.group_size, self.training, self.settings
        if size < settings.min_group_size:
            raise ValueError(
                f"group_sizes: {size} is too small for {settings.algorithm}, which needs a group size of at least "
                f"{settings.min_group_size}"
            )
        if training.completions_per_update % size:
            raise ValueError(
                f"group_sizes: {size} must divide training.completions_per_update {training.completions_per_update}, "
                "so that a group is never split over two updates"
            )
        updates = training.completions_per_step // training.completions_per_update
        if isinstance(settings, EntropyMechSettings) and settings.variant == "kl_cov" and updates == 1:
            raise ValueError(
                "variant: kl_cov does nothing with one update per step, since |log ratio| has no gradient at ratio 1; "
                "allowed: completions_per_update smaller than completions_per_step, or clip_cov"
            )
        return self


def comparison_runs(comparison: Comparison) -> Iterator[RunId]:
    """The runs of a comparison, in the order in which its table lists them."""
    for model in comparison.models:
        for group_size in comparison.group_sizes:
            for order in comparison.orders:
                for method in comparison.methods:
                    for seed in comparison.seeds:
                        yield RunId(model=model, method=method, order=order, group_size=group_size, seed=seed)
