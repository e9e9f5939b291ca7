"""Distributions of a prompt's pass rate theta over prompts, with exact expectations by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from ebpo.theory.montecarlo import Array

# Gauss rules of n nodes are exact for polynomials up to degree 2n - 1; group sizes up to 64 need 130.
_NODES = 96
_SMOOTH_NODES = 400


@dataclass(frozen=True)
class PassRates:
    """A distribution on [0, 1].

    Attributes:
        name: identifier, such as `u_shaped`.
        label: for figures, such as `U-shaped, Beta(0.5, 0.5)`.
        theta, weight: [n] nodes and weights, so that E[f(theta)] = sum(weight * f(theta)).
        draw: (generator, shape) -> theta.
    """

    name: str
    label: str
    theta: Array
    weight: Array
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]

    def expectation(self, values: Array) -> float:
        """E of a function given by its values [n] at `theta`."""
        return float(self.weight @ values)

    @property
    def mean(self) -> float:
        """mu = E[theta]."""
        return self.expectation(self.theta)

    @property
    def tau2(self) -> float:
        """Var(theta), between prompts."""
        return self.expectation((self.theta - self.mean) ** 2)

    @property
    def sigma2(self) -> float:
        """E[theta (1 - theta)], the mean variance of a reward inside a group."""
        return self.expectation(self.theta * (1 - self.theta))


def beta(a: float, b: float, name: str = "beta", label: str | None = None) -> PassRates:
    """theta ~ Beta(a, b), by Gauss-Jacobi quadrature: exact for polynomials up to degree 191."""
    nodes, weight = special.roots_jacobi(_NODES, b - 1, a - 1)
    return PassRates(
        name,
        label or f"Beta({a:g}, {b:g})",
        (np.asarray(nodes) + 1) / 2,
        np.asarray(weight) / np.sum(weight),
        lambda rng, shape: rng.beta(a, b, shape),
    )


def truncated_normal(mean: float, std: float, name: str = "truncated_normal", label: str | None = None) -> PassRates:
    """theta ~ N(mean, std^2) conditioned on [0, 1], by Gauss-Legendre quadrature."""
    nodes, weight = np.polynomial.legendre.leggauss(_SMOOTH_NODES)
    law = stats.truncnorm(-mean / std, (1 - mean) / std, loc=mean, scale=std)
    theta = (nodes + 1) / 2
    density = weight * law.pdf(theta)
    return PassRates(
        name,
        label or f"N({mean:g}, {std:g}²) on [0, 1]",
        theta,
        density / density.sum(),
        # By inversion, so that the stream of random numbers is numpy's.
        lambda rng, shape: np.asarray(law.ppf(rng.random(shape))),
    )


def point_mass(theta: float, name: str = "point_mass", label: str | None = None) -> PassRates:
    """Every prompt has the same pass rate."""
    return PassRates(
        name, label or f"all {theta:g}", np.array([theta]), np.ones(1), lambda rng, shape: np.full(shape, theta)
    )


PRIORS = (
    point_mass(0.3, label="point mass at 0.3"),
    beta(4, 4, "unimodal", "unimodal, Beta(4, 4)"),
    beta(1, 5, "skewed", "skewed, Beta(1, 5)"),
    truncated_normal(0.4, 0.25, label="N(0.4, 0.25²) on [0, 1]"),
    beta(0.5, 0.5, "u_shaped", "U-shaped, Beta(0.5, 0.5)"),
    beta(0.1, 0.1, "polarised", "polarised, Beta(0.1, 0.1)"),
)
GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64)
