"""A few EBPO steps through TRL with scripted rewards, which a test runs in one and in two processes.

`torchrun trl_processes.py FOLDER PER_DEVICE_BATCH` where there are several.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from ebpo.integrations.trl import EBPOConfig, EBPOTrainer

POLICY = Path(__file__).resolve().parents[2] / "config" / "policy"
RANK = int(os.environ.get("RANK", "0"))


def scripted(prompts: list[str], trainer_state: Any, **_: Any) -> list[float | None]:
    """Reward of a row by its place in the whole generation batch, so that one and two processes see the same."""
    first, step = RANK * len(prompts), trainer_state.global_step
    rows = range(first, first + len(prompts))
    return [None if (row + step) % 11 == 0 else float((7 * row + 3 * step) % 5 < 2) for row in rows]


class Recorder(EBPOTrainer):
    """Keeps the gathered advantages of every generation batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.seen: list[list[float]] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.seen.append(self.accelerator.gather(output["advantages"]).tolist())
        return output


def train(folder: Path, per_device: int) -> None:
    """Trains, and writes what this process has seen to rank{r}.json in the folder."""
    torch.set_num_threads(1)
    folder.mkdir(exist_ok=True)
    arguments = EBPOConfig(
        output_dir=str(folder / "checkpoints"),
        per_device_train_batch_size=per_device,
        gradient_accumulation_steps=3,
        max_completion_length=2,
        max_steps=4,
        save_steps=4,
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Recorder(
        model=str(POLICY),
        reward_funcs=scripted,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": [f"What is {n} plus {n}?\n" for n in range(12)]}),
    )
    trainer.train()
    result = {"prior": trainer.ebpo_state.to_dict(), "advantages": trainer.seen}
    (folder / f"rank{RANK}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
