"""Topics of the demo's problems and of OlympiadBench against the known ones; docs/clustering.md has the table."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import reasoning_gym

from ebpo.clustering import topics
from ebpo.clustering.embedding import embed, load_embedder
from ebpo.clustering.quality import adjusted_rand, matched_accuracy
from ebpo.clustering.topics import Clustering, cluster
from ebpo.config import Topics, read_config
from ebpo.problems.build import build
from ebpo.problems.record import Problem

OLYMPIAD = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "olympiadbench_odd.jsonl"

# Which of the nine domains holds which of OlympiadBench's four subfields; the paper's first domain holds two of them.
GROUPS = {"Algebra": "algebra", "Number Theory": "algebra", "Geometry": "geometry", "Combinatorics": "discrete"}
DOMAINS = {
    "algebra_number_theory": "algebra",
    "calculus_analysis": "algebra",
    "linear_algebra": "algebra",
    "advanced_mathematics": "algebra",
    "geometry_trigonometry": "geometry",
    "discrete_mathematics": "discrete",
    "probability_statistics": "discrete",
}


def problem(identifier: str, text: str, topic: str) -> Problem:
    return Problem(identifier, text, "", "test", topic, float("nan"))


def test_given_topics_are_those_of_the_source():
    found = cluster([problem("p", "text", "algebra")], Topics(method="given"))
    assert found.topics == ["algebra"]
    assert np.isnan(found.margins).all()


def test_given_without_a_topic_is_refused():
    with pytest.raises(ValueError, match="1 problems have no topic, such as q"):
        cluster([problem("p", "text", "algebra"), problem("q", "text", "")], Topics(method="given"))


def test_the_known_topics_change_no_clustering_but_the_given_one():
    texts = ["Simplify 3/9", "Simplify 2/8", "Is 1996 a leap year?", "Is 2001 a leap year?", "Solve x + 3 = 5"]
    settings = Topics(method="kmeans", clusters=2)
    named = [problem(str(i), text, f"topic{i}") for i, text in enumerate(texts)]
    unnamed = [problem(str(i), text, "") for i, text in enumerate(texts)]
    assert cluster(named, settings).topics == cluster(unnamed, settings).topics


def test_the_nearest_description_is_the_topic():
    problems = [
        problem("a", "In triangle ABC the angle at A is 30 degrees. Find the area.", ""),
        problem("b", "What is the probability that two dice show the same number?", ""),
        problem("c", "Evaluate the integral of x^2 from 0 to 1.", ""),
    ]
    assert cluster(problems, Topics()).topics == [
        "geometry_trigonometry",
        "probability_statistics",
        "calculus_analysis",
    ]


@pytest.mark.slow
def test_kmeans_finds_the_demos_generators(repository):
    config = read_config(repository / "config" / "config.yaml")
    problems = build(config.data.model_copy(update={"train": 1600})).train
    found = cluster(problems, config.topics)
    assert config.topics.method == "kmeans"
    assert adjusted_rand([p.source for p in problems], found.topics) >= 0.95


@pytest.mark.slow
def test_kmeans_finds_generators_that_its_settings_were_not_chosen_on():
    generators = [
        "products", "prime_factorization", "count_bits", "power_function",
        "time_intervals", "bitwise_arithmetic", "base_conversion", "decimal_chain_sum",
    ]  # fmt: skip
    made = {name: reasoning_gym.create_dataset(name, size=50, seed=1) for name in generators}
    problems = [problem(f"{name}-{i}", row["question"], name) for name in made for i, row in enumerate(made[name])]
    found = cluster(problems, Topics(method="kmeans"))
    assert adjusted_rand([p.topic for p in problems], found.topics) >= 0.95


@pytest.fixture(scope="module")
def olympiad() -> list[Problem]:
    if not OLYMPIAD.exists():
        pytest.skip(f"{OLYMPIAD} is not there")
    rows = [json.loads(line) for line in OLYMPIAD.read_text(encoding="utf-8").splitlines()]
    # Every second one: enough to tell the methods apart. docs/clustering.md has the numbers of all.
    return [problem(row["id"], row["problem"], row["subfield"]) for row in rows[::2]]


@pytest.fixture
def embedded_once(monkeypatch):
    """Both methods read the same embeddings, which take most of the time."""
    embedder = load_embedder(Topics().embedding)
    cached = functools.cache(lambda texts: embed(texts, embedder))
    monkeypatch.setattr(topics, "embed", lambda texts, _: cached(tuple(texts)))


def report(name: str, problems: list[Problem], found: Clustering) -> tuple[float, float]:
    """Accuracy and adjusted Rand index with the four subfields; printed."""
    known = [p.topic for p in problems]
    accuracy, index = matched_accuracy(known, found.topics), adjusted_rand(known, found.topics)
    print(f"{name}: accuracy {accuracy:.3f}, adjusted Rand {index:.3f}")
    return accuracy, index


@pytest.mark.slow
@pytest.mark.usefixtures("embedded_once")
def test_the_default_method_is_the_best_without_labels_on_olympiadbench(olympiad):
    nine = cluster(olympiad, Topics())
    _, zero_shot = report("zero_shot, nine domains", olympiad, nine)
    groups = [GROUPS[p.topic] for p in olympiad]
    mapped = [DOMAINS.get(topic, "none") for topic in nine.topics]
    right = float(np.mean([a == b for a, b in zip(groups, mapped, strict=True)]))
    print(f"zero_shot, nine domains as three groups: accuracy {right:.3f}")
    assert right >= 0.78

    chosen = cluster(olympiad, Topics(method="kmeans"))
    _, kmeans = report("kmeans, k by silhouette", olympiad, chosen)
    assert zero_shot > kmeans
    assert adjusted_rand(groups, nine.topics) > adjusted_rand(groups, chosen.topics)
    assert right > matched_accuracy(groups, chosen.topics)

    assert report("given", olympiad, cluster(olympiad, Topics(method="given"))) == (1.0, 1.0)
