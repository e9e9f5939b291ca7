"""Collecting a step's rollouts: sample, grade, and for DAPO keep sampling until enough groups are mixed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ebpo.algorithms.groups import group_rewards
from ebpo.grading import Grader, Verdict, VerdictCounts
from ebpo.problems.record import Problem
from ebpo.rollouts.graded import accuracy_of, verdicts_of
from ebpo.rollouts.protocol import Completion, Rollouts, Sampling
from ebpo.training.processes import Processes
from ebpo.training.stream import PromptStream


@dataclass
class RolloutBatch:
    """N = groups * G completions, row by row.

    Attributes:
        problem_ids, completions, group_ids: per row; a group id is new for every draw of a prompt.
        accuracy: 1 correct, 0 wrong, NaN unscorable.
    """

    problem_ids: list[str] = field(default_factory=list)
    completions: list[Completion] = field(default_factory=list)
    group_ids: list[int] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    def extend(self, other: RolloutBatch) -> None:
        self.problem_ids += other.problem_ids
        self.completions += other.completions
        self.group_ids += other.group_ids
        self.accuracy += other.accuracy

    def groups(self, wanted: set[int]) -> RolloutBatch:
        """The rows of the wanted groups, order kept."""
        rows = [i for i, g in enumerate(self.group_ids) if g in wanted]
        return RolloutBatch(
            [self.problem_ids[i] for i in rows],
            [self.completions[i] for i in rows],
            [self.group_ids[i] for i in rows],
            [self.accuracy[i] for i in rows],
        )

    def tensors(self) -> tuple[Tensor, Tensor]:
        """(accuracy [N] float64, group ids [N] int64)."""
        return torch.tensor(self.accuracy, dtype=torch.float64), torch.tensor(self.group_ids)


@dataclass(frozen=True)
class Collected:
    """A step's rollouts before and after the gate.

    Attributes:
        sampled: everything that was sampled; curves of reward and accuracy are made of this.
        trained: what the update sees.
        rounds: rollout rounds.
        verdicts: the grader's reasons, counted.
    """

    sampled: RolloutBatch
    trained: RolloutBatch
    rounds: int
    verdicts: VerdictCounts


def mixed_groups(batch: RolloutBatch) -> list[int]:
    """Ids of the groups whose raw accuracy is neither all 0 nor all 1, in sampling order."""
    accuracy, ids = batch.tensors()
    groups = group_rewards(accuracy, ids)
    mixed = set(groups.ids[~groups.saturated & groups.occupied].tolist())
    return [g for g in dict.fromkeys(batch.group_ids) if g in mixed]


class Sampler:
    """Samples and grades completions, each process its part of the prompts; every process gets all results.

    Args:
        problems, prompt_ids: by problem id.
        context: inside it, this process can sample on its own.
    """

    def __init__(
        self,
        problems: Mapping[str, Problem],
        prompt_ids: Mapping[str, list[int]],
        rollouts: Rollouts,
        grader: Grader,
        processes: Processes,
        context: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.problems, self.prompt_ids, self.rollouts, self.grader = problems, prompt_ids, rollouts, grader
        self.processes, self.context = processes, context

    def sample(self, ids: Sequence[str], n: int, sampling: Sampling) -> tuple[list[Completion], list[Verdict]]:
        """`n` completions of each problem, problem by problem, and their verdicts."""
        part = self.processes.part(len(ids))
        own, keys = list(ids[part]), range(len(ids))[part]
        with self.context():
            groups = self.rollouts.generate([self.prompt_ids[i] for i in own], n, sampling, keys)
        completions = [c for group in groups for c in group]
        verdicts = verdicts_of(self.grader, [self.problems[i] for i in own for _ in range(n)], completions)
        both = self.processes.gather(list(zip(completions, verdicts, strict=True)))
        return [c for c, _ in both], [v for _, v in both]


def collect(
    stream: PromptStream,
    sampler: Sampler,
    *,
    prompts: int,
    group_size: int,
    sampling: Callable[[int], Sampling],
    max_rounds: int | None,
) -> Collected:
    """Samples `prompts` groups of `group_size`.

    Args:
        sampling: round -> sampling configuration, its own seed in each round.
        max_rounds: None for no gate. Otherwise rounds of `prompts` new prompts follow until there are `prompts`
            mixed groups; surplus groups are dropped. After `max_rounds` the step trains on those there are,
            which may be none.
    """
    sampled, verdicts = RolloutBatch(), VerdictCounts()
    rounds = 0
    while True:
        ids = stream.take(prompts)
        completions, results = sampler.sample(ids, group_size, sampling(rounds))
        verdicts.update(results)
        sampled.extend(
            RolloutBatch(
                problem_ids=[i for i in ids for _ in range(group_size)],
                completions=completions,
                group_ids=[rounds * prompts + group for group in range(prompts) for _ in range(group_size)],
                accuracy=[accuracy_of(v) for v in results],
            )
        )
        rounds += 1
        if max_rounds is None:
            return Collected(sampled, sampled, rounds, verdicts)
        kept = mixed_groups(sampled)[:prompts]
        if len(kept) == prompts or rounds >= max_rounds:
            return Collected(sampled, sampled.groups(set(kept)), rounds, verdicts)
