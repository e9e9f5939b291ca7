"""Estimators against hand computation, brute force over all subsets, and simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpo.evaluation.estimators import Tally, avg_at_n, curve_points, majority_at_k, pass_at_k

TALLIES = st.builds(
    Tally, st.integers(0, 4), st.lists(st.integers(1, 3), max_size=3).map(tuple), st.integers(0, 2)
).filter(lambda tally: tally.samples > 0)


def brute_force_majority(tally: Tally, k: int) -> float:
    votes = [0] * tally.correct + [None] * tally.abstained
    for name, size in enumerate(tally.wrong, start=1):
        votes += [name] * size
    credits = []
    for subset in combinations(votes, k):
        cast = [v for v in subset if v is not None]
        most = max((cast.count(v) for v in cast), default=0)
        winners = {v for v in cast if cast.count(v) == most}
        credits.append(1 / len(winners) if 0 in winners else 0.0)
    return float(np.mean(credits))


def test_pass_at_k_by_hand():
    # n = 4, c = 1, k = 2: 1 - C(3,2)/C(4,2) = 1 - 3/6.
    assert pass_at_k(1, 4, 2) == pytest.approx(0.5)
    # n = 5, c = 2, k = 3: 1 - C(3,3)/C(5,3) = 1 - 1/10.
    assert pass_at_k([2, 4], [5, 5], 3) == pytest.approx([0.9, 1.0])


def test_pass_at_1_is_the_share_of_correct_completions():
    assert avg_at_n([0, 1, 8], 8) == pytest.approx([0, 1 / 8, 1])


def test_pass_at_n_is_whether_any_is_correct():
    assert pass_at_k([0, 1, 7], [7, 7, 7], 7) == pytest.approx([0, 1, 1])


def test_pass_at_k_grows_with_k():
    values = [float(pass_at_k(3, 32, k)) for k in range(1, 33)]
    assert values == sorted(values)


@pytest.mark.parametrize("k", [0, 5])
def test_a_k_outside_the_samples_is_refused(k):
    with pytest.raises(ValueError, match=f"k: {k} is not allowed; it must be between 1 and the number of samples, 4"):
        pass_at_k([0, 1], [8, 4], k)
    with pytest.raises(ValueError, match="must be between 1 and the number of samples, 4"):
        majority_at_k(Tally(1, (2,), 1), k)


def test_more_correct_than_samples_is_refused():
    with pytest.raises(ValueError, match="correct: must be between 0"):
        pass_at_k(5, 4, 1)


def test_pass_at_k_is_unbiased():
    rng = np.random.default_rng(0)
    rates = rng.beta(0.1, 0.9, 40_000)
    truth = np.mean(1 - (1 - rates) ** 16)
    estimate = pass_at_k(rng.binomial(32, rates), 32, 16).mean()
    assert estimate == pytest.approx(truth, abs=0.001)


def test_majority_by_hand():
    # The whole vote: 2 correct, 2 equal wrong ones: a tie of two.
    assert majority_at_k(Tally(2, (2,), 0), 4) == 0.5
    # 1 correct against 1 wrong and 2 abstentions; of the 6 pairs: (c,w) 1/2, (c,-) 1 twice, the others 0.
    assert majority_at_k(Tally(1, (1,), 2), 2) == pytest.approx(2.5 / 6)
    # Three of 2 correct and 2 different wrong ones: ccw 1 (2 pairs), cww 1/3 (2 pairs); 4 subsets.
    assert majority_at_k(Tally(2, (1, 1), 0), 3) == pytest.approx((2 * 1 + 2 / 3) / 4)


def test_nobody_votes_for_nothing():
    assert majority_at_k(Tally(0, (), 5), 3) == 0
    assert majority_at_k(Tally(0, (3,), 0), 3) == 0


@given(TALLIES, st.data())
def test_majority_equals_the_mean_over_all_subsets(tally, data):
    k = data.draw(st.integers(1, tally.samples))
    assert majority_at_k(tally, k) == pytest.approx(brute_force_majority(tally, k))


@given(TALLIES)
def test_majority_of_one_is_the_average(tally):
    assert majority_at_k(tally, 1) == pytest.approx(tally.correct / tally.samples)


def test_majority_of_large_samples_stays_exact():
    # Always right, always wrong, and a vote that 40 of 64 completions decide.
    assert majority_at_k(Tally(256, (), 0), 128) == pytest.approx(1)
    assert majority_at_k(Tally(0, (256,), 0), 128) == 0
    assert majority_at_k(Tally(40, (24,), 0), 63) == pytest.approx(1)


def test_points_of_the_curve():
    assert [curve_points(n) for n in (1, 8, 12, 32)] == [[1], [1, 2, 4, 8], [1, 2, 4, 8, 12], [1, 2, 4, 8, 16, 32]]
