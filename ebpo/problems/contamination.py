"""Training problems that are also in a benchmark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ebpo.config import Cleaning
from ebpo.problems.cleaning import NearIndex
from ebpo.problems.record import Problem
from ebpo.problems.text import ngrams, words


class Overlap(NamedTuple):
    """A training problem that overlaps a benchmark problem.

    Attributes:
        kind: `text` (the same words), `near_duplicate` (a like wording, the same numbers) or `ngram` (shared runs).
        overlap: 1; the Jaccard similarity; or the share of the benchmark question's runs, in (0, 1].
    """

    train_id: str
    benchmark: str
    benchmark_id: str
    kind: Literal["text", "near_duplicate", "ngram"]
    overlap: float


def find_overlaps(
    train: Sequence[Problem], benchmarks: Mapping[str, Sequence[Problem]], settings: Cleaning
) -> list[Overlap]:
    """Every pair of a training and a benchmark problem that overlap, by its strictest kind, in the order of training.

    A benchmark question of at most `ngram` words has no run of its own and is compared as a whole only. Runs that more
    than `common` training questions share are stock phrasing ("where m and n are relatively prime positive integers").
    """
    held_out = [(name, problem) for name, problems in benchmarks.items() for problem in problems]
    tokens = [words(problem.problem) for _, problem in held_out]
    same: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, question in enumerate(tokens):
        same[tuple(question)].append(number)
    near = NearIndex(settings.near_duplicate) if settings.near_duplicate is not None else None
    if near is not None:
        for _, problem in held_out:
            near.add(problem.problem)

    runs = [_runs(words(problem.problem), settings.ngram) for problem in train]
    frequency = Counter(run for own in runs for run in own)
    totals: dict[int, int] = {}
    holders: dict[str, list[int]] = defaultdict(list)
    for number, question in enumerate(tokens):
        telling = [run for run in _runs(question, settings.ngram) if frequency[run] <= settings.common]
        totals[number] = len(telling)
        for run in telling:
            holders[run].append(number)

    found = []
    for problem, own in zip(train, runs, strict=True):
        shared = Counter(number for run in own for number in holders.get(run, ()))
        # A stricter kind overwrites a weaker one.
        kinds: dict[int, tuple[Literal["text", "near_duplicate", "ngram"], float]] = {
            number: ("ngram", count / totals[number])
            for number, count in shared.items()
            if count >= settings.overlap * totals[number]
        }
        if near is not None:
            kinds |= {number: ("near_duplicate", score) for number, score in near.query(problem.problem)}
        kinds |= {number: ("text", 1.0) for number in same.get(tuple(words(problem.problem)), ())}
        for number in sorted(kinds):
            name, other = held_out[number]
            found.append(Overlap(problem.id, name, other.id, *kinds[number]))
    return found


def _runs(tokens: Sequence[str], size: int) -> set[str]:
    return ngrams(tokens, size) if len(tokens) > size else set()
