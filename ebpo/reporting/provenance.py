"""Where the numbers of a report come from: data, policies, evaluation protocols, versions, machine."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "ebpo", "torch", "transformers", "vllm", "snakemake", "math-verify", "reasoning-gym", "sentence-transformers",
    "scikit-learn", "numpy", "pandas", "matplotlib",
)  # fmt: skip


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the results, in the environment of the caller."""
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed here"
    return versions


def protocol_rows(record: Mapping[str, Any]) -> dict[str, str]:
    """The protocol of an evaluation's record.json as text, nested hashes by their first 12 digits."""
    rows = {}
    for key, value in record["protocol"].items():
        if isinstance(value, Mapping):
            rows[key] = ", ".join(f"{name} {str(digest)[:12]}" for name, digest in value.items())
        else:
            rows[key] = str(value)
    return rows
