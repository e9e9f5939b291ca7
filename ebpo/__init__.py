"""EBPO-Replication: empirical Bayes shrinkage for group-relative policy optimization.

The estimator is one call, `ebpo_advantages`, or one object, `EBPOBaseline`. Both are imported on first use, so that
the torch-free parts (configuration, grading) stay quick to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ebpo.algorithms.ebpo import EBPOBaseline, EBPOState, ebpo_advantages

__version__ = "0.1.0"
__all__ = ["EBPOBaseline", "EBPOState", "__version__", "ebpo_advantages"]


def __getattr__(name: str) -> Any:
    if name in ("EBPOBaseline", "EBPOState", "ebpo_advantages"):
        from ebpo.algorithms import ebpo as module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
