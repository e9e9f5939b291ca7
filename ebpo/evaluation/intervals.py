"""Standard errors and intervals of a mean over problems, seeds and benchmarks.

Values come as strata, one per benchmark: arrays [S, P] of one value in [0, 1] (or a difference of two) for each of S
seeds, that is training runs, and P problems. All completions of a problem are one cluster: they are averaged
before anything here sees them. The estimate is the macro-average: the mean of the benchmarks' means.

The population is problems of this kind, and with several seeds also training runs. Whether sampling the same
policies on the same problems again would move the score is another question: see `sampling_error`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
Strata = Sequence[Floats]
Values = Floats | Strata

RESAMPLES = 10_000


class Interval(NamedTuple):
    """An estimate with its standard error and interval; `df` are the degrees of freedom, inf if none were used."""

    mean: float
    se: float
    low: float
    high: float
    df: float = float("inf")


def strata_of(values: Values) -> list[Floats]:
    """One array [S, P] per benchmark, from such arrays or from one [P] or [S, P].

    Raises:
        ValueError: there is no stratum, one has fewer than 2 problems or a NaN, or their numbers of seeds differ.
    """
    given = [values] if isinstance(values, np.ndarray) else list(values)
    strata = [np.atleast_2d(np.asarray(s, dtype=np.float64)) for s in given]
    if not strata:
        raise ValueError("no benchmark was given")
    for stratum in strata:
        if stratum.ndim != 2 or stratum.shape[1] < 2 or np.isnan(stratum).any():
            raise ValueError(f"values of shape {stratum.shape}: [seeds, problems], at least 2 problems, no NaN needed")
        if len(stratum) != len(strata[0]):
            raise ValueError(f"benchmarks with {len(strata[0])} and {len(stratum)} seeds cannot be averaged")
    return strata


def macro_average(strata: Strata) -> float:
    """Mean of the benchmarks' means."""
    return float(np.mean([s.mean() for s in strata]))


def t_interval(values: Values, level: float = 0.95) -> Interval:
    """Interval by Student's t over problems and, if there are several, seeds.

    With problem means x_p over S seeds, and seed means m_s over all problems, se^2 = sum_b var(x_p) / P_b / B^2 +
    var(m_s) / S. The interaction of seeds and problems is in both parts, so the error is an upper bound. Degrees of
    freedom by Satterthwaite's approximation over the parts; with few seeds they are few, and the interval is as wide
    as it must be.

    Args:
        values: see `strata_of`.
        level: coverage in (0, 1).

    Raises:
        ValueError: see `strata_of`.
    """
    strata = strata_of(values)
    count = len(strata)
    parts = [(float(s.mean(axis=0).var(ddof=1)) / s.shape[1] / count**2, s.shape[1] - 1) for s in strata]
    seeds = len(strata[0])
    if seeds > 1:
        parts.append((float(seed_means(strata).var(ddof=1)) / seeds, seeds - 1))
    variance = sum(v for v, _ in parts)
    mean, se = macro_average(strata), float(np.sqrt(variance))
    df = variance**2 / sum(v**2 / d for v, d in parts) if variance > 0 else float(parts[-1][1])
    half = float(stats.t.ppf(0.5 + level / 2, df)) * se
    return Interval(mean, se, mean - half, mean + half, df)


def seed_means(strata: Strata) -> Floats:
    """The macro-average of each seed, [S]."""
    means: Floats = np.mean([s.mean(axis=1) for s in strata], axis=0)
    return means


