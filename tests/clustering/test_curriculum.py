"""Orders are permutations, pure functions of (clusters, seed, epoch), and have the shape that their names promise."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpo.clustering.curriculum import epoch_order, select
from ebpo.config import Curriculum, Order
from ebpo.training.stream import PromptStream

ORDERS = get_args(Order)
IDS = [f"p{i}" for i in range(40)]
TOPICS = {i: "abcd"[n % 4] for n, i in enumerate(IDS)}
RATES = {i: (n % 5) / 4 for n, i in enumerate(IDS)}

# id -> (topic, pass rate)
clusters = st.dictionaries(
    st.text("abcdef0123", min_size=1, max_size=4),
    st.tuples(st.sampled_from("xyz"), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
    min_size=1,
    max_size=60,
)
seeds = st.integers(0, 2**31 - 1)


def arranged(known, order, seed=0, epoch=0, ids=None, block=8):
    topics, rates = ({i: pair[k] for i, pair in known.items()} for k in (0, 1))
    return epoch_order(ids or list(known), order, seed, epoch, topics, rates, interleave_block=block)


def runs(known, ids) -> list[tuple[str, list[str]]]:
    """Topics as they come, each with the ids that stand together."""
    return [(topic, list(group)) for topic, group in itertools.groupby(ids, key=lambda i: known[i][0])]


@pytest.mark.parametrize("order", ORDERS)
@given(known=clusters, seed=seeds, epoch=st.integers(0, 5), shuffled=st.randoms())
def test_an_epoch_visits_every_problem_once_whatever_the_order_of_the_table(order, known, seed, epoch, shuffled):
    first = arranged(known, order, seed, epoch)
    assert sorted(first) == sorted(known)
    ids = list(known)
    shuffled.shuffle(ids)
    assert arranged(known, order, seed, epoch, ids) == first


@pytest.mark.parametrize("order", ORDERS)
def test_seed_and_epoch_change_an_order(order):
    first = epoch_order(IDS, order, 3, 1, TOPICS, RATES)
    assert first != epoch_order(IDS, order, 3, 2, TOPICS, RATES)
    assert first != epoch_order(IDS, order, 4, 1, TOPICS, RATES)


@pytest.mark.parametrize("order", ["topic", "topic_difficulty"])
@given(known=clusters, seed=seeds)
def test_topics_come_one_after_another(order, known, seed):
    topics = [topic for topic, _ in runs(known, arranged(known, order, seed))]
    assert len(topics) == len(set(topics))


def test_the_order_of_topics_depends_on_the_seed():
    firsts = {TOPICS[epoch_order(IDS, "topic", seed, 0, TOPICS)[0]] for seed in range(20)}
    assert firsts == set("abcd")


@given(known=clusters, seed=seeds)
def test_difficulty_goes_from_easy_to_hard(known, seed):
    rates = [known[i][1] for i in arranged(known, "difficulty", seed)]
    assert rates == sorted(rates, reverse=True)


@given(known=clusters, seed=seeds)
def test_inside_topics_it_goes_from_easy_to_hard(known, seed):
    for _, ids in runs(known, arranged(known, "topic_difficulty", seed)):
        rates = [known[i][1] for i in ids]
        assert rates == sorted(rates, reverse=True)


@given(known=clusters, seed=seeds, block=st.integers(1, 7))
def test_interleaved_topics_take_turns_in_blocks_until_they_run_out(known, seed, block):
    order = arranged(known, "interleaved", seed, block=block)
    left = {topic: sum(pair[0] == topic for pair in known.values()) for topic in {pair[0] for pair in known.values()}}
    turn: list[str] = []
    while order:
        if not turn:
            turn = sorted(topic for topic, count in left.items() if count)
        topic = known[order[0]][0]
        size = min(block, left[topic])
        assert topic in turn  # nobody has a second block before all the others have had theirs
        assert {known[i][0] for i in order[:size]} == {topic}
        turn.remove(topic)
        left[topic] -= size
        order = order[size:]


def test_interleaved_by_hand():
    topics = {"a1": "a", "a2": "a", "a3": "a", "b1": "b"}
    order = [topics[i] for i in epoch_order(list(topics), "interleaved", 0, 0, topics, interleave_block=2)]
    assert order in (["a", "a", "b", "a"], ["b", "a", "a", "a"])


@pytest.mark.parametrize("order", ORDERS)
@given(known=clusters, seed=seeds, before=st.integers(0, 150), after=st.integers(1, 50))
def test_a_stream_of_any_order_resumes_exactly(order, known, seed, before, after):
    straight = PromptStream(lambda epoch: arranged(known, order, seed, epoch))
    straight.take(before)
    resumed = PromptStream(lambda epoch: arranged(known, order, seed, epoch))
    resumed.load_state_dict(straight.state_dict())
    assert resumed.take(after) == straight.take(after)


@pytest.mark.parametrize(
    ("order", "topics", "rates", "expected"),
    [
        ("topic", {i: t for i, t in TOPICS.items() if i != "p0"}, RATES, "1 training problems have no topic.*p0"),
        ("interleaved", None, RATES, "40 training problems have no topic"),
        ("topic_difficulty", TOPICS, None, "40 training problems have no pass rate"),
        ("difficulty", TOPICS, {"p1": 0.0}, "39 training problems have no pass rate.*p0"),
    ],
)
def test_a_problem_without_what_the_order_needs_is_named(order, topics, rates, expected):
    with pytest.raises(ValueError, match=expected):
        epoch_order(IDS, order, 0, 0, topics, rates)


def test_all_problems_are_kept_by_default_and_need_no_pass_rates():
    chosen = select(IDS, None, Curriculum())
    assert (chosen.kept, chosen.dropped_all_fail, chosen.dropped_all_pass) == (IDS, 0, 0)


@pytest.mark.parametrize(
    ("options", "kept", "counts"),
    [
        ({"drop_all_fail": True}, ["b", "c"], (2, 0)),
        ({"drop_all_pass": True}, ["a", "b", "d"], (0, 1)),
        ({"drop_all_fail": True, "drop_all_pass": True}, ["b"], (2, 1)),
    ],
)
def test_saturated_problems_are_dropped_and_counted(options, kept, counts):
    chosen = select(["a", "b", "c", "d"], {"a": 0.0, "b": 0.0625, "c": 1.0, "d": 0.0}, Curriculum(**options))
    assert chosen.kept == kept
    assert (chosen.dropped_all_fail, chosen.dropped_all_pass) == counts


def test_dropping_every_problem_is_refused():
    with pytest.raises(ValueError, match="leave none of 2 training problems"):
        select(["a", "b"], {"a": 0.0, "b": 0.0}, Curriculum(drop_all_fail=True))


def test_the_block_size_belongs_to_the_interleaved_runs_alone():
    changed = Curriculum(interleave_block=3)
    assert changed.relevant_to("topic") == Curriculum()
    assert changed.relevant_to("interleaved") == changed
