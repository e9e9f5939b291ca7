"""Samples completions of one policy on all benchmarks: loads it once, writes completions.parquet and protocol.json."""

import argparse
import shutil
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import EvaluationJob, read_section
from ebpo.evaluation.protocol import sampling_protocol, write_protocol
from ebpo.files import atomic_path, file_digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the evaluation job (YAML)")
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy")
    parser.add_argument("--benchmarks", type=Path, nargs="+", required=True, help="problem tables, named by benchmark")
    parser.add_argument("--prompts", type=Path, nargs="+", required=True, help="prompt tables, named by benchmark")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    # Imported only now: --help and a wrong argument need not wait for torch.
    from ebpo.evaluation.sampling import sample_benchmarks
    from ebpo.policy.loading import set_determinism
    from ebpo.prompts import prompts_digest, read_prompts
    from ebpo.rollouts.engines import engine_version, fixed_engine

    job = read_section(args.config, TypeAdapter(EvaluationJob))
    set_determinism(job.threads)
    prompts = {path.stem: read_prompts(path) for path in args.prompts}
    protocol = sampling_protocol(
        job,
        engine=engine_version(job.rollouts),
        problems={path.stem: file_digest(path) for path in args.benchmarks},
        prompts={name: prompts_digest(own) for name, own in prompts.items()},
    )
    # Shards of other weights or another protocol are never taken for this one's.
    state = args.out / "state"
    shards = state / f"{protocol.digest}-{file_digest(args.policy)[:12]}"
    length = job.max_prompt_tokens + job.evaluation.max_new_tokens
    engine = fixed_engine(job.rollouts, args.policy, job.dtype, job.device, length)
    frame = sample_benchmarks(prompts, engine, protocol, shards)
    with atomic_path(args.out / "completions.parquet") as partial:
        frame.to_parquet(partial, index=False, compression="zstd")
    write_protocol(args.out / "protocol.json", protocol)
    shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    run(main)