def bootstrap_interval(values: Values, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """BCa bootstrap interval (Efron 1987), clustered on problems, for one seed.

    Whole problems are drawn with replacement within each benchmark. BCa because it covered best of percentile, t and
    BCa in simulation (docs/evaluation.md). A sample without any variance, such as a policy that solves nothing, has no
    bootstrap: its interval is Wilson's with each problem as one trial, since [0, 0] would claim certainty.

    Args:
        values: see `strata_of`; in [0, 1], S = 1. With several seeds use `t_interval`: a bootstrap over a handful
            of seeds is too narrow.
        level: coverage in (0, 1).
        resamples: number of bootstrap samples.
        seed: of the resampling.

    Raises:
        ValueError: see `strata_of`; or there are several seeds.
    """
    strata = strata_of(values)
    if len(strata[0]) > 1:
        raise ValueError(f"{len(strata[0])} seeds: the bootstrap is for one; use t_interval")
    rows = [s[0] for s in strata]
    if all(np.ptp(row) == 0 for row in rows):
        mean, problems = macro_average(strata), sum(map(len, rows))
        wilson = stats.binomtest(round(mean * problems), problems).proportion_ci(level, "wilson")
        return Interval(mean, 0.0, float(wilson.low), float(wilson.high))
    (mean,), (se,), (low,), (high,) = bca([r[:, None] for r in rows], level, resamples, seed)
    return Interval(float(mean), float(se), float(low), float(high))


def bca(strata: Strata, level: float, resamples: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """BCa intervals of many macro-averages at once, which share their resampled problems.

    Args:
        strata: per benchmark [P, M]: M columns of problem values.

    Returns:
        Estimates, their bootstrap standard errors, lower and upper ends, each [M].
    """
    count = len(strata)
    estimate: Floats = np.mean([s.mean(axis=0) for s in strata], axis=0)
    draws = np.zeros((resamples, strata[0].shape[1]))
    for index, stratum in enumerate(strata):
        draws += _weights(len(stratum), resamples, seed + index) @ stratum / count
    below = (draws < estimate).mean(axis=0) + (draws == estimate).mean(axis=0) / 2
    bias = stats.norm.ppf(np.clip(below, 0.5 / resamples, 1 - 0.5 / resamples))
    # Influence of each problem: its deviation, times the weight of its benchmark over its number of problems.
    influence = np.concatenate([(s - s.mean(axis=0)) / (len(s) * count) for s in strata])
    spread = (influence**2).sum(axis=0) ** 1.5
    acceleration = np.divide((influence**3).sum(axis=0), 6 * spread, out=np.zeros_like(spread), where=spread > 0)
    draws.sort(axis=0)
    ends = []
    for z in stats.norm.ppf([0.5 - level / 2, 0.5 + level / 2]):
        share = stats.norm.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))
        place = np.clip(np.rint(share * (resamples - 1)), 0, resamples - 1).astype(np.int64)
        ends.append(np.take_along_axis(draws, place[None], axis=0)[0])
    return estimate, draws.std(axis=0, ddof=1), ends[0], ends[1]


@lru_cache(maxsize=8)
def _weights(problems: int, resamples: int, seed: int) -> Floats:
    """How often each resample draws each problem, over P: [resamples, P]."""
    rng = np.random.default_rng([seed, problems, resamples])
    weights: Floats = rng.multinomial(problems, np.full(problems, 1 / problems), size=resamples) / problems
    return weights


def sampling_error(correct: Sequence[ArrayLike], samples: Sequence[ArrayLike]) -> float:
    """Standard error of the macro-averaged pass@1 on these very problems: would sampling again move the score?

    sqrt(sum_b sum_p x_p (1 - x_p) / (n_p - 1) / P_b^2) / B with x_p = c_p / n_p. It leaves out which problems were
    chosen and which runs were trained, so it is no error of a comparison of methods.

    Args:
        correct: per benchmark [P], correct completions of each problem.
        samples: per benchmark [P], scorable completions of each problem.

    Returns:
        The error; NaN if a problem has a single completion.
    """
    variance = 0.0
    for c, n in zip(correct, samples, strict=True):
        rates, size = np.asarray(c) / np.asarray(n), np.asarray(n)
        if (size < 2).any():
            return float("nan")
        variance += float((rates * (1 - rates) / (size - 1)).sum()) / len(size) ** 2
    return float(np.sqrt(variance)) / len(correct)
