"""Fixtures of the reporting tests."""

from pathlib import Path

import pytest
from synthetic_experiment import Experiment


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """The synthetic experiment, below tmp_path."""
    return Experiment(tmp_path / "results/demo")
