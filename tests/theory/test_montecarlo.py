"""Intervals whose unit is the replication."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ebpo.theory.montecarlo import coverage, estimate, generator, row


def test_interval_by_hand():
    # Mean 2, standard error sqrt(1 / 3); t with 2 degrees of freedom at 0.975 is 4.3027.
    result = estimate(np.array([1.0, 2.0, 3.0]))
    assert result["simulated"] == 2
    assert result["standard_error"] == pytest.approx(3**-0.5)
    assert result["high"] == pytest.approx(2 + 4.3027 * 3**-0.5, abs=1e-4)


def test_intervals_hold_the_truth_as_often_as_they_say():
    # Replications of correlated prompts: the prompts of one share a random mean, so they are no units themselves.
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(2000, 12, 1))
    replications = (shared + rng.normal(size=(2000, 12, 30))).mean(2)
    held = [estimate(r)["low"] <= 0 <= estimate(r)["high"] for r in replications]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("bad", [np.array([1.0]), np.ones((2, 2)), np.array([1.0, np.nan])])
def test_no_interval_from_what_is_no_sample(bad):
    with pytest.raises(ValueError, match="two or more finite replications"):
        estimate(bad)


def test_coverage_counts_rows():
    frame = pd.DataFrame([row(0.0, np.array([-1.0, 1.0])), row(9.0, np.array([0.0, 0.1, 0.2]))])
    assert coverage(frame) == 0.5


def test_each_purpose_has_its_own_stream():
    assert generator(0, "a").random() == generator(0, "a").random()
    assert generator(0, "a").random() != generator(0, "b").random()
