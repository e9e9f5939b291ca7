from __future__ import annotations

from collections import Counter

import pytest

from ebpo.clustering.curriculum import epoch_order
from ebpo.training.stream import PromptStream

IDS = [f"p{i}" for i in range(10)]


def stream(seed: int = 0) -> PromptStream:
    return PromptStream(lambda epoch: epoch_order(IDS, "shuffle", seed, epoch))


def test_every_prompt_comes_once_an_epoch():
    one = stream()
    taken = [i for _ in range(10) for i in one.take(3)]
    for epoch in range(3):
        assert Counter(taken[10 * epoch : 10 * epoch + 10]) == Counter(IDS)


def test_a_resumed_stream_goes_on_where_it_was():
    straight, first = stream(), stream()
    expected = straight.take(27)
    taken = first.take(13)
    second = stream()
    second.load_state_dict(first.state_dict())
    assert taken + second.take(14) == expected


def test_a_stream_saved_at_the_end_of_an_epoch_starts_the_next():
    first, second = stream(), stream()
    first.take(10)
    second.load_state_dict(first.state_dict())
    assert second.take(3) == epoch_order(IDS, "shuffle", 0, 1)[:3]


def test_an_empty_stream_is_refused():
    with pytest.raises(ValueError, match="empty"):
        PromptStream(lambda epoch: []).take(1)


def test_an_epochs_order_is_computed_once():
    asked = []

    def order(epoch: int) -> list[str]:
        asked.append(epoch)
        return IDS

    one = PromptStream(order)
    for _ in range(8):
        one.take(3)
    assert asked == [0, 1, 2]
