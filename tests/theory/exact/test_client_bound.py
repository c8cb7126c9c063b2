"""Bounds of single clients: summed up they bound every mixture, they are sharp, and what is not true is not proved."""

from fractions import Fraction

import pytest

import fedlin
from fedlin import Plan
from fedlin.theory.exact import Smooth, SolverError, worst_case
from fedlin.theory.exact.client_bound import ClientBounds, CommonStep, local_path, prove_client

TENTH = Fraction(1, 10)


def least_factor(step: CommonStep, tau: int) -> float:
    """The least R that slopes of its own prove for clients with τ steps."""
    bounds = ClientBounds(step, None)
    bounds.add(tau, Fraction(0))
    assert bounds.least_loss is not None
    loss = float(bounds.program.solve().numbers[bounds.least_loss])
    return 1 - (1 - loss) * (1 - float(step.full_factor(tau, step.mu[0])))


@pytest.mark.parametrize(("tau", "eta_bar"), [(2, 3), (3, 4), (4, 4), (2, Fraction(9, 2))])
def test_one_client_at_a_time_is_as_good_as_all_at_once(tau: int, eta_bar: Fraction | int) -> None:
    """For equal clients, R² is the exact factor."""
    step = CommonStep((TENTH, TENTH), Fraction(eta_bar))
    exact = worst_case(fedlin.fedlin(), Plan(tau, float(step.eta_bar) / tau), Smooth(1.0, 0.1)).solved
    assert least_factor(step, tau) ** 2 == pytest.approx(exact, rel=1e-5)


@pytest.fixture(scope="module")
def mixture() -> tuple[CommonStep, Fraction, list[tuple[Fraction, ...]], dict[int, Fraction]]:
    """Slopes that serve one, two and five local steps at η̄ = 2.5/L, and what each has to spare."""
    step, loss = CommonStep((Fraction(1, 12), TENTH), Fraction(5, 2)), Fraction(2, 100)
    bounds = ClientBounds(step, loss)
    unknowns = {tau: bounds.add(tau, None, weight) for tau, weight in ((1, 0.1), (2, 0.4), (5, 0.5))}
    numbers = bounds.program.solve(1e-8).numbers
    slopes = [tuple(Fraction(round(1e5 * numbers[u]), 10**5) for u in each) for each in bounds.unknown_slopes]
    spare = {tau: Fraction(round(1e3 * (numbers[u] - 0.02)), 1000) for tau, u in unknowns.items()}
    return step, loss, slopes, spare


def test_clients_that_can_spare_make_up_for_those_that_lack(mixture) -> None:  # type: ignore[no-untyped-def]
    step, loss, slopes, spare = mixture
    assert spare[1] < 0 < spare[5]
    for tau, surplus in spare.items():
        prove_client(step, loss, slopes, tau, surplus)
    # As many with one local step as the others can make up for.
    share = float(spare[5] / (spare[5] - spare[1]))
    assert 0.02 < share < 0.6
    for kappa in (10, 11, 12):  # inside the range too
        part = (1 / kappa - 1 / 12) / (1 / 10 - 1 / 12)
        factors = {
            tau: sum(
                weight * (1 - (1 - float(loss)) * (1 - float(step.full_factor(tau, mu))))
                for weight, mu in zip((1 - part, part), step.mu, strict=True)
            )
            for tau in (1, 5)
        }
        promised = share * factors[1] + (1 - share) * factors[5]
        plan = Plan([1, 1, 5, 5], [2.5, 2.5, 0.5, 0.5])
        weights = [share / 2, share / 2, (1 - share) / 2, (1 - share) / 2]
        exact = worst_case(fedlin.fedlin(), plan, Smooth(1.0, 1 / kappa), weights=weights).solved
        assert exact <= promised**2
        assert promised**2 <= exact + 3 * float(loss)


def test_more_than_there_is_to_spare_is_not_proved(mixture) -> None:  # type: ignore[no-untyped-def]
    step, loss, slopes, spare = mixture
    with pytest.raises(SolverError):
        prove_client(step, loss, slopes, 5, spare[5] + Fraction(1, 10))
    with pytest.raises(SolverError):
        prove_client(step, Fraction(0), slopes, 5, spare[5])
    with pytest.raises(SolverError):  # three times the step
        prove_client(CommonStep(step.mu, 3 * step.eta_bar), loss, slopes, 5, spare[5])


def test_a_path_is_the_local_steps() -> None:
    path = local_path(3, Fraction(3, 2), TENTH)
    x = path.d
    for point in path.points[1:]:
        assert point.x == x
        x = x - point.gradient / 2
    assert x == path.end
    assert path.points[1].gradient == path.g
    assert path.points[0].gradient == path.p
