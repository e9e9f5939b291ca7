"""Copies of this checkout for tests that run Snakemake in one."""

from __future__ import annotations

import shutil
from pathlib import Path


def copy_checkout(repository: Path, folder: Path) -> Path:
    """A copy without environments, results and caches."""
    leave = shutil.ignore_patterns(".git", ".venv*", ".snakemake", "results", "*cache*", "*.egg-info", ".hypothesis")
    return shutil.copytree(repository, folder, symlinks=True, ignore=leave)


def edit(path: Path, old: str, new: str) -> None:
    """Replaces a text that must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def shorten_theory(checkout: Path) -> None:
    """Makes the theory's simulations short; they are the same for every experiment."""
    script = "scripts/theory.py --"
    edit(checkout / "workflow" / "rules" / "theory.smk", f"{script}out", f"{script}replications 16 --out")
