"""Renders all problems to a model's token ids, once: prompt tables and prompts.json."""

import argparse
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from ebpo.cli import run
from ebpo.config import PromptsJob, read_section
from ebpo.files import write_json
from ebpo.problems.record import read_problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the prompts job (YAML)")
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy, for its tokenizer")
    parser.add_argument("--train", type=Path, required=True, help="training problems (parquet)")
    parser.add_argument("--validation", type=Path, required=True, help="validation problems (parquet)")
    parser.add_argument("--benchmarks", type=Path, nargs="+", required=True, help="problem tables, named by benchmark")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    # Imported only now: --help and a wrong argument need not wait for torch.
    from transformers import AutoTokenizer

    from ebpo.prompts import TEMPLATES, render_set, tokenizer_digest, write_prompts

    job = read_section(args.config, TypeAdapter(PromptsJob))
    tokenizer = AutoTokenizer.from_pretrained(args.policy, local_files_only=True)
    targets = {
        args.train: args.out / "train.parquet",
        args.validation: args.out / "validation.parquet",
        **{path: args.out / "benchmarks" / path.name for path in args.benchmarks},
    }
    sets = {}
    for source, target in targets.items():
        problems = {p.id: p.problem for p in read_problems(source)}
        try:
            rendered = render_set(
                tokenizer, job.template, problems, job.max_prompt_tokens, may_drop=source == args.train
            )
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        write_prompts(target, rendered.prompts)
        sets[target.relative_to(args.out).with_suffix("").as_posix()] = rendered.facts
    template = TEMPLATES[job.template]
    write_json(
        args.out / "prompts.json",
        {
            "template": {"name": job.template, **asdict(template)},
            "max_prompt_tokens": job.max_prompt_tokens,
            "tokenizer_sha256": tokenizer_digest(args.policy),
            "sets": sets,
        },
    )


if __name__ == "__main__":
    run(main)
