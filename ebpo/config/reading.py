"""Reads and writes configuration files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from ebpo.config.experiment import ExperimentConfig
from ebpo.config.messages import explain
from ebpo.config.runs import RunConfig

Section = TypeVar("Section")


class ConfigError(ValueError):
    """A configuration that is not allowed; the message is one line."""


def parse_config(raw: Mapping[str, Any], where: str = "config") -> ExperimentConfig:
    """Validates a configuration mapping.

    Raises:
        ConfigError: one line that names the key, the value and what is allowed.
    """
    try:
        return ExperimentConfig.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, ExperimentConfig)}") from None


def read_config(path: Path) -> ExperimentConfig:
    """Reads and validates an experiment's YAML file. Raises ConfigError like `parse_config`."""
    return parse_config(_read_yaml(path), str(path))


def read_run_config(path: Path) -> RunConfig:
    """Reads and validates a run's config.yaml. Raises ConfigError like `parse_config`."""
    try:
        return RunConfig.model_validate(_read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, RunConfig)}") from None


def read_section(path: Path, section: TypeAdapter[Section]) -> Section:
    """Reads one section of an experiment, as the workflow writes it for a job."""
    try:
        return section.validate_python(_read_yaml(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, not {type(raw).__name__}")
    return raw


def dump_yaml(settings: BaseModel) -> str:
    """A configuration as YAML, every default spelled out, in a fixed order."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
