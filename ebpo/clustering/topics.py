"""Topic clustering: one topic per problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch

from ebpo.clustering.embedding import embed, load_embedder
from ebpo.clustering.kmeans import choose, kmeans, silhouettes
from ebpo.clustering.llm_labels import label_scores, load_labeller
from ebpo.clustering.naming import cluster_names
from ebpo.clustering.zero_shot import nearest, topic_vectors
from ebpo.config import Topics
from ebpo.problems.record import Problem


@dataclass(frozen=True)
class Clustering:
    """Topics of problems, in the problems' order.

    Attributes:
        topics: one name per problem.
        margins: by how much the topic beat the second best: cosine similarity (zero_shot), nats (llm), Euclidean
            distance (kmeans); NaN (given).
        silhouettes: number of clusters -> silhouette, where k-means chose among several.
    """

    topics: list[str]
    margins: np.ndarray
    silhouettes: dict[int, float] = field(default_factory=dict)

    def table(self, problems: Sequence[Problem]) -> pd.DataFrame:
        """Columns id, topic, margin."""
        return pd.DataFrame({"id": [p.id for p in problems], "topic": self.topics, "margin": self.margins})


def cluster(problems: Sequence[Problem], settings: Topics, threads: int = 1) -> Clustering:
    """Gives every problem one topic by `settings.method`. The topics that the source names are read by `given` alone.

    Args:
        threads: of PyTorch, which embeds or labels.

    Raises:
        ValueError: a model cannot be had, there are too few problems, or `given` finds a problem without a topic.
    """
    if settings.method == "given":
        return _given(problems)
    torch.set_num_threads(threads)
    texts = [p.problem for p in problems]
    if settings.method == "kmeans":
        return _kmeans(texts, settings)
    scores = _zero_shot_scores(texts, settings) if settings.method == "zero_shot" else _llm(texts, settings)
    best, margins = nearest(scores)
    names = list(settings.descriptions)
    return Clustering([names[i] for i in best], margins)


def _given(problems: Sequence[Problem]) -> Clustering:
    missing = [p.id for p in problems if not p.topic]
    if missing:
        raise ValueError(f"topics.method: 'given', but {len(missing)} problems have no topic, such as {missing[0]}")
    return Clustering([p.topic for p in problems], np.full(len(problems), np.nan))


def _zero_shot_scores(texts: Sequence[str], settings: Topics) -> np.ndarray:
    """Cosine similarity of every problem and topic, [N, K]."""
    embedder = load_embedder(settings.embedding)
    targets = topic_vectors([embed(d, embedder) for d in settings.descriptions.values()])
    return np.asarray(embed(texts, embedder) @ targets.T)


def _kmeans(texts: Sequence[str], settings: Topics) -> Clustering:
    vectors = embed(texts, load_embedder(settings.embedding))
    found: dict[int, float] = {}
    if settings.clusters == "auto":
        found = silhouettes(vectors, *settings.clusters_range, settings.seed)
    clusters = choose(found) if settings.clusters == "auto" else settings.clusters
    partition = kmeans(vectors, clusters, settings.seed)
    # By size: the larger of two clusters with the same typical words gets the shorter name.
    sizes = Counter(partition.labels.tolist())
    by_size = sorted(sizes, key=lambda label: (-sizes[label], label))
    members = [[text for text, own in zip(texts, partition.labels, strict=True) if own == label] for label in by_size]
    name_of = dict(zip(by_size, cluster_names(members), strict=True))
    return Clustering([name_of[label] for label in partition.labels.tolist()], partition.margins, found)


def _llm(texts: Sequence[str], settings: Topics) -> np.ndarray:
    if settings.llm is None:  # refused by Topics
        raise ValueError("topics.llm: method llm needs a model")
    model, tokenizer = load_labeller(settings.llm)
    return label_scores(
        model,
        tokenizer,
        texts,
        settings.descriptions,
        batch_size=settings.llm.batch_size,
        max_problem_tokens=settings.llm.max_problem_tokens,
    )
