"""Trains one run from its config.yaml. Reads the files named; writes model/, best/, metrics.jsonl and summary.json.

Several processes: python -m torch.distributed.run --standalone --nproc-per-node N scripts/train.py ...
"""

import argparse
from pathlib import Path

from ebpo.cli import run
from ebpo.config import read_run_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the run's config.yaml")
    parser.add_argument("--policy", type=Path, required=True, help="folder of the base policy")
    parser.add_argument("--train", type=Path, required=True, help="training problems (parquet)")
    parser.add_argument("--validation", type=Path, required=True, help="validation problems (parquet)")
    parser.add_argument("--prompts", type=Path, required=True, help="folder of the rendered prompts")
    parser.add_argument("--topics", type=Path, help="topic of each training problem (parquet)")
    parser.add_argument("--difficulty", type=Path, help="pass rate of each training problem (parquet)")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--parallel", choices=["ddp", "fsdp2"], default="ddp", help="how processes share the model")
    args = parser.parse_args()
    # Imported only now: --help and a wrong argument need not wait for torch.
    from ebpo.training.inputs import read_inputs
    from ebpo.training.trainer import train

    config = read_run_config(args.config)
    inputs = read_inputs(
        config,
        policy=args.policy,
        train=args.train,
        validation=args.validation,
        prompts=args.prompts,
        topics=args.topics,
        difficulty=args.difficulty,
    )
    train(config, inputs, args.out, args.parallel)


if __name__ == "__main__":
    run(main)
