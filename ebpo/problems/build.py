"""Builds the problem sets of an experiment: train, validation, benchmarks; clean, disjoint and counted.

The stages, in this order; each is counted, and what it removes is listed with a reason:

1. read: rows that say exactly the same become one; rows without question or gold go (`published_source`)
2. equal questions: the first stays; none does if their golds differ (`cleaning.drop_repeats`)
3. the number of questions must be the configured one
4. golds that the grader does not accept go (`cleaning.drop_ungradable`)
5. near-duplicates in training: the first stays (`cleaning.drop_near_duplicates`)
6. training problems that overlap a benchmark go (`contamination`)
7. validation is held out of training, by a seed
8. benchmarks must still have the configured number, and no question may be in two sets

Benchmarks go through 1 to 4 only: they are published as they are. Generated problems are disjoint by construction and
differ in numbers alone, so 3, 5, 6 and 7 do not concern them.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ebpo.config import Data, Dataset, PublishedData
from ebpo.problems.cleaning import Removed, Result, drop_near_duplicates, drop_repeats, drop_ungradable
from ebpo.problems.contamination import Overlap, find_overlaps
from ebpo.problems.record import Problem
from ebpo.problems.sources import SourceSets, read_source
from ebpo.problems.text import normalise

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProblemSets:
    """The sets of an experiment.

    Attributes:
        removed: set -> what left it, apart from rows that say exactly the same.
        overlaps: the training problems that overlap a benchmark, and are removed.
        counts: set -> stage -> number of problems; goes into the manifest.
        facts: set -> where it comes from.
        packages, warnings: as in `SourceSets`.
    """

    train: list[Problem]
    validation: list[Problem]
    benchmarks: dict[str, list[Problem]]
    removed: dict[str, list[Removed]] = field(default_factory=dict)
    overlaps: list[Overlap] = field(default_factory=list)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)


def build(data: Data) -> ProblemSets:
    """The experiment's problem sets.

    Raises:
        ValueError: a set has another number of questions than configured, or two sets share a question.
        FileNotFoundError, ConnectionError: the source cannot be reached.
    """
    source = read_source(data)
    sets = {"train": source.train, **source.benchmarks}
    if source.validation is not None:
        sets["validation"] = source.validation
    removed = {name: list(source.removed.get(name, [])) for name in sets}
    configured = {"train": data.train, **data.benchmarks} if isinstance(data, PublishedData) else {}

    def apply(name: str, result: Result) -> None:
        sets[name] = result.kept
        removed[name] += result.removed

    for name in sets:
        questions = len({normalise(p.problem) for p in sets[name]})
        if name in configured:
            _check_count(name, configured[name], questions, source.facts[name]["rows"], [])
        apply(name, drop_repeats(sets[name]))
        apply(name, drop_ungradable(sets[name]))
    overlaps: list[Overlap] = []
    held_out = 0
    if isinstance(data, PublishedData):
        if data.cleaning.near_duplicate is not None:
            apply("train", drop_near_duplicates(sets["train"], data.cleaning.near_duplicate))
        benchmarks = {name: sets[name] for name in data.benchmarks}
        overlaps = find_overlaps(sets["train"], benchmarks, data.cleaning)
        apply("train", _without(sets["train"], overlaps))
        sets["train"], sets["validation"] = _hold_out(sets["train"], data.validation, data.seed)
        held_out = data.validation
        for name in data.benchmarks:
            _check_count(name, configured[name], len(sets[name]), source.facts[name]["rows"], removed[name])
    assert_disjoint(sets)
    counts = {name: _counts(source, name, removed.get(name, []), len(sets[name])) for name in sets}
    if held_out:
        counts["train"]["held_out"] = held_out
    for name, problems in sets.items():
        log.info("%s: %d problems; %s", name, len(problems), counts[name])
        for item in removed.get(name, []):
            if item.stage in ("conflicting_gold", "ungradable_gold"):
                log.warning("%s: problem %s removed: %s", name, item.problem.id, item.reason)
    for warning in source.warnings:
        log.warning("%s", warning)
    return ProblemSets(
        train=sets["train"],
        validation=sets["validation"],
        benchmarks={name: sets[name] for name in source.benchmarks},
        removed=removed,
        overlaps=overlaps,
        counts=counts,
        facts=source.facts,
        packages=source.packages,
        warnings=source.warnings,
    )


def _counts(source: SourceSets, name: str, removed: list[Removed], final: int) -> dict[str, int]:
    facts: Mapping[str, Any] = source.facts.get(name, {})
    read = {key: facts[key] for key in ("rows", "distinct_rows", "not_wrapped") if key in facts}
    return {**read, **Counter(item.stage for item in removed), "final": final}


def _check_count(name: str, dataset: Dataset, found: int, rows: int, removed: list[Removed]) -> None:
    if abs(found - dataset.problems) > dataset.count_tolerance * dataset.problems:
        lost = "".join(f"; {r.problem.id}: {r.reason}" for r in removed if r.stage != "exact_duplicate")
        raise ValueError(
            f"{name}: {dataset.path} has {found} distinct problems in {rows} rows; "
            f"the configuration expects {dataset.problems} (count_tolerance {dataset.count_tolerance:g}){lost}"
        )


def _without(train: list[Problem], overlaps: list[Overlap]) -> Result:
    reasons: dict[str, str] = {}
    for found in overlaps:
        reasons.setdefault(found.train_id, f"{found.kind} {found.overlap:.2f} of {found.benchmark_id}")
    return Result(
        [p for p in train if p.id not in reasons],
        [Removed(p, "contaminated", reasons[p.id]) for p in train if p.id in reasons],
    )


def _hold_out(problems: list[Problem], number: int, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Training and validation problems, both in order: a seeded sample becomes validation."""
    if number >= len(problems):
        raise ValueError(f"data.validation: {number} must be smaller than the {len(problems)} training problems")
    chosen = set(random.Random(seed).sample(range(len(problems)), number))
    return (
        [p for i, p in enumerate(problems) if i not in chosen],
        [p for i, p in enumerate(problems) if i in chosen],
    )


def assert_disjoint(sets: Mapping[str, list[Problem]]) -> None:
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
