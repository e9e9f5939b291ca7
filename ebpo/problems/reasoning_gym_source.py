"""Problems from reasoning-gym's generators, in the wording that the library gives."""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import reasoning_gym
from reasoning_gym.factory import DATASETS

from ebpo.problems.record import Problem, normalise, problem_id

if TYPE_CHECKING:
    from ebpo.config import Cell

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
