"""Where an experiment's problems come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ebpo.algorithms.settings import Fraction, NonNegativeFloat, PositiveFloat, Settings
from ebpo.config.types import Identifier, PositiveInt, Seed


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
