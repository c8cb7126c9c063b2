"""The norm of a round on quadratics, against what the engine does to every unit vector."""

import numpy as np
import pytest

import fedlin
from fedlin.problems.quadratic import Quadratic
from fedlin.theory.quadratic_round import QuadraticRound, full_drop
from quadratics import DIM, TAU, problem


@pytest.mark.parametrize("closed_form", [True, False])
def test_the_norm_is_that_of_the_rounds_matrix(closed_form: bool) -> None:
    weighted = problem(closed_form).weighted(np.arange(1.0, len(TAU) + 1))
    assert isinstance(weighted, Quadratic)
    eta_bar = 3 / weighted.smoothness
    starts = weighted.minimizer + np.eye(DIM)
    plan = fedlin.Plan.scaled(TAU, eta_bar)
    runs = [fedlin.simulate(fedlin.fedlin(), weighted, plan, 1, x0=start) for start in starts]
    columns = np.array([run.x - weighted.minimizer for run in runs])
    # The longest that any combination of the unit vectors becomes.
    longest = np.sqrt(np.linalg.eigvalsh(columns @ columns.T)[-1])
    assert QuadraticRound(weighted).norm(TAU, eta_bar) == pytest.approx(longest, rel=1e-10)
    assert QuadraticRound(weighted).norm(TAU, 1.1 * eta_bar) != pytest.approx(longest, rel=1e-3)


def test_directions_that_a_client_does_not_see() -> None:
    """Of two clients one is flat in each direction: with one step a round is gradient descent on the mean."""
    flat = fedlin.problems.quadratic(np.array([np.diag([2.0, 0.0]), np.diag([0.0, 1.0])]), np.zeros((2, 2)))
    assert isinstance(flat, Quadratic)
    assert QuadraticRound(flat).norm(np.ones(2, int), 0.5) == pytest.approx(1 - 0.5 * 0.5, rel=1e-12)


def test_a_small_drop_keeps_its_digits() -> None:
    drops = full_drop(np.array([1e-12, 0.5, 0.9, 2.0]), np.array([3, 3, 3, 3]))
    np.testing.assert_allclose(drops, [3e-12, 0.875, 0.999, 2.0], rtol=1e-11)
