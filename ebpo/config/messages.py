"""Errors of a configuration as one line: the key, the value, what is allowed."""

from __future__ import annotations

import re
import types
import typing
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError


def own_message(error: ValidationError) -> str:
    """Text of the first error, without pydantic's prefix for messages of our own."""
    return str(error.errors()[0]["msg"]).removeprefix("Value error, ")


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One line for the first error: key, value, what is allowed."""
    first = error.errors()[0]
    location, node = _locate(first["loc"], model)
    key = ".".join(location) or "(top level)"
    kind, message = first["type"], own_message(error)
    if kind == "extra_forbidden":
        allowed = sorted(node.model_fields) if node is not None else []
        return f"{key}: unknown key; allowed: {allowed}"
    if kind == "missing":
        return f"{key}: is missing; it is required"
    if kind == "value_error":
        return message if not location else f"{key}.{message}" if re.match(r"[\w.]+:", message) else f"{key}: {message}"
    value = repr(first["input"])
    return (
        f"{key}: {value if len(value) <= 80 else value[:77] + '...'} is not allowed: {message[0].lower()}{message[1:]}"
    )


def _locate(loc: tuple[int | str, ...], model: type[BaseModel]) -> tuple[list[str], type[BaseModel] | None]:
    """The keys that a user wrote on the way to an error, and the class whose keys were expected there.

    Pydantic puts the tag of a tagged union into the location; a user never wrote it, so it is left out.
    """
    keys: list[str] = []
    nodes: list[Any] = [model]
    for part in loc:
        tagged = [n for n in nodes if _is_model(n) and part in _tags(n)]
        if len(nodes) > 1 and tagged:
            nodes = tagged
            continue
        keys.append(str(part))
        following: list[Any] = []
        for node in nodes:
            if _is_model(node):
                if part in node.model_fields:
                    following += _alternatives(node.model_fields[str(part)].annotation)
            else:
                arguments = typing.get_args(node)
                following += _alternatives(arguments[-1]) if arguments else []
        if not following:
            break
        nodes = following
    models = [n for n in nodes if _is_model(n)]
    return keys, models[0] if len(models) == 1 else None


def _is_model(node: Any) -> bool:
    return isinstance(node, type) and issubclass(node, BaseModel)


def _tags(node: type[BaseModel]) -> set[Any]:
    fields = [f for name, f in node.model_fields.items() if name in ("algorithm", "source")]
    return {tag for field in fields for tag in typing.get_args(field.annotation)}


def _alternatives(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [a for option in typing.get_args(annotation) for a in _alternatives(option)]
    return [annotation]
