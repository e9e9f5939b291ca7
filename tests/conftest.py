"""Shared by the tests: no network, one thread, a model small enough to train in a test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def policy_folder() -> Path:
    """The committed base policy of the demo."""
    return REPOSITORY / "config" / "policy"
