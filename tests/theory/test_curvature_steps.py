"""FedLin with Newton's steps and with momentum: what the proofs of their steps say, on draws and in the limits."""

import numpy as np
import pytest

import fedlin
from fedlin.claims.open_newton_steps import similar_quadratics
from fedlin.errors import ArgumentError, UnknownError
from fedlin.theory import bounds
from quadratics import TAU, X0, A, B, problem


def test_the_spread_is_that_of_the_definition_and_within_its_limits() -> None:
    """M of the two means by hand; at least 1, and (κ + 1)²/(4κ) at most."""
    product = np.mean(np.linalg.inv(A), axis=0) @ A.mean(axis=0)
    spread = fedlin.theory.curvature_spread(problem())
    assert spread == pytest.approx(np.max(np.real(np.linalg.eigvals(product))), rel=1e-10)
    kappa = problem().condition
    assert 1 < spread < (kappa + 1) ** 2 / (4 * kappa)


def test_two_clients_at_the_ends_of_the_spectrum_attain_the_limit() -> None:
    two = fedlin.problems.quadratic([[[1.0]], [[9.0]]], [[1.0], [0.0]])
    # Weights of μ and L in the mean are equal, at h = (μ + L)/2, where the limit is attained.
    assert fedlin.theory.curvature_spread(two) == pytest.approx(10**2 / (4 * 9))


@pytest.mark.parametrize("draw", range(4))
def test_similar_curvatures_bound_the_spread(draw: int) -> None:
    """aH ⪯ A_i ⪯ bH gives M ≤ (a + b - 1)/(ab), whatever κ is."""
    for kappa in (1e1, 1e5):
        instance = similar_quadratics(draw, kappa)
        inverse = np.linalg.inv(np.linalg.cholesky(instance.hessian))
        relative = np.linalg.eigvalsh(inverse @ instance.data.A @ inverse.T)
        low, high = relative.min(), relative.max()
        assert low < 0.9
        assert fedlin.theory.curvature_spread(instance) <= (low + high - 1) / (low * high) * (1 + 1e-9)


def test_clients_of_one_curvature_are_done_in_one_round() -> None:
    same = fedlin.problems.quadratic(np.repeat(A[:1], len(A), axis=0), B)
    result = fedlin.simulate(fedlin.fedlin_newton(), same, fedlin.theory.fedlin_newton(same), 1, x0=X0)
    assert result.gap[1] < 1e-24 * result.gap[0]
    np.testing.assert_array_equal(bounds.fedlin_newton(same, 1, 1.0).round(12), [1.0, 0.0])


@pytest.mark.parametrize("tau", [1, 3])
def test_the_bound_holds_whatever_the_number_of_local_steps(tau: int) -> None:
    result = fedlin.simulate(fedlin.fedlin_newton(), problem(), fedlin.theory.fedlin_newton(problem(), tau), 12, x0=X0)
    bound = bounds.fedlin_newton(problem(), 12, result.gap[0])
    seen = bound > 1e-12 * bound[0]
    assert np.all(result.gap[seen] <= bound[seen] * (1 + 1e-9))


def test_what_has_no_curvature_to_invert_is_refused() -> None:
    flat = fedlin.problems.quadratic(np.zeros((2, 1, 1)), np.zeros((2, 1)))
    with pytest.raises(UnknownError, match="l2"):
        fedlin.theory.curvature_spread(flat)
    with pytest.raises(ArgumentError, match="strongly convex"):
        fedlin.simulate(fedlin.fedlin_newton(), flat, fedlin.Plan(1, 1.0), 1)
    with pytest.raises(UnknownError, match="quadratics"):
        bounds.fedlin_newton(fedlin.problems.logistic(np.ones((1, 2, 1)), np.ones((1, 2)), l2=1.0), 1, 1.0)


def test_the_round_of_fedlin_has_the_spectrum_that_momentum_relies_on() -> None:
    """Eigenvalues of PH in [c/κ, 1] at η̄ = 1/L, and the two numbers of each within 1 - √q."""
    L, kappa = problem().smoothness, problem().condition
    each = [
        np.linalg.inv(Ai) @ (np.eye(len(Ai)) - np.linalg.matrix_power(np.eye(len(Ai)) - Ai / (L * steps), steps))
        for Ai, steps in zip(A, TAU, strict=True)
    ]
    values = np.real(np.linalg.eigvals(np.mean(each, axis=0) @ A.mean(axis=0)))
    beta = fedlin.theory.momentum_factor(problem(), TAU)
    root = (1 - beta) / (1 + beta)  # √q
    assert root**2 * kappa == pytest.approx(1 - (1 - 1 / TAU.max()) ** TAU.max())
    assert root**2 <= values.min() <= values.max() <= 1
    pairs = [np.roots([1, -(1 + beta) * (1 - value), beta * (1 - value)]) for value in values]
    assert np.max(np.abs(pairs)) <= (1 - root) * (1 + 1e-12)
