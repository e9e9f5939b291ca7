"""k-means on unit embeddings, with the number of clusters chosen by silhouette."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

log = logging.getLogger(__name__)

_SAMPLE = 2000  # problems whose silhouette is computed, which costs their square
_STARTS = 4
# Where problems are made from templates, the silhouette hardly changes once every template has its cluster.
_FLAT = 0.025


@dataclass(frozen=True)
class Partition:
    """A clustering.

    Attributes:
        labels: [N] int in [0, k).
        margins: [N] >= 0; distance to the second nearest centre minus distance to the nearest; 0 where there is one.
    """

    labels: np.ndarray
    margins: np.ndarray


def kmeans(vectors: np.ndarray, clusters: int, seed: int) -> Partition:
    """k-means of the rows of `vectors` [N, D].

    Raises:
        ValueError: there are fewer distinct rows than clusters.
    """
    distinct = len(np.unique(vectors, axis=0))
    if distinct < clusters:
        raise ValueError(f"topics.clusters: {clusters} clusters asked of {distinct} different problems")
    model = KMeans(clusters, n_init=_STARTS, random_state=seed).fit(vectors)
    distances = np.sort(model.transform(vectors), axis=1)
    margins = distances[:, 1] - distances[:, 0] if clusters > 1 else np.zeros(len(vectors))
    return Partition(model.labels_, margins)


def silhouettes(vectors: np.ndarray, smallest: int, largest: int, seed: int) -> dict[int, float]:
    """Number of clusters -> mean silhouette in [-1, 1], for every number that the distinct rows allow.

    Raises:
        ValueError: they allow none.
    """
    # A silhouette needs at least one cluster with two members.
    largest = min(largest, len(np.unique(vectors, axis=0)), len(vectors) - 1)
    if largest < smallest:
        raise ValueError(
            f"topics.clusters_range: {smallest} clusters asked of {len(np.unique(vectors, axis=0))} different problems"
        )
    found = {}
    for clusters in range(smallest, largest + 1):
        labels = kmeans(vectors, clusters, seed).labels
        sample = _SAMPLE if len(vectors) > _SAMPLE else None
        found[clusters] = float(silhouette_score(vectors, labels, sample_size=sample, random_state=seed))
        log.info("k = %d: silhouette %.3f", clusters, found[clusters])
    return found


def choose(found: dict[int, float]) -> int:
    """The smallest number of clusters whose silhouette is within 2.5 % of the largest one."""
    best = max(found.values())
    return min(k for k, value in found.items() if value >= best - _FLAT * abs(best))
