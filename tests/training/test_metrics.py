"""Every metric of a step by hand, with padding and unscorable completions in the way."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from ebpo.algorithms.settings import DAPOSettings, GRPOSettings
from ebpo.grading import VerdictCounts
from ebpo.rollouts.batch import logprobs_in_chunks, make_batch
from ebpo.rollouts.protocol import Completion
from ebpo.training.collect import Collected, RolloutBatch
from ebpo.training.metrics import (
    advantage_metrics,
    duplicate_fraction,
    masked_mean,
    process_rss_mb,
    rollout_metrics,
    step_kl,
)
from ebpo.training.processes import Processes
from ebpo.training.update import OptimizerBatch, UpdateStatistics, accumulate_gradient

NAN = math.nan


def completion(ids: list[int], reason: str = "stop") -> Completion:
    return Completion(ids, "", reason)


# Groups: 0 all wrong, 1 all right, 2 mixed with an unscorable one, 3 only unscorable.
BATCH = RolloutBatch(
    problem_ids=["a", "a", "b", "b", "c", "c", "c", "d"],
    completions=[
        completion([1, 2]), completion([1, 2]), completion([3]), completion([4, 5, 6], "length"),
        completion([7]), completion([7]), completion([8, 9]), completion([1, 1, 1, 1], "length"),
    ],
    group_ids=[0, 0, 1, 1, 2, 2, 2, 3],
    accuracy=[0.0, 0.0, 1.0, 1.0, 1.0, 0.0, NAN, NAN],
)  # fmt: skip
# The gate keeps the mixed group alone.
COLLECTED = Collected(BATCH, BATCH.groups({2}), rounds=2, verdicts=VerdictCounts())


@pytest.fixture(scope="module")
def metrics():
    shaped = torch.tensor(BATCH.accuracy) - torch.tensor([0.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0])
    return rollout_metrics(COLLECTED, shaped)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", 3 / 6),
        ("accuracy/gated", 1 / 2),
        ("reward", 2.5 / 6),
        ("groups/all_0", 1 / 3),
        ("groups/all_1", 1 / 3),
        ("groups/duplicates", 2 / 8),
        ("completion/length", 16 / 8),
        ("completion/truncated", 2 / 8),
        ("completion/unscorable", 2 / 8),
        ("rounds", 2),
    ],
)
def test_rollout_metrics_by_hand(metrics, name, expected):
    assert metrics[name] == pytest.approx(expected)


def test_rollout_metrics_have_no_other_entry(metrics):
    assert len(metrics) == 10


def test_an_empty_gate_has_no_accuracy_after_it():
    nothing = Collected(BATCH, BATCH.groups(set()), rounds=1, verdicts=VerdictCounts())
    assert "accuracy/gated" not in rollout_metrics(nothing, torch.tensor(BATCH.accuracy))


def test_equal_completions_of_different_groups_are_no_duplicates():
    two = RolloutBatch(["a", "b"], [completion([1]), completion([1])], [0, 1], [0.0, 0.0])
    assert duplicate_fraction(two) == 0


def test_advantage_metrics_by_hand():
    # Mean 0, deviations 3, -1, -2: variance (9 + 1 + 4) / 2 = 7.
    found = advantage_metrics(torch.tensor([3.0, -1.0, -2.0]))
    assert found == pytest.approx({"advantage/mean": 0.0, "advantage/std": math.sqrt(7), "advantage/max": 3.0})


def test_means_are_over_loss_tokens_not_over_rows():
    # Row means are 2 and 10; the token mean is (1 + 2 + 3 + 10) / 4.
    values = torch.tensor([[1.0, 2.0, 3.0], [10.0, 99.0, 99.0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert masked_mean(values, mask) == 4


def test_step_kl_by_hand():
    # d = ln 2 and 0 on the loss tokens: (2 - 1 - ln 2 + 0) / 2.
    old, new = torch.zeros(1, 3), torch.tensor([[math.log(2), 0.0, 5.0]])
    mask = torch.tensor([[True, True, False]])
    assert step_kl(old, new, mask) == pytest.approx((1 - math.log(2)) / 2)


class FixedLogits(torch.nn.Module):
    """Gives the logits of a table by the id at each position; the table is the only parameter."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(table)

    def forward(self, input_ids, logits_to_keep, **_):
        return SimpleNamespace(logits=self.table[input_ids][:, logits_to_keep])


