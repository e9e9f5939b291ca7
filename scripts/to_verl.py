"""Writes a run for verl: train.parquet and validation.parquet in verl's schema, and run.sh with the whole command."""

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from ebpo.cli import run
from ebpo.config import ExperimentConfig, RunConfig, RunId, read_config
from ebpo.config.messages import explain
from ebpo.files import write_text
from ebpo.integrations.verl_export import command, drawn_problems, overrides, write_prompt_table
from ebpo.problems.record import read_problems
from ebpo.prompts import read_prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument("--model", required=True, help="key of the experiment's models")
    parser.add_argument("--method", required=True, help="key of the experiment's methods")
    parser.add_argument("--order", default="topic", choices=["topic", "shuffle", "difficulty"])
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", type=Path, required=True, help="training problems (parquet)")
    parser.add_argument("--validation", type=Path, required=True, help="validation problems (parquet)")
    parser.add_argument("--prompts", type=Path, help="rendered training prompts (parquet); others were too long")
    parser.add_argument("--topics", type=Path, help="topic of each training problem (parquet), for order topic")
    parser.add_argument("--difficulty", type=Path, help="pass rate of each training problem, for order difficulty")
    parser.add_argument("--gpus-per-node", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    experiment = read_config(args.config)
    for key, known in (("model", experiment.models), ("method", experiment.methods)):
        if getattr(args, key) not in known:
            raise ValueError(f"--{key}: {getattr(args, key)!r} is not in {args.config}; allowed: {sorted(known)}")
    config = _run_config(experiment, args)
    values = overrides(config, experiment.models[args.model].path, args.gpus_per_node, args.nodes)
    problems = read_problems(args.train)
    if args.prompts is not None:
        rendered = read_prompts(args.prompts)
        problems = [p for p in problems if p.id in rendered]
    drawn = drawn_problems(config, problems, _column(args.topics, "topic"), _column(args.difficulty, "pass_rate"))
    write_prompt_table(args.out / "train.parquet", drawn, config.template, "train")
    write_prompt_table(args.out / "validation.parquet", read_problems(args.validation), config.template, "validation")
    write_text(args.out / "run.sh", command(values))
    print(f"bash {args.out / 'run.sh'}")


def _run_config(experiment: ExperimentConfig, args: argparse.Namespace) -> RunConfig:
    try:
        run_id = RunId(
            model=args.model, method=args.method, order=args.order, group_size=args.group_size, seed=args.seed
        )
        return experiment.run_config(run_id)
    except ValidationError as error:
        raise ValueError(explain(error, RunConfig)) from None


def _column(path: Path | None, name: str) -> dict[str, Any] | None:
    if path is None:
        return None
    frame = pd.read_parquet(path)
    if name not in frame.columns:
        raise ValueError(f"{path}: column {name!r} is missing; it has {list(frame.columns)}")
    return dict(zip(frame["id"], frame[name], strict=True))


if __name__ == "__main__":
    run(main)
