"""Orders: the sequence in which an epoch visits the training problems."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from ebpo.config import Order
from ebpo.seeds import derive_seed

T = TypeVar("T")


def epoch_order(
    ids: Sequence[str],
    order: Order,
    seed: int,
    epoch: int,
    topics: Mapping[str, str] | None = None,
    pass_rates: Mapping[str, float] | None = None,
) -> list[str]:
    """The ids of one epoch, each once: a pure function of its arguments.

    `shuffle`: at random. `topic`: topic after topic, the topics' order and the order inside each at random.
    `difficulty`: from the highest pass rate to the lowest, ties at random.

    Raises:
        ValueError: an id lacks the topic or pass rate that the order needs.
    """
    rng = random.Random(derive_seed("order", seed, epoch))
    # Sorted first: the result must not depend on the table's row order.
    shuffled = sorted(ids)
    rng.shuffle(shuffled)
    if order == "shuffle":
        return shuffled
    if order == "topic":
        known = _complete("topic", ids, topics)
        names = sorted(set(known[i] for i in ids))
        rng.shuffle(names)
        rank = {name: position for position, name in enumerate(names)}
        return sorted(shuffled, key=lambda i: rank[known[i]])
    rates = _complete("pass rate", ids, pass_rates)
    return sorted(shuffled, key=lambda i: -rates[i])


def _complete(what: str, ids: Sequence[str], values: Mapping[str, T] | None) -> Mapping[str, T]:
    missing = [i for i in ids if values is None or i not in values]
    if values is None or missing:
        raise ValueError(f"{len(missing)} training problems have no {what}, the first is {missing[0]}")
    return values
