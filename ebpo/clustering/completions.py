"""The base policy's completions for difficulty, in blocks that are kept: what was sampled once is never sampled again.

A block's file is named by the digest of all that its completions depend on: weights, prompts, sampling, engine. So a
killed job goes on where it was, and another experiment with the same model, prompts and sampling finds them made.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ebpo.files import atomic_path
from ebpo.prompts import prompts_digest
from ebpo.rollouts.protocol import Completion, Rollouts, Sampling
from ebpo.seeds import derive_seed

log = logging.getLogger(__name__)

# Problems of a block: what a kill may cost. It belongs to the digest, since rounding may differ with the batch.
BLOCK = 200
# To be raised when the same seed gives other completions than before: the digest cannot see a change of the code.
VERSION = 1


@dataclass(frozen=True)
class Source:
    """Where completions come from.

    Attributes:
        weights: SHA-256 of the policy's folder.
        engine: name of the rollout engine.
        dtype: in which it computes.
        rollouts: completions of each prompt.
        sampling: temperature, budget and seed.
    """

    weights: str
    engine: str
    dtype: str
    rollouts: int
    sampling: Sampling

    def digest(self, block: Mapping[str, Sequence[int]]) -> str:
        """Names the completions of a block of prompts (problem id -> token ids), as 32 hex digits."""
        sampling = self.sampling
        parts = {
            "version": VERSION,
            "weights": self.weights,
            "engine": self.engine,
            "dtype": self.dtype,
            "rollouts": self.rollouts,
            "temperature": sampling.temperature,
            "max_new_tokens": sampling.max_new_tokens,
            "seed": sampling.seed,
            "prompts": prompts_digest(block),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def blocks_of(prompts: Mapping[str, list[int]], shard: int, shards: int) -> list[dict[str, list[int]]]:
    """The blocks of prompts that belong to a shard: every `shards`-th one, from `shard` on.

    The blocks are cut before they are dealt out, so no completion depends on the number of shards.

    Raises:
        ValueError: there is no such shard.
    """
    if not 0 <= shard < shards:
        raise ValueError(f"difficulty.shards: shard {shard} is not one of {shards}, which are numbered from 0")
    items = list(prompts.items())
    blocks = [dict(items[start : start + BLOCK]) for start in range(0, len(items), BLOCK)]
    return blocks[shard::shards]


def sample_blocks(
    blocks: Sequence[Mapping[str, list[int]]], engine: Callable[[], Rollouts], source: Source, cache: Path
) -> Iterator[dict[str, list[Completion]]]:
    """Problem id -> its completions, block by block; read from the folder `cache` where they are there already.

    Args:
        engine: gives the policy; called once, and only if something must be sampled.
    """
    rollouts: Rollouts | None = None
    for number, block in enumerate(blocks, start=1):
        path = cache / f"{source.digest(block)}.parquet"
        known = path.exists()
        if not known:
            rollouts = rollouts or engine()
            # A prompt's random stream is its own, whichever block it is in.
            keys = [derive_seed("prompt", *ids) for ids in block.values()]
            groups = rollouts.generate(list(block.values()), source.rollouts, source.sampling, keys)
            _write(path, dict(zip(block, groups, strict=True)))
        log.info("block %d of %d: %s", number, len(blocks), "sampled before" if known else "sampled")
        # Read back in either case, so that both give the very same.
        yield _read(path, list(block), source.rollouts)


def _write(path: Path, groups: Mapping[str, Sequence[Completion]]) -> None:
    rows = [
        {"id": i, "completion": c.text, "token_ids": c.token_ids, "finish_reason": c.finish_reason}
        for i, group in groups.items()
        for c in group
    ]
    with atomic_path(path) as partial:
        pq.write_table(pa.Table.from_pylist(rows), partial, compression="zstd")


def _read(path: Path, ids: Sequence[str], rollouts: int) -> dict[str, list[Completion]]:
    rows = pq.read_table(path).to_pylist()
    if [row["id"] for row in rows] != [i for i in ids for _ in range(rollouts)]:
        raise ValueError(f"{path}: holds other completions than its name says; delete it")
    made = [Completion(row["token_ids"], row["completion"], row["finish_reason"]) for row in rows]
    return {i: made[k * rollouts : (k + 1) * rollouts] for k, i in enumerate(ids)}
