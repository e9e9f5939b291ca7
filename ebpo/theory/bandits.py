"""Softmax policies on bandits with binary rewards: one bandit per prompt, so that every expectation is exact.

Completions of a prompt are arms, some of them correct. With a reward in {0, 1} the advantage of a completion takes two
values in a group, A1(k) and A0(k) given the k successes, and right and wrong arms are drawn independently given k. All
first and second moments of an update follow from a sum over the successes of each group.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from ebpo.theory.montecarlo import Array

# Counts [..., M] and G in, advantages of a right and of a wrong completion [..., M] out.
Advantages = Callable[[Array, int], tuple[Array, Array]]


@dataclass(frozen=True)
class Bandits:
    """Policies of M prompts over K arms.

    Attributes:
        probability: [..., M, K], rows add up to 1.
        correct: [M, K] bool, some but not all arms of a prompt.
    """

    probability: Array
    correct: np.ndarray

    @property
    def theta(self) -> Array:
        """[..., M] pass rates."""
        return np.asarray((self.probability * self.correct).sum(-1))

    @property
    def entropy(self) -> Array:
        """[..., M] in nats."""
        return np.asarray(special.entr(self.probability).sum(-1))

    @property
    def gradient(self) -> Array:
        """[..., M, K] d theta / d logits, pi (r - theta)."""
        return self.probability * (self.correct - self.theta[..., None])

    @property
    def covariance(self) -> Array:
        """[..., M] C = Cov_pi(log pi, pi (r - theta)): how fast an ascent on theta takes entropy away."""
        return -entropy_change(self.probability, self.gradient)

    def sample(self, rng: np.random.Generator, size: int, shape: tuple[int, ...] = ()) -> Array:
        """[*shape, ..., M, K] how often each arm was drawn in a group of `size`."""
        law = np.broadcast_to(self.probability, (*shape, *self.probability.shape))
        return rng.multinomial(size, law).astype(np.float64)


def entropy_change(probability: Array, step: Array) -> Array:
    """First-order change of the entropy of softmax policies, -Cov_{a ~ pi}(log pi(a), step(a)).

    From dH/dz_a = -pi_a (log pi_a + H). For a policy-gradient step on logits, step = eta * rho * pi (A - E[A]); for a
    natural-gradient step, step = eta * A, which gives the form of arXiv 2505.22617.

    Args:
        probability: [..., K].
        step: [..., K] change of the logits.
    """
    logp = np.log(np.where(probability > 0, probability, 1.0))
    mean = (probability * step).sum(-1)
    return np.asarray(-(probability * logp * step).sum(-1) - special.entr(probability).sum(-1) * mean)


def make_bandits(theta: Array, arms: int, right: int, rng: np.random.Generator, spread: float = 1.0) -> Bandits:
    """Bandits with given pass rates; logits are normal inside the right and inside the wrong arms.

    Args:
        theta: [M] in (0, 1).
        arms: K.
        right: number of correct arms, below K.
        rng: for the logits.
        spread: standard deviation of the logits.
    """
    prompts = len(theta)
    correct = np.broadcast_to(np.arange(arms) < right, (prompts, arms))
    logits = spread * rng.standard_normal((prompts, arms))
    inside = np.where(
        correct,
        special.softmax(np.where(correct, logits, -np.inf), axis=-1),
        special.softmax(np.where(correct, -np.inf, logits), axis=-1),
    )
    return Bandits(inside * np.where(correct, theta[:, None], 1 - theta[:, None]), correct)


def group_step(drawn: Array, bandits: Bandits, size: int, success: Array, failure: Array) -> Array:
    """Policy-gradient estimate on the logits, (1/G) sum_i A_i (onehot(a_i) - pi), [..., M, K].

    Args:
        drawn: [..., M, K] from `Bandits.sample`; a completion that is left out lowers its count.
        bandits: the policies.
        size: G, by which the sum is divided.
        success, failure: [..., M] advantages of a right and of a wrong completion.
    """
    weighted = drawn * np.where(bandits.correct, success[..., None], failure[..., None])
    return np.asarray((weighted - bandits.probability * weighted.sum(-1, keepdims=True)) / size)


def expected_weight(theta: Array, size: int, advantages: Advantages) -> Array:
    """rho(theta): the expected estimate is rho(theta) d theta / d logits, for an advantage of the own group alone.

    With w1 = E[(k/G) A1] and w0 = E[(1 - k/G) A0], rho = w1 / theta - w0 / (1 - theta). A fixed baseline has rho = 1,
    the group mean (G - 1)/G; GRPO's is near 1/sigma_q only for large G.

    Args:
        theta: [...] in (0, 1).
        size: G.
        advantages: of a group by itself, such as GRPO's.
    """
    flat = theta.reshape(-1)
    counts = np.arange(size + 1, dtype=np.float64)
    success, failure = (values[:, 0] for values in advantages(counts[:, None], size))
    chance = binomial(counts[:, None], size, flat)
    right = (counts / size * success) @ chance
    wrong = ((size - counts) / size * failure) @ chance
    return np.asarray((right / flat - wrong / (1 - flat)).reshape(theta.shape))


def binomial(counts: Array, size: int, theta: Array) -> Array:
    """Probability of `counts` successes in `size` draws; broadcasts."""
    return np.asarray(special.binom(size, counts) * theta**counts * (1 - theta) ** (size - counts))


@dataclass(frozen=True)
class Scores:
    """Moments of a completion's score s = onehot(a) - pi, given that it is right (1) or wrong (0).

    Attributes:
        right, wrong: [M, K] means.
        right_square, wrong_square: [M] E[|s|^2].
    """

    right: Array
    wrong: Array
    right_square: Array
    wrong_square: Array

    @classmethod
    def of(cls, bandits: Bandits) -> Scores:
        """The moments of policies with probabilities [M, K]."""
        pi, correct, theta = bandits.probability, bandits.correct, bandits.theta[:, None]
        right, wrong = np.where(correct, pi, 0) / theta, np.where(correct, 0, pi) / (1 - theta)
        # |onehot(a) - pi|^2 = 1 - 2 pi_a + |pi|^2, averaged over the arms of each kind.
        norm = 1 + (pi**2).sum(-1)
        return cls(right - pi, wrong - pi, norm - 2 * (right * pi).sum(-1), norm - 2 * (wrong * pi).sum(-1))

    def second_moment(self, counts: Array, size: int, success: Array, failure: Array) -> Array:
        """E[|group_step|^2] of each group given its successes; all arguments [..., M]."""
        rr, ww = (self.right**2).sum(-1), (self.wrong**2).sum(-1)
        a, b = counts * success / size, (size - counts) * failure / size
        right, wrong = success**2 * (self.right_square - rr), failure**2 * (self.wrong_square - ww)
        single = counts * right + (size - counts) * wrong
        return np.asarray(single / size**2 + a**2 * rr + b**2 * ww + 2 * a * b * (self.right * self.wrong).sum(-1))


def expected_square(bandits: Bandits, size: int, advantages: Advantages) -> Array:
    """[M] E[|group_step|^2] for an advantage of the own group alone."""
    counts = np.arange(size + 1, dtype=np.float64)[:, None]
    grid = np.broadcast_to(counts, (size + 1, len(bandits.theta)))
    success, failure = advantages(grid, size)
    given = Scores.of(bandits).second_moment(grid, size, success, failure)
    return np.asarray((binomial(counts, size, bandits.theta) * given).sum(0))


@dataclass(frozen=True)
class ExactGradient:
    """Mean [M, K] and total variance (trace of the covariance) of a batch's policy-gradient estimate."""

    mean: Array
    variance: float


def exact_gradient(bandits: Bandits, size: int, advantages: Advantages) -> ExactGradient:
    """Moments of the estimate (1/M) sum_q group_step by enumeration of all (G + 1)^M success counts.

    The advantage may depend on the whole batch. The state of an estimator with a history is the caller's.
    """
    theta, prompts = bandits.theta, len(bandits.theta)
    counts = np.array(list(itertools.product(range(size + 1), repeat=prompts)), dtype=np.float64)
    chance = binomial(counts, size, theta).prod(1)
    success, failure = advantages(counts, size)
    scores = Scores.of(bandits)
    # Given the counts, the groups' arms are independent; the mean over outcomes needs two sums a prompt.
    right, wrong = chance @ (counts * success / size), chance @ ((size - counts) * failure / size)
    mean = (right[:, None] * scores.right + wrong[:, None] * scores.wrong) / prompts
    # The prompts' logits are different parameters, so their squares add up.
    square = scores.second_moment(counts, size, success, failure).sum(-1)
    return ExactGradient(mean, float(chance @ square) / prompts**2 - float((mean**2).sum()))
