"""The estimator's options as other trainers' configurations give them: by name, nothing but the estimator's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ebpo.algorithms.settings import EBPOSettings, PolicyLossSettings

# The rest of EBPOSettings configures the policy loss, which is the host trainer's there.
ESTIMATOR_OPTIONS = tuple(
    name for name in EBPOSettings.model_fields if name not in PolicyLossSettings.model_fields and name != "algorithm"
)


def estimator_settings(options: Mapping[str, Any], prefix: str) -> EBPOSettings:
    """Settings of the estimator from the options that a host's configuration gives.

    Args:
        options: option -> value; a missing option has the paper's value.
        prefix: what the host writes before an option's name, for messages.

    Raises:
        ValueError: an option is unknown or its value not allowed.
    """
    unknown = sorted(set(options) - set(ESTIMATOR_OPTIONS))
    if unknown:
        raise ValueError(f"{prefix}{unknown[0]}: no such option; allowed: {', '.join(ESTIMATOR_OPTIONS)}")
    try:
        return EBPOSettings(**options)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        given = f" (given: {first['input']!r})" if name else ""
        raise ValueError(f"{prefix}{name}: {message}{given}" if name else f"{prefix}*: {message}") from None
