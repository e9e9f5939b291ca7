"""Moments of pass rates against their closed forms, and draws against the moments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ebpo.theory.priors import PRIORS, beta, point_mass, truncated_normal


@pytest.mark.parametrize(("a", "b"), [(4, 4), (1, 5), (0.5, 0.5), (0.1, 0.1)])
def test_beta_moments(a, b):
    prior = beta(a, b)
    assert prior.mean == pytest.approx(a / (a + b))
    assert prior.tau2 == pytest.approx(a * b / (a + b) ** 2 / (a + b + 1))
    assert prior.tau2 / prior.sigma2 == pytest.approx(1 / (a + b))


def test_truncated_normal_moments():
    prior, law = truncated_normal(0.4, 0.25), stats.truncnorm(-1.6, 2.4, 0.4, 0.25)
    assert prior.mean == pytest.approx(law.mean())
    assert prior.tau2 == pytest.approx(law.var())


def test_a_point_mass_does_not_vary():
    assert (point_mass(0.3).tau2, point_mass(0.3).sigma2) == (0, pytest.approx(0.21))


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: prior.name)
def test_total_variance_of_a_reward(prior):
    assert prior.sigma2 + prior.tau2 == pytest.approx(prior.mean * (1 - prior.mean))


@pytest.mark.parametrize("prior", PRIORS, ids=lambda prior: prior.name)
def test_draws_have_the_moments(prior):
    theta = prior.draw(np.random.default_rng(0), (200_000,))
    assert theta.min() >= 0
    assert theta.max() <= 1
    assert theta.mean() == pytest.approx(prior.mean, abs=5e-3)
    assert theta.var() == pytest.approx(prior.tau2, abs=3e-3)
