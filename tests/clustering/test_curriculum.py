from __future__ import annotations

import itertools

import pytest

from ebpo.clustering.curriculum import epoch_order

IDS = [f"p{i}" for i in range(40)]
TOPICS = {i: "abcd"[n % 4] for n, i in enumerate(IDS)}
RATES = {i: (n % 5) / 4 for n, i in enumerate(IDS)}


@pytest.mark.parametrize("order", ["shuffle", "topic", "difficulty"])
def test_an_order_is_a_permutation_and_a_function_of_seed_and_epoch(order):
    first = epoch_order(IDS, order, 3, 1, TOPICS, RATES)
    assert sorted(first) == sorted(IDS)
    assert first == epoch_order(list(reversed(IDS)), order, 3, 1, TOPICS, RATES)
    assert first != epoch_order(IDS, order, 3, 2, TOPICS, RATES)
    assert first != epoch_order(IDS, order, 4, 1, TOPICS, RATES)


def test_topics_come_one_after_another():
    order = epoch_order(IDS, "topic", 0, 0, TOPICS)
    assert len([name for name, _ in itertools.groupby(order, key=TOPICS.__getitem__)]) == 4


def test_difficulty_goes_from_easy_to_hard():
    rates = [RATES[i] for i in epoch_order(IDS, "difficulty", 0, 0, pass_rates=RATES)]
    assert rates == sorted(rates, reverse=True)


def test_a_problem_without_a_topic_is_named():
    with pytest.raises(ValueError, match="1 training problems have no topic, the first is p0"):
        epoch_order(IDS, "topic", 0, 0, {i: t for i, t in TOPICS.items() if i != "p0"})
