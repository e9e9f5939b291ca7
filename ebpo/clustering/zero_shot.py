"""Topics by the nearest description."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def topic_vectors(descriptions: Sequence[np.ndarray]) -> np.ndarray:
    """Unit vectors [K, D]: the direction of the mean over each topic's descriptions, [n_k, D] unit vectors."""
    means = np.stack([vectors.mean(axis=0) for vectors in descriptions])
    return np.asarray(means / np.linalg.norm(means, axis=1, keepdims=True))


def nearest(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best topic of each row of scores [N, K], and its margin over the second best, [N] >= 0."""
    ranked = np.sort(scores, axis=1)
    return scores.argmax(axis=1), ranked[:, -1] - ranked[:, -2]
