"""Figures of the clusters are drawn from the clusters' files, the same bytes each time."""

from __future__ import annotations

import pandas as pd
import pytest

from ebpo.reporting.cluster_figures import draw_difficulty, draw_topics
from ebpo.reporting.json_files import read_object

CONFUSION = pd.DataFrame(
    {"topic": ["algebra", "algebra"], "source": ["gym/sums", "gym/products"], "sum_add": [9, 0], "multiply": [1, 5]}
)
QUALITY = {
    "method": "kmeans",
    "clusters": 2,
    "silhouettes": {"2": 0.5, "3": 0.4},
    "adjusted_rand": 0.0,
    "adjusted_rand_of_sources": 0.75,
}
RATES = pd.DataFrame({"pass_rate": [0.0, 0.25, 1.0], "smoothed": [0.1, 0.3, 0.9]})
SUMMARY = {
    "rollouts": 4,
    "all_fail": 1,
    "all_pass": 1,
    "prior": {"a": 0.5, "b": 1.5},
    "buckets": [{"smoothed": [0.9, 0.9]}, {"smoothed": [0.1, 0.3]}],
}


def test_topics_show_counts_agreement_and_the_choice_of_k(tmp_path):
    draw_topics(CONFUSION, QUALITY, tmp_path / "topics")
    text = (tmp_path / "topics.svg").read_text()
    for part in ("algebra: products", "sum add", "with topics 0.00", "with sources 0.75", "k = 2", "mean silhouette"):
        assert part in text
    first = (tmp_path / "topics.png").read_bytes()
    draw_topics(CONFUSION, QUALITY, tmp_path / "topics")
    assert (tmp_path / "topics.png").read_bytes() == first


def test_topics_of_a_source_that_names_none(tmp_path):
    unknown = CONFUSION.assign(topic="(unknown)")
    nothing = {**QUALITY, "silhouettes": {}, "adjusted_rand": None, "adjusted_rand_of_sources": None}
    draw_topics(unknown, nothing | {"method": "zero_shot"}, tmp_path / "topics")
    text = (tmp_path / "topics.svg").read_text()
    assert "Nearest description: 2 topics" in text
    assert "unknown" not in text
    assert "Rand" not in text


def test_difficulty_has_a_panel_for_each_model(tmp_path):
    draw_difficulty({"small": RATES, "large": RATES}, {"small": SUMMARY, "large": SUMMARY}, tmp_path / "difficulty")
    text = (tmp_path / "difficulty.svg").read_text()
    for part in ("small: 4 rollouts", "large: 4 rollouts", "prior Beta(0.50, 1.50)", "smoothed", "buckets"):
        assert part in text
    assert (tmp_path / "difficulty.png").stat().st_size > 0


def test_a_file_that_is_no_json_object_is_named(tmp_path):
    for text in ("[1]", "{"):
        (tmp_path / "topics.json").write_text(text)
        with pytest.raises(ValueError, match=r"topics.json"):
            read_object(tmp_path / "topics.json")
