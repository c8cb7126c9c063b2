"""The norm of a round on quadratics, against what the engine does to every unit vector."""

import numpy as np
import pytest

import fedlin
from fedlin.problems.quadratic import Quadratic
from fedlin.theory.quadratic_round import QuadraticRound
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
