from __future__ import annotations

import numpy as np
import pytest

from ebpo.clustering.zero_shot import nearest, topic_vectors


def test_a_topic_is_the_direction_of_the_mean_of_its_descriptions():
    vectors = topic_vectors([np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.0, -1.0]])])
    assert vectors[0] == pytest.approx([0.5**0.5, 0.5**0.5])
    assert vectors[1] == pytest.approx([0.0, -1.0])


def test_the_best_topic_and_its_margin():
    best, margins = nearest(np.array([[0.1, 0.7, 0.4], [0.9, 0.9, 0.0]]))
    assert best.tolist() == [1, 0]
    assert margins == pytest.approx([0.3, 0.0])
