"""Types that the parts of a configuration share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

# Prompt templates; their texts are in ebpo/prompts.py.
TemplateName = Literal["plain", "chat", "dapo", "chat_examples"]

PositiveInt = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
# Identifiers become path components and wildcards: no separator that the layout uses (/, -, .).
Identifier = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
ModelIdentifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,39}$")]