# After id 0 the next id is 1 with probability 3/4, 2 with 1/4; after id 1 both with 1/2; after 2 surely 1.
TABLE = torch.log(torch.tensor([[1e-30, 0.75, 0.25], [1e-30, 0.5, 0.5], [1e-30, 1.0, 1e-30]]))


def test_entropy_is_that_of_the_distributions_that_the_tokens_came_from():
    batch = make_batch([[0], [0]], [completion([1, 2]), completion([2])], 0, "cpu", extra_padding=3)
    logp, entropy = logprobs_in_chunks(FixedLogits(TABLE), batch, 1.0, 1)
    first, second = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), math.log(2)
    torch.testing.assert_close(entropy[:, :2], torch.tensor([[first, second], [first, 0.0]]))
    torch.testing.assert_close(logp[:, :2], torch.tensor([[0.75, 0.5], [0.25, 1.0]]).log())
    assert masked_mean(entropy, batch.mask) == pytest.approx((first + second + first) / 3)


def test_update_metrics_by_hand():
    # Tokens: ratio 0.75 / 0.5 = 1.5 with A > 0 (clipped high), 0.5 / 0.5 = 1, and 0.25 / 0.5 = 0.5 with A < 0
    # (clipped low). The reference equals the policy but on the last token, where d = ln 2.
    batch = make_batch([[0], [0]], [completion([1, 2]), completion([2])], 0, "cpu", extra_padding=3)
    old = torch.where(batch.mask, math.log(0.5), 0.0)
    reference = torch.where(batch.mask, torch.tensor([[0.75, 0.5], [0.25, 1.0]]).log().repeat(1, 3)[:, :5], 0.0)
    reference[1, 0] = math.log(0.5)
    model, settings, processes = FixedLogits(TABLE), GRPOSettings(kl_coef=0.1), Processes("cpu")
    whole = OptimizerBatch.of(settings, batch, old, torch.tensor([1.0, -1.0]), reference, None, max_length=5)
    statistics = UpdateStatistics()
    accumulate_gradient(model, settings, whole, processes, temperature=1.0, micro_batch=1, statistics=statistics)
    statistics.grad_norms.append(2.0)
    found = statistics.finish(processes)
    k3 = 2 - 1 - math.log(2)
    # Row 1: mean of -min(1.5, 1.2) and -1; row 2: -min(0.5 * -1, 0.8 * -1) = 0.8, and the penalty.
    loss = ((-1.2 - 1.0) / 2 + (0.8 + 0.1 * k3)) / 2
    assert found == pytest.approx(
        {
            "loss": loss,
            "clip/low": 1 / 3,
            "clip/high": 1 / 3,
            "ratio/max": 1.5,
            "kl_reference": k3 / 3,
            "updates": 1,
            "updates/skipped": 0,
            "grad_norm": 2.0,
        }
    )


def test_clip_fractions_follow_the_algorithms_range():
    # DAPO's upper end is 1.28: a ratio of 1.25 is inside, for GRPO outside.
    batch = make_batch([[0]], [completion([1])], 0, "cpu")
    old = torch.tensor([[math.log(0.6)]])
    for settings, expected in ((DAPOSettings(), 0.0), (GRPOSettings(kl_coef=0.0), 1.0)):
        whole = OptimizerBatch.of(settings, batch, old, torch.tensor([1.0]), None, None, max_length=5)
        statistics, alone = UpdateStatistics(), Processes("cpu")
        accumulate_gradient(
            FixedLogits(TABLE), settings, whole, alone, temperature=1.0, micro_batch=1, statistics=statistics
        )
        assert statistics.finish(alone)["clip/high"] == expected


def test_resident_memory_grows_with_what_is_held():
    before = process_rss_mb()
    held = torch.ones(100_000_000)
    assert process_rss_mb() - before > 0.8 * held.numel() * 4 / 1e6
