"""Builds the problem sets of an experiment: train, validation, benchmarks; disjoint and counted."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ebpo.config import Cell, GeneratedData, PublishedData
from ebpo.grading import check_gold
from ebpo.problems.record import Problem, normalise, text_digest

log = logging.getLogger(__name__)

Share = Literal["benchmark", "validation", "train"]


@dataclass(frozen=True)
class ProblemSets:
    """The sets of an experiment.

    Attributes:
        counts: what came in and why something was left out, per stage; goes into the manifest.
    """

    train: list[Problem]
    validation: list[Problem]
    benchmarks: dict[str, list[Problem]]
    counts: dict[str, Any] = field(default_factory=dict)


def share_of(problem: str, held_out: GeneratedData.HeldOut) -> Share:
    """Which set a question may be used in: a hash of its normalised text, uniform in [0, 1), cut at the shares."""
    position = int(text_digest(problem)[:13], 16) / 16**13
    if position < held_out.benchmark:
        return "benchmark"
    if position < held_out.benchmark + held_out.validation:
        return "validation"
    return "train"


def round_robin(streams: Sequence[Iterator[Problem]], total: int) -> list[Problem]:
    """Takes one new question of each stream in turn until there are `total`; an ended stream drops out.

    Streams may overlap (small numbers are also small enough for a harder cell): a question counts once.
    """
    taken: dict[str, Problem] = {}
    live = list(streams)
    while live and len(taken) < total:
        for stream in list(live):
            problem = next((p for p in stream if normalise(p.problem) not in taken), None)
            if problem is None:
                live.remove(stream)
            elif len(taken) < total:
                taken[normalise(problem.problem)] = problem
    return list(taken.values())


def _cells_of_share(cells: Iterable[Cell], data: GeneratedData, share: Share) -> list[Iterator[Problem]]:
    from ebpo.problems.reasoning_gym_source import distinct

    def stream(cell: Cell) -> Iterator[Problem]:
        return (p for p in distinct(cell, data.seed) if share_of(p.problem, data.held_out) == share)

    return [stream(cell) for cell in cells]


def generate(data: GeneratedData) -> ProblemSets:
    """Generated sets. Cells contribute equally until they run out of distinct questions.

    Raises:
        ValueError: the cells have fewer distinct questions than a set asks for.
    """
    train = round_robin(_cells_of_share(data.cells, data, "train"), data.train)
    _require(train, data.train, "data.train")
    validation = round_robin(_cells_of_share(data.cells, data, "validation"), data.validation)
    _require(validation, data.validation, "data.validation")
    benchmarks = {}
    for name, benchmark in data.benchmarks.items():
        cells = [c for c in data.cells if c.topic in benchmark.topics]
        benchmarks[name] = round_robin(_cells_of_share(cells, data, "benchmark"), benchmark.problems)
        _require(benchmarks[name], benchmark.problems, f"data.benchmarks.{name}.problems")
    return ProblemSets(train, validation, benchmarks)


def _require(problems: Sequence[Problem], wanted: int, key: str) -> None:
    if len(problems) < wanted:
        raise ValueError(f"{key}: {wanted} asked for, but its cells have only {len(problems)} distinct questions")


def load_published(data: PublishedData) -> ProblemSets:
    """Published sets, from the mirror folder or the hub; validation is a seeded sample of the training set.

    Raises:
        ValueError: a set has another number of problems than its configuration says.
    """
    import random

    from ebpo.problems.published_source import load

    counts: dict[str, Any] = {}
    benchmarks: dict[str, list[Problem]] = {}
    for name, dataset in data.benchmarks.items():
        benchmarks[name], counts[name] = load(name, dataset, data.mirror)
    everything, counts["train"] = load("train", data.train, data.mirror)
    held_out = {normalise(p.problem) for problems in benchmarks.values() for p in problems}
    remaining = [p for p in everything if normalise(p.problem) not in held_out]
    counts["train"]["in_a_benchmark"] = len(everything) - len(remaining)
    if data.validation >= len(remaining):
        raise ValueError(
            f"data.validation: {data.validation} must be smaller than the {len(remaining)} training problems"
        )
    chosen = set(random.Random(data.seed).sample(range(len(remaining)), data.validation))
    return ProblemSets(
        train=[p for i, p in enumerate(remaining) if i not in chosen],
        validation=[p for i, p in enumerate(remaining) if i in chosen],
        benchmarks=benchmarks,
        counts=counts,
    )


def build(data: GeneratedData | PublishedData) -> ProblemSets:
    """The experiment's problem sets, with golds that the grader accepts, disjoint by normalised text.

    Raises:
        ValueError: a set is too small, or two sets share a question.
    """
    sets = generate(data) if isinstance(data, GeneratedData) else load_published(data)
    named = {"train": sets.train, "validation": sets.validation, **sets.benchmarks}
    dropped: dict[str, dict[str, str]] = {}
    for name, problems in named.items():
        verdicts = {p.id: check_gold(p.answer) for p in problems}
        dropped[name] = {i: v.reason for i, v in verdicts.items() if v.verdict != "correct"}
        for identifier, reason in dropped[name].items():
            log.warning(
                "%s: problem %s dropped: its gold cannot be graded against itself (%s)", name, identifier, reason
            )
    kept = {name: [p for p in problems if p.id not in dropped[name]] for name, problems in named.items()}
    assert_disjoint(kept)
    counts = {
        **sets.counts,
        "problems": {name: len(problems) for name, problems in kept.items()},
        "dropped_golds": {name: reasons for name, reasons in dropped.items() if reasons},
    }
    for name, problems in kept.items():
        log.info("%s: %d problems", name, len(problems))
    return ProblemSets(kept["train"], kept["validation"], {n: kept[n] for n in sets.benchmarks}, counts)


def assert_disjoint(sets: dict[str, list[Problem]]) -> None:
    """Raises ValueError if a question occurs twice in training or validation, or in any two sets.

    A benchmark may share questions with another benchmark: benchmarks are published as they are.
    """
    owner: dict[str, str] = {}
    benchmarks = [n for n in sets if n not in ("train", "validation")]
    for name in ("train", "validation", *benchmarks):
        own: set[str] = set()
        for problem in sets[name]:
            key = normalise(problem.problem)
            if key in own:
                raise ValueError(f"{name}: question {problem.id} occurs more than once; sets are deduplicated")
            own.add(key)
            if key in owner and owner[key] in ("train", "validation"):
                raise ValueError(f"question {problem.id} is in {owner[key]} and in {name}; sets must be disjoint")
        owner |= {key: name for key in own}
