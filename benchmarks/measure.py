"""What the benchmarks share: turns, ratios of pairs, tables, and the policies that are measured.

Imports what it needs where it needs it: bench_estimator.py also runs in verl's environment, which lacks most of it.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ebpo.files import atomic_path

if TYPE_CHECKING:
    from ebpo.config import ExperimentConfig
    from ebpo.problems.record import Problem

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "results" / "bench"
COMMITTED = REPOSITORY / "config" / "policy"
# Name -> (layers, width, maximal completion length); no shape is the committed policy of the demo.
MODELS: dict[str, tuple[tuple[int, int] | None, int]] = {"demo 0.7M": (None, 10), "random 10M": ((8, 320), 32)}


def experiment() -> ExperimentConfig:
    """The demo's experiment."""
    import yaml

    from ebpo.config import parse_config

    return parse_config(yaml.safe_load((REPOSITORY / "config" / "config.yaml").read_text(encoding="utf-8")))


def problems() -> list[Problem]:
    """The demo's training problems; the same in every process."""
    from ebpo.problems.build import build

    return list(build(experiment().data).train)


def make_policy(shape: tuple[int, int] | None, folder: Path) -> Path:
    """The committed policy, or random weights of another size with its tokenizer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from ebpo.policy.loading import load_policy

    if shape is None:
        return COMMITTED
    layers, width = shape
    small, tokenizer = load_policy(COMMITTED)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=small.config.vocab_size, hidden_size=width, num_hidden_layers=layers, head_dim=width // 5,
        num_attention_heads=5, num_key_value_heads=5, intermediate_size=3 * width, max_position_embeddings=512,
        tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def in_turns(sides: Mapping[str, Callable[[], object]], pairs: int, warm_up: int = 1) -> dict[str, list[float]]:
    """Seconds of each side's calls, the sides taking turns, so that the machine's other work meets all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(-warm_up, pairs):
        for name, call in sides.items():
            start = time.perf_counter()
            call()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def ratios(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float, float]:
    """Median, smallest and largest ratio of paired measurements."""
    pairs = [a / b for a, b in zip(slow, fast, strict=True)]
    return statistics.median(pairs), min(pairs), max(pairs)


def spread(values: Sequence[float]) -> list[str]:
    """Median, smallest and largest, as cells of a table."""
    return [f"{value:.4g}" for value in (statistics.median(values), min(values), max(values))]


def write_rows(path: Path, table: Iterable[Sequence[object]]) -> None:
    """Writes a CSV file, the header being the first row."""
    with atomic_path(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(table)


def write_table(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes results/bench/NAME.csv and prints it."""
    table = [list(columns), *([str(cell) for cell in row] for row in rows)]
    write_rows(RESULTS / f"{name}.csv", table)
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
