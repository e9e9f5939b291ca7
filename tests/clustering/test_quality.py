"""Agreement with known labels, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ebpo.clustering.quality import UNKNOWN, adjusted_rand, confusion, matched_accuracy, quality
from ebpo.clustering.topics import Clustering
from ebpo.config import Topics
from ebpo.problems.record import Problem


def problems(topics: list[str], sources: list[str] | None = None) -> list[Problem]:
    sources = sources or ["s"] * len(topics)
    return [
        Problem(str(i), "text", "", source, topic, float("nan"))
        for i, (topic, source) in enumerate(zip(topics, sources, strict=True))
    ]


def test_adjusted_rand_by_hand():
    # Pairs together in both 1, in the rows 1 + 1, in the columns 3, of 6: (1 - 1) / ((2 + 3) / 2 - 1) = 0.
    assert adjusted_rand(["a", "a", "b", "b"], ["x", "x", "x", "y"]) == pytest.approx(0.0)
    assert adjusted_rand(["a", "a", "b", "b"], ["y", "y", "x", "x"]) == 1


def test_a_topic_serves_one_known_label_and_the_matching_is_the_best_one():
    # Greedy would give x to a (3) and leave y to b (0); the best is x to b (2) and y to a (2).
    known, found = ["a"] * 5 + ["b"] * 2, ["x"] * 3 + ["y"] * 2 + ["x"] * 2
    assert matched_accuracy(known, found) == pytest.approx(4 / 7)


def test_problems_of_a_topic_to_spare_are_wrong():
    assert matched_accuracy(["a", "a", "a", "b"], ["x", "x", "z", "y"]) == pytest.approx(3 / 4)


def test_confusion_counts_topics_by_what_was_known():
    table = confusion(problems(["b", "a", "a", "b"], ["s", "s", "t", "s"]), ["x", "y", "y", "y"])
    assert list(table.columns) == ["y", "x"]  # most of y is in row a, x in row b
    assert table.loc[("b", "s")].to_dict() == {"y": 1, "x": 1}
    assert table.loc[("a", "t")].to_dict() == {"y": 1, "x": 0}


def test_a_source_without_topics_has_one_row_and_no_agreement():
    given = problems(["", "", ""])
    found = Clustering(["x", "x", "y"], np.zeros(3))
    assert list(confusion(given, found.topics).index) == [(UNKNOWN, "s")]
    report = quality(given, found, Topics())
    assert (report["adjusted_rand"], report["accuracy"], report["adjusted_rand_of_sources"]) == (None, None, None)
    assert report["sizes"] == {"x": 2, "y": 1}


def test_the_report_compares_with_topics_and_with_sources():
    given = problems(["a", "a", "a", "b"], ["s", "s", "t", "u"])
    report = quality(given, Clustering(["x", "x", "z", "y"], np.zeros(4), {2: 0.25}), Topics(method="kmeans"))
    assert report["adjusted_rand_of_sources"] == report["accuracy_of_sources"] == 1
    assert report["accuracy"] == 0.75
    assert report["silhouettes"] == {"2": 0.25}
