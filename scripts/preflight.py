"""Checks GPUs, disk, policies, tokenizer and one small training step of a model; fails with one line for each fault.

Several processes, as of a training job: python -m torch.distributed.run --standalone --nproc-per-node N ...
"""

import argparse
from dataclasses import asdict
from pathlib import Path

from ebpo.cli import run
from ebpo.config import read_config
from ebpo.estimate import Architecture
from ebpo.files import write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument("--model", required=True, help="name of the model")
    parser.add_argument("--policy", type=Path, required=True, help="folder of the base policy")
    parser.add_argument("--train", type=Path, required=True, help="training problems (parquet)")
    parser.add_argument("--validation", type=Path, required=True, help="validation problems (parquet)")
    parser.add_argument("--prompts", type=Path, required=True, help="folder of the rendered prompts")
    parser.add_argument("--parallel", choices=["ddp", "fsdp2"], default="ddp", help="how processes share the model")
    parser.add_argument("--out", type=Path, required=True, help="the verdicts (JSON)")
    args = parser.parse_args()
    # Imported only now: --help and a wrong argument need not wait for torch.
    from ebpo.preflight import check_disk, check_gpus, check_policies, check_step, check_tokenizer, on_hub
    from ebpo.training.inputs import read_inputs
    from ebpo.training.processes import Processes

    config = read_config(args.config)
    identity = next((r for r in config.runs() if r.model == args.model), None)
    if identity is None:
        raise ValueError(f"--model {args.model}: no run trains it; allowed: {sorted({r.model for r in config.runs()})}")
    run_config = config.run_config(identity)
    processes = Processes(config.training.device)
    checks = []
    if processes.is_main:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        shape = Architecture.from_folder(args.policy)
        checks = [
            check_gpus(config.training.device, config.resources.gpus),
            check_disk(args.out.parent, config, [(args.model, shape)]),
            check_policies(config, args.policy.parent.parent, on_hub),
            check_tokenizer(config, args.model, args.policy),
        ]
    checks = processes.same(checks)
    if all(check.ok for check in checks):
        inputs = read_inputs(
            run_config, policy=args.policy, train=args.train, validation=args.validation, prompts=args.prompts
        )
        checks.append(check_step(run_config, inputs, args.out.parent, processes, args.parallel))
    failed = [check.name for check in checks if not check.ok]
    if processes.is_main:
        for check in checks:
            print(f"{'ok    ' if check.ok else 'FAILED'} {check.name}: {check.detail}", flush=True)
    if failed:
        raise ValueError(f"pre-flight of {args.model}: failed: {', '.join(failed)}; the lines above say why")
    if processes.is_main:
        write_json(args.out, [asdict(check) for check in checks])


if __name__ == "__main__":
    run(main)
