"""Speed of the advantage estimators: `make bench-estimator`, or `python benchmarks/bench_estimator.py`.

Ours against Python loops over groups for the same estimators and, where `make env-verl` was run, against verl's
estimators on the same rewards (in verl's environment, in a process of its own, which answers one call at a time so
that the repetitions alternate). Times are processor seconds of the advantages alone, in one thread: other programs on
the machine hardly count. Writes results/bench/estimator.csv.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from measure import REPOSITORY, RESULTS, ratios, write_rows
from torch import Tensor

from ebpo.algorithms.ebpo import EBPOState, ebpo_advantages
from ebpo.algorithms.grpo import grpo_advantages

VERL_PYTHON = REPOSITORY / ".venv-verl" / "bin" / "python"
SIZES = (10_000, 100_000, 1_000_000)
GROUP_SIZE = 10
CLUSTERS = 9
EPSILON = 1e-6
PAIRS = (
    ("ebpo loop", "ebpo"),
    ("grpo loop", "grpo"),
    ("verl grpo", "ebpo"),
    ("verl grpo", "grpo"),
    ("verl grpo_vectorized", "ebpo"),
    ("verl grpo_vectorized", "grpo"),
    (f"ebpo, {CLUSTERS} clusters", "ebpo"),
)
COLUMNS = ("estimator", "rewards", "groups", "repetitions", "median_s", "min_s", "max_s")

Estimator = Callable[[], object]


def problem(rewards: int) -> tuple[Tensor, Tensor]:
    """Rewards 0 and 1 with a success rate of its own for each group, rows in random order."""
    generator = np.random.default_rng(rewards)
    groups = np.repeat(np.arange(rewards // GROUP_SIZE), GROUP_SIZE)
    values = generator.random(rewards) < generator.random(rewards // GROUP_SIZE)[groups]
    order = generator.permutation(rewards)
    return torch.from_numpy(values[order].astype(np.float64)), torch.from_numpy(groups[order])


def group_rows(group_ids: Tensor) -> list[list[int]]:
    """The rows of every group."""
    members: dict[int, list[int]] = defaultdict(list)
    for row, group in enumerate(group_ids.tolist()):
        members[group].append(row)
    return list(members.values())


def variance(values: Sequence[float], mean: float) -> float:
    """With n - 1."""
    return sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)


def grpo_loop(rewards: Tensor, group_ids: Tensor) -> list[float]:
    """GRPO's advantages by a plain Python loop over the groups, without any tensor operation."""
    values = rewards.tolist()
    advantages = [0.0] * len(values)
    for rows in group_rows(group_ids):
        own = [values[row] for row in rows]
        mean = sum(own) / len(own)
        std = variance(own, mean) ** 0.5
        for row in rows:
            advantages[row] = (values[row] - mean) / (std + EPSILON)
    return advantages


def ebpo_loop(rewards: Tensor, group_ids: Tensor) -> list[float]:
    """EBPO's advantages of a first batch by a plain Python loop over the groups (Algorithm 1)."""
    values = rewards.tolist()
    groups = group_rows(group_ids)
    means = [sum(values[row] for row in rows) / len(rows) for rows in groups]
    prior = sum(values) / len(values)
    sigma2, tau2 = variance(values, prior), variance(means, sum(means) / len(means))
    raw = [0.0] * len(values)
    for rows, mean in zip(groups, means, strict=True):
        noise = sigma2 / len(rows)
        shrinkage = noise / (noise + tau2)
        baseline = (1 - shrinkage) * mean + shrinkage * prior
        for row in rows:
            raw[row] = values[row] - baseline
    center = sum(raw) / len(raw)
    std = variance(raw, center) ** 0.5
    return [(value - center) / (std + EPSILON) for value in raw]


