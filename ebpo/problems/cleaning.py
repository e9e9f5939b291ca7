"""The stages that make a problem set fit for use; each returns what is kept, in order, and what is removed and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from datasketch import MinHash, MinHashLSH

from ebpo.grading import grade
from ebpo.problems.record import Problem
from ebpo.problems.text import ngrams, normalise, numbers, words

_PERMUTATIONS = 128
_SEED = 1
# Candidates are looked for from this share of the wanted similarity on and then compared exactly, so that a pair at the
# wanted similarity is missed with a probability below 1e-3.
_CANDIDATES = 0.75


class Removed(NamedTuple):
    """A problem that left its set.

    Attributes:
        stage: which stage removed it.
        reason: why, naming the problem that it collides with.
    """

    problem: Problem
    stage: str
    reason: str


class Result(NamedTuple):
    """What a stage did."""

    kept: list[Problem]
    removed: list[Removed]


def drop_repeats(problems: Sequence[Problem]) -> Result:
    """Keeps the first of the problems with equal normalised questions.

    If their golds differ, none can be trusted and all of them go.
    """
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(normalise(problem.problem), []).append(problem)
    kept, removed = [], []
    for first, *others in groups.values():
        other = next((p for p in others if not _same_gold(first, p)), None)
        if other is not None:
            reason = f"the same question has golds {first.answer!r} and {other.answer!r}"
            removed += [Removed(p, "conflicting_gold", reason) for p in (first, *others)]
        else:
            kept.append(first)
            removed += [Removed(p, "exact_duplicate", f"same question as {first.id}") for p in others]
    return Result(kept, removed)


def _same_gold(one: Problem, other: Problem) -> bool:
    if (one.answer, one.required_answers) == (other.answer, other.required_answers):
        return True
    item = one.grade_item(f"\\boxed{{{other.answer}}}")
    return grade(**item._asdict()).verdict == "correct"


def drop_ungradable(problems: Sequence[Problem]) -> Result:
    """Keeps the problems whose gold the grader accepts as the answer to itself."""
    kept, removed = [], []
    for problem in problems:
        verdict = problem.check_gold()
        if verdict.verdict == "correct":
            kept.append(problem)
        else:
            reason = f"gold {problem.answer[:80]!r} cannot be graded against itself ({verdict.reason})"
            removed.append(Removed(problem, "ungradable_gold", reason))
    return Result(kept, removed)


def drop_near_duplicates(problems: Sequence[Problem], similarity: float) -> Result:
    """Keeps the first of near-duplicates: equal numbers, equal golds, and questions of at least this similarity.

    Numbers and golds are content: two questions of one template are two questions.
    """
    index = NearIndex(similarity)
    kept: list[Problem] = []
    removed = []
    for problem in problems:
        gold = normalise(problem.answer)
        found = [(i, score) for i, score in index.query(problem.problem) if normalise(kept[i].answer) == gold]
        if found:
            first, score = found[0]
            removed.append(Removed(problem, "near_duplicate", f"similarity {score:.2f} to {kept[first].id}"))
        else:
            index.add(problem.problem)
            kept.append(problem)
    return Result(kept, removed)


class NearIndex:
    """Questions by number, searched for those of a like wording with the same numbers.

    MinHash with locality-sensitive hashing (datasketch) proposes, exact comparison decides.

    Args:
        similarity: Jaccard similarity of the sets of pairs of adjacent words, in (0, 1].
    """

    def __init__(self, similarity: float) -> None:
        self._similarity = similarity
        self._empty = MinHash(num_perm=_PERMUTATIONS, seed=_SEED)
        self._lsh = MinHashLSH(threshold=_CANDIDATES * similarity, num_perm=_PERMUTATIONS, weights=(0.2, 0.8))
        self._entries: list[tuple[set[str], tuple[str, ...]]] = []

    def add(self, question: str) -> None:
        """Adds a question, whose number is how many were added before."""
        tokens = words(question)
        pairs = ngrams(tokens, 2)
        self._lsh.insert(len(self._entries), self._signature(pairs))
        self._entries.append((pairs, numbers(tokens)))

    def query(self, question: str) -> list[tuple[int, float]]:
        """Number and similarity of the questions that are near, in the order in which they were added."""
        tokens = words(question)
        return sorted(self._near(ngrams(tokens, 2), numbers(tokens)))

    def _near(self, pairs: set[str], figures: tuple[str, ...]) -> Iterator[tuple[int, float]]:
        for number in self._lsh.query(self._signature(pairs)):
            other, other_figures = self._entries[number]
            if figures == other_figures:
                score = len(pairs & other) / len(pairs | other)
                if score >= self._similarity:
                    yield number, score

    def _signature(self, pairs: set[str]) -> MinHash:
        signature = self._empty.copy()
        signature.update_batch([pair.encode() for pair in pairs])
        return signature
