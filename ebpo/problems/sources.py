"""The one interface of all sources: problem sets as they are read, before any cleaning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ebpo.config import Data, GeneratedData
from ebpo.problems.cleaning import Removed
from ebpo.problems.record import Problem


@dataclass(frozen=True)
class SourceSets:
    """What a source holds.

    Attributes:
        validation: None where it is to be held out of training.
        facts: set -> where it comes from: path, revision, files with their SHA-256, number of rows.
        removed: set -> rows that are no problem.
        packages: Python packages whose version decides what the source gives.
        warnings: what a reader of the results ought to know.
    """

    train: list[Problem]
    validation: list[Problem] | None
    benchmarks: dict[str, list[Problem]]
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed: dict[str, list[Removed]] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)


def read_source(data: Data) -> SourceSets:
    """The problem sets of the source that the configuration names.

    Raises:
        ValueError: the source lacks something that the configuration asks for.
        FileNotFoundError, ConnectionError: it cannot be reached.
    """
    # Each source is imported where it is used: reasoning-gym is not installed where published sets are trained on.
    if isinstance(data, GeneratedData):
        from ebpo.problems import reasoning_gym_source

        return reasoning_gym_source.read(data)
    from ebpo.problems import published_source

    return published_source.read(data)
