"""Paired comparisons by hand, and by their rate of false positives and power in simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ebpo.evaluation.intervals import t_interval
from ebpo.evaluation.paired import holm, p_value, paired_difference, sign_flip_p


def test_by_hand():
    # Differences 1/2, 1/2, 0, -1/4: mean 3/16, sd sqrt(0.140625) = 0.375, se 0.375 / 2, t = 1.
    a, b = np.array([1.0, 0.5, 0.5, 0.25]), np.array([0.5, 0.0, 0.5, 0.5])
    result = paired_difference(a, b)
    assert (result.mean, result.se, result.df) == pytest.approx((0.1875, 0.1875, 3))
    assert result.p == pytest.approx(2 * stats.t.sf(1, 3))
    assert result.high == pytest.approx(0.1875 * (1 + 3.182446))
    assert (result.wins, result.ties, result.losses) == (2, 1, 1)
    assert (result.problems, result.seeds) == (4, 1)
    assert math.isnan(result.seed_sd)
    # Signs of three differences: of 8, (+,+,-), (+,+,+) and their mirrors are as far from 0 as 3/4.
    assert result.p_sign_flip == pytest.approx(4 / 8, abs=0.02)
    assert result.correlation == pytest.approx(np.corrcoef(a, b)[0, 1])


def test_seeds_are_averaged_and_their_spread_reported():
    a = np.array([[0.6, 0.8], [0.8, 1.0]])
    result = paired_difference(a, np.array([[0.5, 0.5], [0.5, 0.5]]))
    assert result.mean == pytest.approx(0.3)
    assert result.seed_sd == pytest.approx(0.2 / math.sqrt(2))
    assert result.seeds == 2
    assert result.se == pytest.approx(math.sqrt(0.02 / 2 + 0.02 / 2))


def test_pairing_beats_independent_errors():
    rng = np.random.default_rng(0)
    hard = rng.random(100)
    a, b = hard + rng.normal(0.02, 0.02, 100), hard
    assert paired_difference(a, b).se < 0.1 * math.hypot(a.std(ddof=1), b.std(ddof=1)) / 10
    assert paired_difference(a, b).p < 1e-6


def test_equal_policies_do_not_differ():
    same = np.array([0.1, 0.9, 0.4])
    result = paired_difference(same, same)
    assert (result.mean, result.se, result.p, result.p_sign_flip, result.ties) == (0, 0, 1, 1, 3)


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match="they must be equal"):
        paired_difference(np.zeros(3), np.zeros(4))


def test_minimum_detectable_difference_is_found_four_times_in_five():
    rng = np.random.default_rng(1)
    noise = rng.normal(0, 0.1, (2_000, 100))
    sample = rng.normal(0, 0.1, 100)
    mde = paired_difference(sample * 0.1 / sample.std(ddof=1), np.zeros(100)).mde
    found = [p_value(d.mean(), d.std(ddof=1) / 10, 99) <= 0.05 for d in noise + mde]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def null_pairs(rng: np.random.Generator, problems: int) -> tuple[np.ndarray, np.ndarray]:
    """Two policies of equal quality that share the problems: 8 completions each, differing on single problems."""
    hard = rng.beta(0.5, 0.5, problems)
    shift = rng.normal(0, 0.1, problems)
    rates = [np.clip(hard + sign * shift, 0, 1) for sign in (1, -1)]
    return rng.binomial(8, rates[0]) / 8, rng.binomial(8, rates[1]) / 8


@pytest.mark.parametrize("problems", [30, 75])
def test_false_positives_at_five_percent(problems):
    # 2,000 tests of a true null: the binomial standard error of 5 % is 0.5 %.
    rng = np.random.default_rng(problems)
    by_t, by_flips = [], []
    for _ in range(2_000):
        a, b = null_pairs(rng, problems)
        d = a - b
        by_t.append(p_value(d.mean(), d.std(ddof=1) / math.sqrt(problems), problems - 1))
        by_flips.append(sign_flip_p([d[None]], flips=400, seed=int(rng.integers(2**31))))
    for values in (by_t, by_flips):
        assert np.mean(np.array(values) <= 0.05) == pytest.approx(0.05, abs=0.015)


def test_false_positives_over_three_seeds_and_two_benchmarks():
    # The spread between training runs is in the test: without it this rate would be several times 5 %.
    rng = np.random.default_rng(8)
    aware, blind = [], []
    for _ in range(1_000):
        runs = rng.normal(0, 0.03, (3, 1))
        strata = [runs + rng.normal(0, 0.1, (3, 60)) for _ in range(2)]
        result = t_interval(strata)
        aware.append(p_value(result.mean, result.se, result.df) <= 0.05)
        blind.append(sign_flip_p(strata, flips=400) <= 0.05)
    assert 0.02 <= np.mean(aware) <= 0.08
    assert np.mean(blind) > 0.25


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1, made monotone.
    adjusted = holm({"a": 0.03, "b": 0.01, "c": 0.5, "d": 0.02})
    assert adjusted == pytest.approx({"a": 0.06, "b": 0.04, "c": 0.5, "d": 0.06})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert holm({}) == {}


def test_holm_keeps_the_rate_of_a_whole_family():
    # Six true nulls, 10,000 families: standard error 0.2 %.
    rng = np.random.default_rng(9)
    family = [min(holm(dict(enumerate(p))).values()) <= 0.05 for p in rng.random((10_000, 6))]
    assert np.mean(family) == pytest.approx(0.05, abs=0.008)


def test_a_p_value_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"a: p-value 1.5 is not in \[0, 1\]"):
        holm({"a": 1.5})
