"""Comparisons of two policies on the same problems (Miller 2024, arXiv 2411.00640), and correction for many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy import stats

from ebpo.evaluation.intervals import Floats, Strata, Values, macro_average, seed_means, strata_of, t_interval

SIGN_FLIPS = 10_000
POWER = 0.8

Name = TypeVar("Name")


class PairedDifference(NamedTuple):
    """The difference a - b of two policies, or of two methods over seeds.

    Attributes:
        mean: macro-average of a - b.
        se, low, high, df: of `t_interval` on the differences: over problems and, with several seeds, over seeds too.
        p: two-sided p-value that belongs to that interval.
        p_sign_flip: two-sided p-value of the sign-flip permutation test over problems, differences averaged over the
            seeds. It asks about these very policies; it knows nothing of the spread between training runs.
        mde: smallest true difference that such a comparison finds with probability 0.8 at the level of the interval.
        wins, ties, losses: problems on which a is better, equal, worse, averaged over the seeds.
        correlation: of a and b over problems: what pairing gains. NaN where one of them is constant.
        problems, seeds: how many of each.
        seed_sd: standard deviation of the seeds' differences (n - 1); NaN for one seed.
    """

    mean: float
    se: float
    low: float
    high: float
    df: float
    p: float
    p_sign_flip: float
    mde: float
    wins: int
    ties: int
    losses: int
    correlation: float
    problems: int
    seeds: int
    seed_sd: float


def paired_difference(a: Values, b: Values, level: float = 0.95, seed: int = 0) -> PairedDifference:
    """Compares two policies problem by problem, and seed by seed.

    Args:
        a: values of the first, see `ebpo.evaluation.intervals.strata_of`.
        b: values of the second: the same benchmarks, seeds and problems in the same order.
        level: coverage of the interval, in (0, 1).
        seed: of the sign flips.

    Raises:
        ValueError: the shapes differ, or see `strata_of`.
    """
    of_a, of_b = strata_of(a), strata_of(b)
    if [s.shape for s in of_a] != [s.shape for s in of_b]:
        raise ValueError(
            f"a has benchmarks of shapes {[s.shape for s in of_a]}, b of {[s.shape for s in of_b]}: they must be equal"
        )
    strata = [x - y for x, y in zip(of_a, of_b, strict=True)]
    interval, flipped = t_interval(strata, level), sign_flip_p(strata, seed)
    over_seeds = np.concatenate([s.mean(axis=0) for s in strata])
    # A mean of floats that is 0 but for rounding is a tie.
    signs = np.sign(np.round(over_seeds, 12))
    seeds = len(strata[0])
    return PairedDifference(
        *interval[:3],
        high=interval.high,
        df=interval.df,
        p=p_value(interval.mean, interval.se, interval.df) if interval.se > 0 else flipped,
        p_sign_flip=flipped,
        mde=float(stats.t.ppf(0.5 + level / 2, interval.df) + stats.t.ppf(POWER, interval.df)) * interval.se,
        wins=int((signs > 0).sum()),
        ties=int((signs == 0).sum()),
        losses=int((signs < 0).sum()),
        correlation=_correlation(of_a, of_b),
        problems=len(over_seeds),
        seeds=seeds,
        seed_sd=float(seed_means(strata).std(ddof=1)) if seeds > 1 else float("nan"),
    )


def p_value(mean: float, se: float, df: float) -> float:
    """Two-sided p-value of Student's t test against 0; se > 0."""
    return float(2 * stats.t.sf(abs(mean) / se, df))


def sign_flip_p(strata: Strata, seed: int = 0, flips: int = SIGN_FLIPS) -> float:
    """Two-sided p-value of the macro-average when the sign of every problem's difference is a coin flip.

    (1 + number of flips with an average at least as far from 0) / (1 + flips), so it is never 0.
    """
    rng = np.random.default_rng([seed, 1])
    totals = np.zeros(flips)
    for stratum in strata:
        differences = stratum.mean(axis=0)
        moved = differences[differences != 0]
        kept = rng.integers(0, 2, size=(flips, len(moved)), dtype=np.int8).astype(np.float64)
        totals += (2 * (kept @ moved) - moved.sum()) / len(differences) / len(strata)
    # Flips that reproduce the observed average exactly count, whatever the rounding.
    return float((1 + (np.abs(totals) >= abs(macro_average(strata)) - 1e-12).sum()) / (1 + flips))


def holm(p_values: Mapping[Name, float]) -> dict[Name, float]:
    """Holm's step-down adjusted p-values of a family of tests: reject at 0.05 what is at most 0.05.

    Raises:
        ValueError: a p-value is not in [0, 1].
    """
    for name, p in p_values.items():
        if not 0 <= p <= 1:
            raise ValueError(f"{name}: p-value {p} is not in [0, 1]")
    adjusted: dict[Name, float] = {}
    running = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda n: p_values[n])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = running
    return {name: adjusted[name] for name in p_values}


def _correlation(a: Sequence[Floats], b: Sequence[Floats]) -> float:
    x, y = (np.concatenate([s.mean(axis=0) for s in strata]) for strata in (a, b))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])
