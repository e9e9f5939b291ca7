"""Names of methods and orders for readers."""

from __future__ import annotations

_LABELS = {
    "base": "Base policy",
    "grpo": "GRPO",
    "dr_grpo": "Dr. GRPO",
    "dapo": "DAPO",
    "entropy_mech": "EntropyMech",
    "ebpo": "EBPO",
}
_ORDERS = {
    "topic": "topic",
    "shuffle": "shuffled",
    "difficulty": "easy to hard",
    "topic_difficulty": "easy to hard inside topics",
    "interleaved": "topics interleaved",
}


def method_label(method: str) -> str:
    """The method's name for readers; a method defined by the user keeps the name that it has in the configuration."""
    return _LABELS.get(method, method)


def order_label(order: str) -> str:
    """The order's name for readers; "" for a base policy."""
    return _ORDERS.get(order, order)
