"""k-means finds clouds that are there, and the silhouette their number."""

from __future__ import annotations

import numpy as np
import pytest

from ebpo.clustering.kmeans import choose, kmeans, silhouettes
from ebpo.clustering.quality import adjusted_rand


def clouds(number: int, size: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around `number` axes, and which axis each belongs to."""
    rng = np.random.default_rng(0)
    known = np.repeat(np.arange(number), size)
    points = np.eye(8)[known] + 0.1 * rng.standard_normal((len(known), 8))
    return points / np.linalg.norm(points, axis=1, keepdims=True), known


@pytest.mark.parametrize("number", [2, 5, 7])
def test_the_silhouette_finds_the_number_of_clouds(number):
    vectors, known = clouds(number)
    chosen = choose(silhouettes(vectors, 2, 8, seed=0))
    assert chosen == number
    assert adjusted_rand(known, kmeans(vectors, chosen, seed=0).labels) == 1


def test_of_nearly_equal_silhouettes_the_smallest_number_is_taken():
    assert choose({2: 0.5, 3: 0.69, 4: 0.70, 5: 0.701}) == 3
    assert choose({2: 0.5, 3: 0.68, 4: 0.70}) == 4
    assert choose({2: -0.2, 3: -0.1}) == 3


def test_a_margin_is_the_distance_to_spare():
    # Centres 0.5 and 10.5: the point 0 has 10.5 - 0.5 to spare.
    vectors = np.array([[0.0], [1.0], [10.0], [11.0]])
    assert kmeans(vectors, 2, seed=0).margins == pytest.approx([10.0, 9.0, 9.0, 10.0])


def test_more_clusters_than_different_problems_are_refused():
    with pytest.raises(ValueError, match="3 clusters asked of 2 different problems"):
        kmeans(np.array([[0.0], [0.0], [1.0], [1.0]]), 3, seed=0)
    with pytest.raises(ValueError, match="2 clusters asked of 1 different problems"):
        silhouettes(np.zeros((5, 2)), 2, 4, seed=0)


def test_the_range_ends_at_the_number_of_different_problems():
    assert list(silhouettes(np.array([[0.0], [0.0], [1.0], [5.0]]), 2, 12, seed=0)) == [2, 3]
