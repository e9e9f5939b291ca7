"""How well topics agree with labels that were known beforehand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from ebpo.clustering.topics import Clustering
from ebpo.config import Topics
from ebpo.problems.record import Problem

UNKNOWN = "(unknown)"


def adjusted_rand(known: Sequence[str], found: Sequence[str]) -> float:
    """Adjusted Rand index: 1 for the same partition, about 0 for a random one (Hubert and Arabie 1985)."""
    return float(adjusted_rand_score(known, found))


def matched_accuracy(known: Sequence[str], found: Sequence[str]) -> float:
    """Share of right problems in [0, 1] when each known label is matched to at most one topic, as well as possible.

    The matching is optimal (Hungarian algorithm); problems of an unmatched topic count as wrong.
    """
    counts = pd.crosstab(np.asarray(known), np.asarray(found)).to_numpy()
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / counts.sum())


def confusion(problems: Sequence[Problem], topics: Sequence[str]) -> pd.DataFrame:
    """Number of problems by what the source says (index: topic, source) and the topic found (columns).

    Columns stand as near the diagonal as they can: each by the row that holds most of it.
    """
    rows = [[p.topic or UNKNOWN for p in problems], [p.source for p in problems]]
    table = pd.crosstab(rows, np.asarray(topics), rownames=["topic", "source"], colnames=["found"])
    home = sorted((int(table[name].to_numpy().argmax()), str(name)) for name in table.columns)
    return table[[name for _, name in home]]


def quality(problems: Sequence[Problem], clustering: Clustering, settings: Topics) -> dict[str, Any]:
    """What topics.json says: sizes, silhouettes, and agreement with the topics and the sources of the problems.

    `adjusted_rand` and `accuracy` compare with the topics of the source, `*_of_sources` with the sources themselves
    (for generated problems, their generators); null where there is none, or only one source.
    """
    topics = clustering.topics
    known, sources = [p.topic for p in problems], [p.source for p in problems]
    labelled, several = all(known), len(set(sources)) > 1
    return {
        "method": settings.method,
        "embedding": settings.embedding if settings.method in ("zero_shot", "kmeans") else None,
        "clusters": len(set(topics)),
        "sizes": dict(sorted(Counter(topics).items())),
        "silhouettes": {str(k): round(value, 4) for k, value in clustering.silhouettes.items()},
        "adjusted_rand": round(adjusted_rand(known, topics), 4) if labelled else None,
        "accuracy": round(matched_accuracy(known, topics), 4) if labelled else None,
        "adjusted_rand_of_sources": round(adjusted_rand(sources, topics), 4) if several else None,
        "accuracy_of_sources": round(matched_accuracy(sources, topics), 4) if several else None,
    }