def check_loops(rewards: Tensor, group_ids: Tensor) -> None:
    """What is compared must compute the same."""
    for own, other in (
        (ebpo_advantages(rewards, group_ids)[0], ebpo_loop(rewards, group_ids)),
        (grpo_advantages(rewards, group_ids, EPSILON), grpo_loop(rewards, group_ids)),
    ):
        torch.testing.assert_close(own, torch.tensor(other, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def estimators(rewards: Tensor, group_ids: Tensor) -> dict[str, Estimator]:
    """What is measured in this process."""
    clusters = {group: f"cluster{group % CLUSTERS}" for group in range(len(rewards) // GROUP_SIZE)}
    return {
        "ebpo": lambda: ebpo_advantages(rewards, group_ids),
        f"ebpo, {CLUSTERS} clusters": lambda: ebpo_advantages(rewards, group_ids, scope="cluster", clusters=clusters),
        "grpo": lambda: grpo_advantages(rewards, group_ids, EPSILON),
        "ebpo loop": lambda: ebpo_loop(rewards, group_ids),
        "grpo loop": lambda: grpo_loop(rewards, group_ids),
    }


class Verl:
    """verl's estimators in their own process: one line in, one time out."""

    def __init__(self, folder: Path) -> None:
        # Not as a module: verl's environment need not have this project's dependencies.
        self.process = subprocess.Popen(
            [VERL_PYTHON, __file__, "--serve-verl", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def seconds(self, estimator: str, rewards: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([estimator, rewards]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise ChildProcessError(f"verl's process ended with status {self.process.wait()}; see {VERL_PYTHON}")
        return float(line)

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def serve_verl(folder: Path) -> None:
    """The other side of `Verl`: reads requests, measures verl's function on the saved tensors, answers."""
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    torch.set_num_threads(1)
    for line in sys.stdin:
        name, rewards = json.loads(line)
        saved = torch.load(folder / f"{rewards}.pt")
        arguments = {
            "token_level_rewards": saved["rewards"].float().unsqueeze(-1),
            "response_mask": torch.ones(rewards, 1),
            "index": np.array([f"group{group}" for group in saved["group_ids"].tolist()], dtype=object),
        }
        start = time.process_time()
        get_adv_estimator_fn(name)(**arguments)
        print(time.process_time() - start, flush=True)


def measure(repetitions: int) -> dict[tuple[str, int], list[float]]:
    """Processor seconds of every (estimator, number of rewards), the repetitions of the estimators taking turns."""
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        verl = Verl(Path(folder)) if VERL_PYTHON.exists() else None
        if verl is None:
            print(f"{VERL_PYTHON.relative_to(REPOSITORY)} is missing, so verl is not measured: make env-verl")
        for size in SIZES:
            rewards, group_ids = problem(size)
            torch.save({"rewards": rewards, "group_ids": group_ids}, Path(folder) / f"{size}.pt")
            check_loops(rewards, group_ids)
            own = estimators(rewards, group_ids)
            for repetition in range(-1, repetitions):  # the first time of each is not counted
                for name, estimator in own.items():
                    start = time.process_time()
                    estimator()
                    seconds = time.process_time() - start
                    if repetition >= 0:
                        times[name, size].append(seconds)
                for name in ("grpo", "grpo_vectorized") if verl is not None else ():
                    assert verl is not None
                    seconds = verl.seconds(name, size)
                    if repetition >= 0:
                        times[f"verl {name}", size].append(seconds)
        if verl is not None:
            verl.close()
    return times


def state_bytes(steps: int) -> int:
    """Size of the saved prior after a number of batches."""
    rewards, group_ids = problem(SIZES[0])
    state = EBPOState()
    for _ in range(steps):
        _, state, _ = ebpo_advantages(rewards, group_ids, state)
    return sum(len(moments) for prior in state.to_dict().values() for moments in prior.values()) * 8


def report(times: dict[tuple[str, int], list[float]]) -> None:
    """Prints medians, the ratios at the largest size, and how time grows with the number of rewards."""
    names = list(dict.fromkeys(name for name, _ in times))
    for name in names:
        medians = [statistics.median(times[name, size]) for size in SIZES]
        cells = "  ".join(f"{size:>9,}: {1000 * median:>9.1f} ms" for size, median in zip(SIZES, medians, strict=True))
        growth = medians[-1] / medians[-2] / (SIZES[-1] / SIZES[-2])
        print(f"{name:<22} {cells}   time per reward at {SIZES[-1]:,} / at {SIZES[-2]:,}: {growth:.2f}")
    for slow, fast in PAIRS:
        if slow in names:
            middle, low, high = ratios(times[slow, SIZES[-1]], times[fast, SIZES[-1]])
            print(f"{slow} / {fast}: {middle:.1f} times ({low:.1f} to {high:.1f})")
    print(f"saved prior: {state_bytes(1)} bytes of numbers after 1 batch, {state_bytes(20)} after 20")


def write(times: dict[tuple[str, int], list[float]], path: Path) -> None:
    """Writes a row for every (estimator, number of rewards)."""
    table: list[Sequence[object]] = [COLUMNS]
    for (name, size), seconds in times.items():
        numbers = [f"{value:.6f}" for value in (statistics.median(seconds), min(seconds), max(seconds))]
        table.append([name, size, size // GROUP_SIZE, len(seconds), *numbers])
    write_rows(path, table)


def main() -> None:
    """Runs the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "estimator.csv")
    parser.add_argument("--serve-verl", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.serve_verl is not None:
        serve_verl(arguments.serve_verl)
        return
    times = measure(arguments.repetitions)
    report(times)
    write(times, arguments.out)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
