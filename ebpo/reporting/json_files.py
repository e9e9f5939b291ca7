"""JSON objects from files that other programs wrote: what is wrong is named with its place."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any


def read_object(path: Path, keys: Collection[str] = ()) -> dict[str, Any]:
    """The JSON object of a file.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it holds no JSON object, or the object lacks one of the keys.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    value = _parse(path.read_text(encoding="utf-8"), str(path))
    if missing := set(keys) - set(value):
        raise ValueError(f"{path}: keys {sorted(missing)} are missing")
    return value


def read_objects(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file that has one in each line.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: a line holds no JSON object; its number is named.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{where}: must be a JSON object, not {type(value).__name__}")
    return value
