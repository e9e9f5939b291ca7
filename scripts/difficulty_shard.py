"""Samples and grades one shard of the training problems with the base policy: counts of correct completions."""

import argparse
import json
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import DifficultyJob, read_section
from ebpo.files import atomic_path
from ebpo.seeds import derive_seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the difficulty job (YAML)")
    parser.add_argument("--policy", type=Path, required=True, help="folder of the base policy")
    parser.add_argument("--manifest", type=Path, required=True, help="policy.json, for the digest of the weights")
    parser.add_argument("--problems", type=Path, required=True, help="training problems (parquet)")
    parser.add_argument("--prompts", type=Path, required=True, help="their rendered prompts (parquet)")
    parser.add_argument("--shard", type=int, required=True, help="number of this shard, from 0")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the completions, shared by experiments")
    parser.add_argument("--out", type=Path, required=True, help="counts of this shard (parquet)")
    args = parser.parse_args()
    # Imported only now: --help and a wrong argument need not wait for torch.
    from ebpo.clustering.completions import Source, blocks_of, sample_blocks
    from ebpo.clustering.difficulty import count_correct
    from ebpo.policy.loading import set_determinism
    from ebpo.problems.record import read_problems
    from ebpo.prompts import read_prompts
    from ebpo.rollouts.engines import fixed_engine
    from ebpo.rollouts.protocol import Sampling

    job = read_section(args.config, TypeAdapter(DifficultyJob))
    settings = job.difficulty
    set_determinism(job.threads)
    source = Source(
        weights=json.loads(args.manifest.read_text(encoding="utf-8"))["sha256"],
        engine=job.rollouts.engine,
        dtype=job.dtype,
        rollouts=settings.rollouts,
        sampling=Sampling(settings.temperature, job.max_new_tokens, derive_seed("difficulty", settings.seed)),
    )
    blocks = blocks_of(read_prompts(args.prompts), args.shard, settings.shards)
    length = job.max_prompt_tokens + job.max_new_tokens
    completions = sample_blocks(
        blocks, lambda: fixed_engine(job.rollouts, args.policy, job.dtype, job.device, length), source, args.cache
    )
    counts = count_correct(completions, {p.id: p for p in read_problems(args.problems)}, job.threads)
    with atomic_path(args.out) as partial:
        counts.to_parquet(partial, index=False)


if __name__ == "__main__":
    run(main)
