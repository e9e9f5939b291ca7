"""Orders: the sequence in which an epoch visits the training problems, and which problems it leaves out."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ebpo.config import Curriculum, Order
from ebpo.config.clustering import DIFFICULTY_ORDERS, TOPIC_ORDERS
from ebpo.seeds import derive_seed

T = TypeVar("T")


def epoch_order(
    ids: Sequence[str],
    order: Order,
    seed: int,
    epoch: int,
    topics: Mapping[str, str] | None = None,
    pass_rates: Mapping[str, float] | None = None,
    *,
    interleave_block: int = Curriculum().interleave_block,
) -> list[str]:
    """The ids of one epoch, each once: a pure function of its arguments, whatever the order of `ids`.

    `shuffle`: at random. `topic`: topic after topic, the topics' order and the order inside each at random.
    `difficulty`: from the highest pass rate to the lowest, ties at random. `topic_difficulty`: topic after topic as in
    `topic`, inside each from the highest pass rate to the lowest. `interleaved`: `interleave_block` prompts of each
    topic in turn, the topics' order and the order inside each at random; a topic that has run out is passed over.

    Raises:
        ValueError: an id lacks the topic or pass rate that the order needs.
    """
    known_topics = _complete("topic", ids, topics) if order in TOPIC_ORDERS else {}
    rates = _complete("pass rate", ids, pass_rates) if order in DIFFICULTY_ORDERS else {}
    rng = random.Random(derive_seed("order", seed, epoch))
    # Sorted first: the result must not depend on the table's row order.
    arranged = sorted(ids)
    rng.shuffle(arranged)
    if order in DIFFICULTY_ORDERS:
        arranged.sort(key=lambda i: -rates[i])
    if order not in TOPIC_ORDERS:
        return arranged
    names = sorted({known_topics[i] for i in ids})
    rng.shuffle(names)
    rank = {name: position for position, name in enumerate(names)}
    if order == "interleaved":
        return _interleaved(arranged, [rank[known_topics[i]] for i in arranged], interleave_block)
    return sorted(arranged, key=lambda i: rank[known_topics[i]])


def _interleaved(ids: Sequence[str], ranks: Sequence[int], block: int) -> list[str]:
    """Sorted by round, then topic: a topic's first `block` ids belong to round 0, the next ones to round 1."""
    seen: defaultdict[int, int] = defaultdict(int)
    keys = []
    for rank in ranks:
        keys.append((seen[rank] // block, rank))
        seen[rank] += 1
    return [ids[i] for i in sorted(range(len(ids)), key=keys.__getitem__)]


@dataclass(frozen=True)
class Selection:
    """Which problems are trained on.

    Attributes:
        kept: ids, in the order in which they came.
        dropped_all_fail, dropped_all_pass: how many were left out as never, or always, solved by the base policy.
    """

    kept: list[str]
    dropped_all_fail: int
    dropped_all_pass: int


def select(ids: Sequence[str], pass_rates: Mapping[str, float] | None, curriculum: Curriculum) -> Selection:
    """Leaves out the problems that `curriculum` drops.

    Args:
        pass_rates: id -> raw pass rate in [0, 1]; may be None where nothing is dropped.

    Raises:
        ValueError: an id lacks a pass rate, or no problem is left.
    """
    if not curriculum.drops:
        return Selection(list(ids), 0, 0)
    rates = _complete("pass rate", ids, pass_rates)
    failed = {i for i in ids if curriculum.drop_all_fail and rates[i] == 0.0}
    passed = {i for i in ids if curriculum.drop_all_pass and rates[i] == 1.0}
    kept = [i for i in ids if i not in failed and i not in passed]
    if not kept:
        raise ValueError(f"curriculum: drop_all_fail and drop_all_pass leave none of {len(ids)} training problems")
    return Selection(kept, len(failed), len(passed))


def _complete(what: str, ids: Sequence[str], values: Mapping[str, T] | None) -> Mapping[str, T]:
    missing = [i for i in ids if values is None or i not in values]
    if values is None or missing:
        raise ValueError(f"{len(missing)} training problems have no {what}, the first is {missing[0]}")
    return values
