"""Seeds derived from what a draw is for, so that resuming needs no replay and no two draws share a stream."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A seed in [0, 2^63) from the parts; stable across processes and platforms, unlike hash()."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
