"""T5: law of total variance, priors per topic, and the lag of plain Welford."""

from __future__ import annotations

import numpy as np
import pytest

from ebpo.algorithms.moments import Moments
from ebpo.theory.baseline_mse import offset_tolerated
from ebpo.theory.clustering import (
    TOPIC_MEANS,
    by_topic,
    decompose,
    lag_share,
    optimal_mse,
    simulate,
    simulate_known_priors,
    topics_of,
)
from ebpo.theory.priors import beta


def test_the_variance_is_that_inside_topics_plus_that_between():
    parts = decompose()
    assert parts.total == pytest.approx(parts.inside + parts.between)
    topics = [beta(8 * mean, 8 * (1 - mean)) for mean in TOPIC_MEANS]
    overall = np.mean([t.mean for t in topics])
    assert parts.total == pytest.approx(np.mean([t.tau2 + (t.mean - overall) ** 2 for t in topics]))


def test_a_prior_per_topic_is_never_worse():
    for size in (1, 4, 64):
        values = optimal_mse(size)
        assert values["cluster"] < values["global"] < values["grpo"]


def test_topics_alike_leave_nothing_to_gain():
    values = optimal_mse(4, np.full(9, 0.3))
    assert values["cluster"] == pytest.approx(values["global"])


@pytest.mark.parametrize(("block", "into"), [(1, 0.5), (2, 1.0), (9, 0.5)])
def test_lag_of_the_trained_moments(block, into):
    import torch

    # Earlier blocks all 0, the current one all 1, 100 rewards a block.
    old, new = torch.zeros((block - 1) * 100), torch.ones(int(into * 100))
    moments = Moments.of(old).merge(Moments.of(new))
    assert 1 - moments.mean == pytest.approx(lag_share(block, into))


def test_even_at_the_end_of_the_second_block_half_the_way_is_left():
    assert lag_share(2, 1.0) == 0.5
    assert lag_share(9, 1.0) == pytest.approx(8 / 9)


@pytest.mark.parametrize("stream", ["random", "topic", "interleaved"])
def test_streams_hold_each_topic_as_often(stream):
    topics = topics_of(stream, 90, 9, 3, np.random.default_rng(0))
    assert topics.shape == (3, 90, 9)
    shares = np.bincount(topics.flatten(), minlength=9) / topics.size
    np.testing.assert_allclose(shares, 1 / 9, atol=0.03 if stream == "random" else 1e-12)
    assert len(np.unique(topics[0, 0])) == 1 or stream != "topic"
    assert len(np.unique(topics[0, 0])) == 9 or stream != "interleaved"


@pytest.mark.parametrize(("stream", "steps", "told"), [("sorted", 9, "allowed: random"), ("topic", 10, "multiple")])
def test_streams_name_what_is_allowed(stream, steps, told):
    with pytest.raises(ValueError, match=told):
        topics_of(stream, steps, 4, 2, np.random.default_rng(0))


def test_known_priors_meet_the_closed_form():
    frame = simulate_known_priors(300, 450, 4, seed=1)
    assert ((frame.simulated - frame.analytic).abs() < 4.5 * frame.standard_error).all()


def test_one_prior_over_topics_loses_at_both_ends():
    frame = by_topic(100, 200, 4, seed=2)
    assert ((frame.simulated - frame.analytic).abs() < 4.5 * frame.standard_error).all()
    ratio = frame.pivot(index="topic_mean", columns="estimator", values="analytic").eval("ebpo / grpo").to_numpy()
    assert ratio[0] > 1.2
    assert ratio[-1] > 1.2
    assert ratio[4] < 0.7


def test_the_ends_lie_beyond_the_tolerated_offset():
    tau2 = 0.09 / 9
    shrinkage = 0.24 / 0.74
    assert offset_tolerated(shrinkage, 0.09 - tau2, tau2, 4) < 0.4


def test_ordering_by_topic_helps_welford_little_and_forgetting_moments_much():
    _, summary = simulate(16, 90, 32, 4, 128.0, seed=3)
    mse = summary[summary.quantity == "mse"].set_index(["stream", "estimator"]).simulated
    gain = mse["random", "ebpo"] - mse["random", "cluster"]
    assert mse["random", "ebpo"] - mse["topic", "ebpo"] < 0.35 * gain
    assert mse["topic", "half_life"] < mse["topic", "ebpo"]
    assert mse["random", "half_life"] == pytest.approx(mse["random", "ebpo"], rel=0.03)


def test_the_batch_normalisation_lets_an_ordered_stream_use_its_batch_mean():
    _, summary = simulate(16, 90, 32, 4, 128.0, seed=3)
    table = summary.set_index(["stream", "estimator", "quantity"]).simulated
    assert table["topic", "ebpo", "effective_mse"] < 0.85 * table["topic", "ebpo", "mse"]
    assert table["random", "ebpo", "effective_mse"] == pytest.approx(table["random", "ebpo", "mse"], rel=0.05)
