"""Estimators of one problem's pass@1, pass@k and maj@k from its sampled completions. Pure numpy.

A problem has n scorable completions, c of them correct. An estimate for k < n is the exact mean over all subsets of k
of the n completions, so it does not depend on their order and draws nothing at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Tally(NamedTuple):
    """How the n scorable completions of one problem voted; n is the sum of all three.

    Attributes:
        correct: completions whose answer is correct: one class, whatever their notations.
        wrong: sizes of the classes of equivalent wrong answers.
        abstained: completions without an answer; they do not vote.
    """

    correct: int
    wrong: tuple[int, ...]
    abstained: int

    @property
    def samples(self) -> int:
        """n."""
        return self.correct + sum(self.wrong) + self.abstained


def curve_points(samples: int) -> list[int]:
    """The k of a pass@k curve: 1, 2, 4, ... up to `samples`, and `samples` itself."""
    powers = [2**i for i in range(samples.bit_length())]
    return powers if powers[-1] == samples else [*powers, samples]


def avg_at_n(correct: ArrayLike, samples: ArrayLike) -> Floats:
    """avg@n = c / n, the unbiased estimate of pass@1. Shapes broadcast.

    Raises:
        ValueError: not 0 <= c <= n, or n < 1.
    """
    return pass_at_k(correct, samples, 1)


def pass_at_k(correct: ArrayLike, samples: ArrayLike, k: int) -> Floats:
    """The unbiased estimate 1 - C(n-c, k) / C(n, k) of pass@k (Chen et al. 2021, arXiv 2107.03374), as a product.

    Args:
        correct: c, integers of any shape.
        samples: n, of a shape that broadcasts with it.
        k: 1 <= k <= n.

    Returns:
        Values in [0, 1]: c / n for k = 1; 1 where c > 0, else 0, for k = n.

    Raises:
        ValueError: k is below 1 or above an n, or not 0 <= c <= n.
    """
    c, n = np.broadcast_arrays(np.asarray(correct, dtype=np.int64), np.asarray(samples, dtype=np.int64))
    if ((c < 0) | (c > n)).any():
        raise ValueError("correct: must be between 0 and the number of samples")
    _check_k(k, int(n.min()) if n.size else k)
    # Factor i: the chance that draw i fails too. It is 0 from the draw on at which the failures are used up.
    drawn = np.arange(k)
    fail = np.maximum(n[..., None] - c[..., None] - drawn, 0) / (n[..., None] - drawn)
    estimate: Floats = 1 - fail.prod(axis=-1)
    return estimate


def majority_at_k(tally: Tally, k: int) -> float:
    """maj@k: the expected credit of the majority vote of k completions drawn without replacement.

    Credit is 1 if the class with most votes is the correct one; t tied classes share it, 1/t if one of them is correct.
    If nobody votes it is 0.

    Args:
        tally: the votes of the n completions.
        k: 1 <= k <= n.

    Returns:
        A value in [0, 1]. For k = 1 it equals avg@n; for k = n it is the credit of the whole sample's vote.

    Raises:
        ValueError: k is below 1 or above n.
    """
    _check_k(k, tally.samples)
    total = 0.0
    # Subsets in which the correct class has v votes and every wrong class at most v, by the number t of those with v.
    for v in range(1, min(k, tally.correct) + 1):
        ways = _draws_below(tally, v, k)
        for t in range(ways.shape[1]):
            total += comb(tally.correct, v) * float(ways[k - v, t]) / (t + 1)
    return total / comb(tally.samples, k)


def _draws_below(tally: Tally, v: int, k: int) -> Floats:
    """Number of ways [votes drawn, wrong classes with exactly v] in which no wrong class has more than v votes."""
    most_tied = k // v
    ways = np.zeros((k + 1, most_tied + 1))
    for drawn in range(min(tally.abstained, k) + 1):
        ways[drawn, 0] = comb(tally.abstained, drawn)
    for size in tally.wrong:
        new = np.zeros_like(ways)
        for drawn in range(min(size, v, k) + 1):
            part = comb(size, drawn) * ways[: k + 1 - drawn]
            if drawn < v:
                new[drawn:] += part
            else:
                new[drawn:, 1:] += part[:, :-1]
        ways = new
    return ways


def _check_k(k: int, samples: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k: {k} is not allowed; it must be between 1 and the number of samples, {samples}")


def vote_text(sizes: Sequence[int]) -> str:
    """Sizes of vote classes as a table holds them: `3 1 1`; "" for none."""
    return " ".join(map(str, sorted(sizes, reverse=True)))
