"""Samples completions of a policy on every benchmark; grading is a step of its own, so it can be redone alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ebpo.evaluation.protocol import Protocol
from ebpo.files import atomic_path
from ebpo.rollouts.protocol import Rollouts, Sampling
from ebpo.seeds import derive_seed

log = logging.getLogger(__name__)

# Completions between two shards: what a kill may cost.
_BLOCK = 1024

COLUMNS = ["benchmark", "problem_id", "sample", "completion", "tokens", "finish_reason"]


def sample_benchmarks(
    prompts: Mapping[str, Mapping[str, list[int]]], rollouts: Rollouts, protocol: Protocol, state: Path
) -> pd.DataFrame:
    """Samples every benchmark, in blocks that are kept as they are made, so that a killed job goes on where it was.

    Every policy is sampled with the same random numbers, so paired differences lose the noise of the sampler's seed.

    Args:
        prompts: benchmark -> problem id -> token ids.
        rollouts: the policy, loaded once for all of them.
        protocol: how to sample.
        state: folder of the shards of this very policy and protocol; the caller removes it when the result is safe.

    Returns:
        One row per completion: benchmark, problem_id, sample (0, 1, ...), completion (text), tokens (their number),
        finish_reason.
    """
    per_block = max(1, _BLOCK // protocol.samples)
    blocks = [(name, start) for name, own in prompts.items() for start in range(0, len(own), per_block)]
    shards = [state / f"{name}-{start:06d}.parquet" for name, start in blocks]
    if kept := sum(shard.exists() for shard in shards):
        log.info("resumed: %d of %d blocks were sampled before", kept, len(blocks))
    for number, ((name, start), shard) in enumerate(zip(blocks, shards, strict=True), start=1):
        if shard.exists():
            continue
        block = dict(list(prompts[name].items())[start : start + per_block])
        frame = _sample(name, block, start, rollouts, protocol)
        with atomic_path(shard) as partial:
            frame.to_parquet(partial, index=False, compression="zstd")
        log.info("block %d of %d: %s, problems %d to %d", number, len(blocks), name, start + 1, start + len(block))
    return pd.concat([pd.read_parquet(shard) for shard in shards], ignore_index=True)


def _sample(
    name: str, block: Mapping[str, list[int]], start: int, rollouts: Rollouts, protocol: Protocol
) -> pd.DataFrame:
    sampling = Sampling(protocol.temperature, protocol.max_new_tokens, derive_seed("evaluation", protocol.seed, name))
    # A prompt's key is its place in the benchmark: blocks may be cut anywhere.
    keys = range(start, start + len(block))
    groups = rollouts.generate(list(block.values()), protocol.samples, sampling, keys)
    rows = [
        (name, problem, number, c.text, len(c.token_ids), c.finish_reason)
        for problem, group in zip(block, groups, strict=True)
        for number, c in enumerate(group)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)
