from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ebpo.algorithms.moments import Moments


def test_exact_against_numpy_with_a_large_offset():
    values = np.random.default_rng(0).normal(size=1_000_000) + 1e9
    moments = Moments.of(torch.from_numpy(values))
    assert moments.mean == pytest.approx(values.mean(), rel=1e-15)
    assert moments.variance == pytest.approx(values.var(ddof=1), rel=1e-9)


@given(
    st.lists(st.floats(-10, 10), min_size=2, max_size=60),
    st.integers(1, 59),
    st.randoms(use_true_random=False),
)
def test_split_and_order_do_not_matter(values, cut, rng):
    whole = Moments.of(torch.tensor(values, dtype=torch.float64))
    shuffled = list(values)
    rng.shuffle(shuffled)
    cut = min(cut, len(values) - 1)
    parts = [Moments.of(torch.tensor(p, dtype=torch.float64)) for p in (shuffled[:cut], shuffled[cut:])]
    merged = parts[0].merge(parts[1])
    assert merged.count == whole.count
    assert merged.mean == pytest.approx(whole.mean, abs=1e-12)
    assert merged.m2 == pytest.approx(whole.m2, abs=1e-10)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_a_hundred_parts_in_any_order_give_the_same_to_1e_12(offset):
    rng = np.random.default_rng(1)
    values = rng.random(100_000) + offset
    whole = Moments.of(torch.from_numpy(values))
    cuts = np.sort(rng.choice(len(values), 99, replace=False))
    parts = [Moments.of(torch.from_numpy(p)) for p in np.split(rng.permutation(values), cuts)]
    merged = Moments()
    for i in rng.permutation(len(parts)):
        merged = merged.merge(parts[i])
    assert merged.count == whole.count
    assert merged.mean == pytest.approx(whole.mean, rel=1e-12)
    assert merged.m2 == pytest.approx(whole.m2, rel=1e-12)


@pytest.mark.parametrize("value", [0.1, 0.35, 1e9 + 0.1])
def test_constant_values_have_variance_exactly_zero(value):
    moments = Moments()
    for _ in range(50):
        moments = moments.merge(Moments.of(torch.full((7,), value, dtype=torch.float64)))
    assert moments.variance == 0.0


def test_decay_halves_the_weight_and_keeps_mean_and_variance_of_the_past():
    old, new = Moments.of(torch.tensor([0.0, 0.0])), Moments.of(torch.tensor([1.0]))
    # weights 1, 1 become 0.5, 0.5: mean (0 + 1) / (1 + 1)
    assert old.decay(0.5).merge(new).mean == 0.5


def test_state_survives_a_round_trip():
    moments = Moments.of(torch.tensor([0.1, 0.7, 0.3]))
    assert Moments.from_dict(moments.to_dict()) == moments
