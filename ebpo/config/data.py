"""Where an experiment's problems come from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from ebpo.algorithms.settings import Fraction, NonNegativeFloat, PositiveFloat, Settings
from ebpo.config.types import Identifier, PositiveInt, Seed, TemplateName


def _no_other_set(name: str) -> str:
    if name in ("train", "validation"):
        raise ValueError(f"{name!r} is the name of another problem set; allowed: any other name")
    return name


Benchmark = Annotated[Identifier, AfterValidator(_no_other_set)]


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
    benchmarks: dict[Benchmark, GeneratedBenchmark]
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
    """A published problem set: a dataset of the hub, or a file.

    Attributes:
        path: dataset name on the hub; with `data.mirror`, the folder, .parquet or .jsonl file of its last part there;
            with source files, a path in `data.folder`.
        split, subset: what to read of it; of a single file, all is read.
        revision: commit of the dataset repository.
        sha256: digest of the distinct questions and golds, as the manifest gives it, if another one is to be refused.
        problem, answer: columns; nested ones are written with dots ("reward_model.ground_truth").
        topic, answer_type, tolerance: further columns: the topic, and what `ebpo.grading.grade` takes.
        unwrap: prompt template whose text surrounds every question, to be taken off.
        problems: number of distinct questions in the set; a benchmark must also keep them all.
        count_tolerance: allowed relative difference from that number.
    """

    path: str
    split: str = "train"
    subset: str | None = None
    revision: str | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    problem: str
    answer: str
    topic: str | None = None
    answer_type: str | None = None
    tolerance: str | None = None
    unwrap: TemplateName | None = None
    problems: PositiveInt
    count_tolerance: NonNegativeFloat = 0.0


class Cleaning(Settings):
    """When two questions are too alike. Words are those of `ebpo.problems.text.words`.

    Attributes:
        near_duplicate: two questions with the same numbers are near-duplicates from this Jaccard similarity of their
            pairs of adjacent words on; in training they must also have the same answer. null: none is looked for.
        ngram: length in words of the runs that are compared between training and benchmarks.
        overlap: a training question is contaminated from this share of a benchmark question's runs on.
        common: a run that more training questions than this share is stock phrasing and does not count (as in GPT-3,
            arXiv 2005.14165, appendix C).
    """

    near_duplicate: Fraction | None = 0.8
    ngram: PositiveInt = 13
    overlap: Fraction = 0.3
    common: PositiveInt = 10


class PublishedData(Settings):
    """Problems from published sets, or from files of one's own.

    Attributes:
        validation: number of training problems set aside for validation.
    """

    seed: Seed
    train: Dataset
    validation: PositiveInt
    benchmarks: dict[Benchmark, Dataset]
    cleaning: Cleaning = Cleaning()


class HubData(PublishedData):
    """Problems from the hub.

    Attributes:
        mirror: folder that holds copies of the datasets, used instead of the hub.
    """

    source: Literal["hub"]
    mirror: str | None = None


class FilesData(PublishedData):
    """Problems from .parquet and .jsonl files.

    Attributes:
        folder: where the files are.
    """

    source: Literal["files"]
    folder: str


Data = Annotated[GeneratedData | HubData | FilesData, Field(discriminator="source")]
