"""Wrong settings of the clusters are refused with one line; a single description may stand without a list."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ebpo.config import Difficulty, Topics
from ebpo.config.clustering import NINE_DOMAINS


def test_the_default_is_the_papers_nine_labels_without_training():
    settings = Topics()
    assert settings.method == "zero_shot"
    assert settings.descriptions == NINE_DOMAINS
    assert len(NINE_DOMAINS) == 9


def test_one_description_is_a_list_of_one():
    assert Topics(descriptions={"a": "one", "b": ["two", "three"]}).descriptions == {
        "a": ["one"],
        "b": ["two", "three"],
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"descriptions": {"a": "one"}}, "at least two topics"),
        ({"descriptions": {"a": "one", "b": []}}, "descriptions.b"),
        ({"descriptions": {"a": "one", "not a name": "two"}}, "descriptions"),
        ({"method": "llm"}, "needs a model"),
        ({"clusters": "many"}, "clusters"),
        ({"clusters_range": (1, 4)}, "clusters_range"),
        ({"clusters_range": (5, 4)}, "clusters_range"),
    ],
    ids=str,
)
def test_wrong_topics_are_refused(options, expected):
    with pytest.raises(ValidationError, match=expected):
        Topics(**options)


@pytest.mark.parametrize("options", [{"shards": 0}, {"buckets": 0}, {"rollouts": 0}], ids=str)
def test_wrong_difficulty_is_refused(options):
    with pytest.raises(ValidationError):
        Difficulty(**options)
