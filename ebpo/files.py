"""Files that are either whole or absent: everything is written beside its place and renamed into it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside `path`; what was written there takes its place only if the block succeeds.

    The suffix is kept, since libraries choose the format by it. Parent folders are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        _fsync(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Like `atomic_path`, for a folder: an existing folder at `path` is replaced once the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        for file in sorted(partial.rglob("*")):
            if file.is_file():
                _fsync(file)
        if path.exists():
            shutil.rmtree(path)
        os.replace(partial, path)
        _fsync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON atomically; NaN is refused, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file, or of a folder's file names and contents in sorted order."""
    digest = hashlib.sha256()
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
