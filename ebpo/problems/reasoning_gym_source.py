"""Problem sets from reasoning-gym's generators, in the wording that the library gives."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Iterable, Iterator, Sequence

import reasoning_gym
from reasoning_gym.factory import DATASETS

from ebpo.config import Cell, GeneratedData
from ebpo.problems.record import Problem, problem_id
from ebpo.problems.shares import Share, share_of
from ebpo.problems.sources import SourceSets
from ebpo.problems.text import normalise

log = logging.getLogger(__name__)

# A cell counts as exhausted after this many draws in a row gave no new question. The smallest cell of the
# demo has 63 questions; missing a given one in 2,000 draws has probability (62/63)^2000 < 1e-13.
_EXHAUSTED_AFTER = 2_000
_BLOCK = 1_000


def cell_seed(seed: int, cell: str) -> int:
    """Seed of a cell's generator: a function of the data seed and the cell's name, not of its position."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{cell}".encode()).digest()[:4], "big") % 2**31


def draw(cell: Cell, seed: int) -> Iterator[Problem]:
    """Endless stream of a cell's problems, repeats included.

    Raises:
        ValueError: the generator does not exist, or refuses the cell's options.
    """
    if cell.generator not in DATASETS:
        raise ValueError(f"data.cells: cell {cell.id!r} names generator {cell.generator!r}, unknown to reasoning-gym")
    source = f"reasoning_gym/{cell.generator}"
    block = 0
    while True:
        # The generators are deterministic in (seed, index); a new block is a new seed.
        try:
            dataset = reasoning_gym.create_dataset(
                cell.generator, seed=cell_seed(seed + block, cell.id), size=_BLOCK, **cell.options
            )
        except (TypeError, AssertionError) as error:
            allowed = [
                p for p in inspect.signature(DATASETS[cell.generator][1]).parameters if p not in ("seed", "size")
            ]
            raise ValueError(
                f"data.cells: reasoning-gym refuses the options {cell.options} of cell {cell.id!r} "
                f"({error}); {cell.generator} knows {allowed}"
            ) from error
        for index in range(_BLOCK):
            item = dataset[index]
            text = str(item["question"])
            yield Problem(
                id=problem_id(cell.id, text),
                problem=text,
                answer=str(item["answer"]),
                source=source,
                topic=cell.topic,
                difficulty=float(cell.difficulty),
            )
        block += 1


def distinct(cell: Cell, seed: int) -> Iterator[Problem]:
    """A cell's problems, each question once; ends when the generator gives no new question any more."""
    seen: set[str] = set()
    misses = 0
    for problem in draw(cell, seed):
        key = normalise(problem.problem)
        if key in seen:
            misses += 1
            if misses >= _EXHAUSTED_AFTER:
                log.debug("cell %s: exhausted after %d distinct questions", cell.id, len(seen))
                return
            continue
        misses = 0
        seen.add(key)
        yield problem


def read(data: GeneratedData) -> SourceSets:
    """Generated sets, disjoint by construction. Cells contribute equally until they run out of distinct questions.

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
    return SourceSets(train, validation, benchmarks, packages=("reasoning-gym",))


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
    def stream(cell: Cell) -> Iterator[Problem]:
        return (p for p in distinct(cell, data.seed) if share_of(p.problem, data.held_out) == share)

    return [stream(cell) for cell in cells]


def _require(problems: Sequence[Problem], wanted: int, key: str) -> None:
    if len(problems) < wanted:
        raise ValueError(f"{key}: {wanted} asked for, but its cells have only {len(problems)} distinct questions")
