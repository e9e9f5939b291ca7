"""Base policies, and the recipe of a small one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ebpo.algorithms.settings import NonNegativeFloat, PositiveFloat, Settings
from ebpo.config.types import Identifier, PositiveInt, Seed, TemplateName


class PolicyRecipe(Settings):
    """How a small base policy is built: a Qwen3 architecture, supervised on generated problems.

    Attributes:
        slip: cell -> share of target answers that are replaced by another item's answer of that cell: a
            stand-in for a base model that knows the procedure and often slips.
        items: training items. steps * batch_size items are drawn from them.
    """

    hidden_size: PositiveInt = 128
    layers: PositiveInt = 4
    heads: PositiveInt = 4
    intermediate_size: PositiveInt = 256
    vocabulary: PositiveInt = 512
    max_positions: PositiveInt = 256
    items: PositiveInt = 500_000
    steps: PositiveInt = 4_500
    batch_size: PositiveInt = 128
    learning_rate: PositiveFloat = 3e-3
    weight_decay: NonNegativeFloat = 0.1
    seed: Seed = 0
    slip: dict[Identifier, Annotated[float, Field(ge=0, lt=1)]]


class Model(Settings):
    """A base policy.

    Attributes:
        path: a folder in the Hugging Face format, or with source hub a repository name.
        source: `folder`, or `hub` (needs network or the hub's cache at run time).
        revision: commit of the hub repository.
        recipe: how to rebuild the folder; used with `rebuild_policy: true`.
        template: prompt template of `ebpo.prompts.TEMPLATES`.
    """

    source: Literal["folder", "hub"]
    path: str
    revision: str | None = None
    recipe: PolicyRecipe | None = None
    template: TemplateName = "plain"
    dtype: Literal["float32", "bfloat16"] = "float32"
