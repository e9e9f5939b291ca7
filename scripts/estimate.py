"""Prints memory per GPU and GPU hours of every run of an experiment, from its configuration alone.

The speeds are those of an H100 (989 TFLOP/s dense bfloat16, 3.35 TB/s); an A100 has 312 and 2.0.
"""

import argparse
from pathlib import Path

from ebpo.cli import run
from ebpo.config import Model, read_config
from ebpo.estimate import GPU, PUBLISHED, Architecture, Assumptions, Memory, RunEstimate, estimate_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="the experiment (YAML)")
    parser.add_argument("--memory", type=float, default=80, help="GB of a GPU")
    parser.add_argument("--tflops", type=float, default=989, help="dense bfloat16 TFLOP/s of a GPU")
    parser.add_argument("--bandwidth", type=float, default=3.35, help="TB/s of a GPU's memory")
    parser.add_argument("--flops-used", type=float, default=0.35, help="share reached in updates")
    parser.add_argument("--bandwidth-used", type=float, default=0.5, help="share reached in decoding")
    parser.add_argument("--completion-tokens", type=float, help="mean length (default: a quarter of max_new_tokens)")
    parser.add_argument("--prompt-tokens", type=float, default=200, help="mean length")
    parser.add_argument("--rounds", type=float, default=3, help="mean rollout rounds of a DAPO step")
    args = parser.parse_args()
    config = read_config(args.config)
    assumed = Assumptions(
        gpu=GPU(args.tflops * 1e12, args.bandwidth * 1e12, args.flops_used, args.bandwidth_used),
        gpu_bytes=args.memory * 1e9,
        completion_tokens=args.completion_tokens or config.training.max_new_tokens / 4,
        prompt_tokens=args.prompt_tokens,
        dynamic_sampling_rounds=args.rounds,
    )
    models = {name: architecture(model) for name, model in config.models.items()}
    print(
        "| run | GPUs | GB in updates | GB in sampling | sampling h | updates h | validation h | evaluation h | GPU h |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    total = 0.0
    for identity in config.runs():
        estimate = estimate_run(config, identity, models[identity.model], assumed)
        print(row(identity.folder.removeprefix("runs/"), estimate, assumed.gpu_bytes))
        total += sum(estimate.hours.values())
    print(f"\nIn all {total:,.1f} GPU hours; `!` does not fit into {args.memory:.0f} GB. Largest parts of an update:")
    for name, model in models.items():
        first = next(r for r in config.runs() if r.model == name)
        print(f"- {name}: {parts(estimate_run(config, first, model, assumed).update)}")


def architecture(model: Model) -> Architecture:
    """Shape of a configured policy: of a folder's config.json, or of a repository that is known here."""
    if model.source == "folder":
        return Architecture.from_folder(Path(model.path))
    if model.path not in PUBLISHED:
        raise ValueError(f"{model.path}: its shape is not known here; known: {sorted(PUBLISHED)}, or use a folder")
    return PUBLISHED[model.path]


def row(name: str, estimate: RunEstimate, available: float) -> str:
    """A line of the table."""
    memory = [f"{m.total / 1e9:.0f}{' !' if m.total > available else ''}" for m in (estimate.update, estimate.sampling)]
    hours = [f"{value:,.1f}" for value in (*estimate.hours.values(), sum(estimate.hours.values()))]
    return "| " + " | ".join([name, str(estimate.gpus), *memory, *hours]) + " |"


def parts(memory: Memory) -> str:
    """The parts in GB, largest first."""
    used = sorted(vars(memory).items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {value / 1e9:.1f} GB" for name, value in used if value >= 5e7)


if __name__ == "__main__":
    run(main)
