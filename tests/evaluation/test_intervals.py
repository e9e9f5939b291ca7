"""Intervals by hand, against SciPy, and by the share of simulated evaluations whose interval covers the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from ebpo.evaluation.intervals import bca, bootstrap_interval, macro_average, sampling_error, strata_of, t_interval

SIMULATIONS = 2_000


def coverage(low: np.ndarray, high: np.ndarray, truth: float) -> float:
    return float(((low <= truth) & (truth <= high)).mean())


def rates(rng: np.random.Generator, problems: int, mean: float, samples: int = 8) -> np.ndarray:
    """[problems, SIMULATIONS]: pass rates of problems whose difficulty is spread from hopeless to trivial."""
    true = rng.beta(mean, 1 - mean, (problems, SIMULATIONS))
    return rng.binomial(samples, true) / samples


def test_t_interval_by_hand():
    # 0, 1/2, 1: mean 1/2, sd 1/2, se 1/2 / sqrt 3; t with 2 degrees of freedom is 4.302653.
    result = t_interval(np.array([0, 0.5, 1]))
    assert (result.mean, result.se, result.df) == pytest.approx((0.5, 0.5 / math.sqrt(3), 2))
    assert result.high - 0.5 == pytest.approx(4.302653 * 0.5 / math.sqrt(3))
    assert 0.5 - result.low == pytest.approx(result.high - 0.5)


def test_seeds_and_benchmarks_by_hand():
    # Benchmark 1: problem means 0.3, 0.5; benchmark 2: 0.2, 0.4, 0.6. Seed means over both: 0.35, 0.45.
    first, second = np.array([[0.2, 0.4], [0.4, 0.6]]), np.array([[0.2, 0.4, 0.6], [0.2, 0.4, 0.6]])
    result = t_interval([first, second])
    parts = [0.02 / 2 / 4, 0.04 / 3 / 4, 0.005 / 2]
    assert result.mean == pytest.approx(0.4)
    assert result.se == pytest.approx(math.sqrt(sum(parts)))
    assert result.df == pytest.approx(sum(parts) ** 2 / (parts[0] ** 2 / 1 + parts[1] ** 2 / 2 + parts[2] ** 2 / 1))


def test_macro_average_weighs_benchmarks_not_problems():
    assert macro_average(strata_of([np.zeros(10), np.ones(2)])) == 0.5


def test_bootstrap_agrees_with_scipy():
    values = np.random.default_rng(0).beta(0.3, 0.7, 60)
    own = bootstrap_interval(values)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=10_000, method="BCa", rng=np.random.default_rng(1))
    assert own.se == pytest.approx(theirs.standard_error, rel=0.03)
    assert (own.low, own.high) == pytest.approx(tuple(theirs.confidence_interval), abs=0.005)


def test_bootstrap_of_a_macro_average_agrees_with_scipy():
    rng = np.random.default_rng(2)
    a, b = rng.beta(0.3, 0.7, 20), rng.beta(0.9, 0.1, 80)
    own = bootstrap_interval([a, b])
    theirs = stats.bootstrap(
        (a, b), lambda x, y, axis=-1: (x.mean(axis) + y.mean(axis)) / 2, n_resamples=10_000, method="BCa", rng=rng
    )
    assert (own.low, own.high) == pytest.approx(tuple(theirs.confidence_interval), abs=0.006)


def test_same_seed_same_interval():
    values = np.random.default_rng(3).random(20)
    assert bootstrap_interval(values, seed=4) == bootstrap_interval(values, seed=4)
    assert bootstrap_interval(values, seed=4) != bootstrap_interval(values, seed=5)


def test_nothing_solved_is_not_certainty():
    # Wilson's upper end for 0 of 30: z^2 / (30 + z^2).
    low, high = bootstrap_interval(np.zeros(30))[2:4]
    assert (low, high) == pytest.approx((0, 3.841459 / 33.841459), abs=1e-6)
    assert bootstrap_interval(np.ones(30)).low == pytest.approx(1 - high)


def test_sampling_error_by_hand():
    # Rates 1/2 and 1 of 4 completions: variance 1/4 / 3 and 0; of the mean of two problems sqrt(1/12) / 2.
    assert sampling_error([[2, 4]], [[4, 4]]) == pytest.approx(math.sqrt(1 / 12) / 2)
    assert math.isnan(sampling_error([[1, 0]], [[1, 1]]))


@pytest.mark.parametrize("mean", [0.1, 0.3, 0.75])
@pytest.mark.parametrize("problems", [75, 375])
def test_bootstrap_covers_the_truth(problems, mean):
    values = rates(np.random.default_rng(problems), problems, mean)
    _, _, low, high = bca([values], 0.95, 1_000, 0)
    assert 0.93 <= coverage(low, high, mean) <= 0.97


def test_bootstrap_of_the_macro_average_covers_the_truth():
    means = (0.1, 0.3, 0.5, 0.75, 0.9)
    rng = np.random.default_rng(5)
    _, _, low, high = bca([rates(rng, 75, mean) for mean in means], 0.95, 1_000, 0)
    assert 0.93 <= coverage(low, high, float(np.mean(means))) <= 0.97


def test_thirty_problems_cover_a_little_less_at_the_edges():
    # The size of AIME. In the middle the interval holds its promise; near 0 and 1 it is a few percent short of it.
    middle, edge = (
        coverage(*bca([rates(np.random.default_rng(6), 30, mean)], 0.95, 1_000, 0)[2:], mean) for mean in (0.4, 0.05)
    )
    assert 0.93 <= middle <= 0.97
    assert 0.84 <= edge <= 0.93


def test_completions_are_no_independent_trials():
    # The binomial interval over 30 * 8 "trials" claims a width that covers far less than 95 %.
    mean, problems, samples = 0.3, 30, 8
    found = rates(np.random.default_rng(7), problems, mean, samples).mean(axis=0)
    half = 1.96 * np.sqrt(found * (1 - found) / (problems * samples))
    assert coverage(found - half, found + half, mean) < 0.7


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("seed_sd", [0.0, 0.01, 0.05])
def test_t_interval_over_seeds_covers_at_least_what_it_promises(seeds, seed_sd):
    # Run effects, problem effects and their interaction, all additive. With three seeds and training noise that
    # exceeds all else the approximation of the degrees of freedom costs up to two points.
    rng = np.random.default_rng(seeds)
    low, high = [], []
    for _ in range(SIMULATIONS):
        values = 0.5 + rng.normal(0, seed_sd, (seeds, 1)) + rng.normal(0, 0.2, 60) + rng.normal(0, 0.1, (seeds, 60))
        result = t_interval(values)
        low.append(result.low)
        high.append(result.high)
    assert coverage(np.array(low), np.array(high), 0.5) >= 0.93


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "no benchmark"),
        (np.array([0.5]), "at least 2 problems"),
        (np.array([0.5, np.nan]), "no NaN"),
        ([np.zeros((1, 3)), np.zeros((2, 3))], "1 and 2 seeds"),
    ],
)
def test_what_has_no_interval_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        t_interval(values)


def test_a_bootstrap_over_seeds_is_refused():
    with pytest.raises(ValueError, match="2 seeds: the bootstrap is for one"):
        bootstrap_interval(np.zeros((2, 5)))
