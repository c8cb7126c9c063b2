"""How a certified step is chosen from a table, on tables written here: every number can be worked out by hand."""

import numpy as np
import pytest

from fedlin import theory
from fedlin.problems import quadratic
from fedlin.theory import certified_steps
from fedlin.theory.certified_steps import CertifiedStep, certified, certified_factors, choose
from quadratics import problem

SURPLUS = tuple(10.0 + number for number in range(9))
ROW = CertifiedStep((4.0, 10.0), 1.2, 0.1, SURPLUS)


def use(monkeypatch: pytest.MonkeyPatch, *rows: CertifiedStep) -> None:
    monkeypatch.setattr(certified_steps, "table", lambda: rows)


@pytest.mark.parametrize("kappa", [1.0, 3.0, 50.0])
def test_one_step_is_the_best_of_gradient_descent(kappa: float) -> None:
    """With η = 2/(L + μ) both ends of the spectrum shrink by the same factor, and no other η does better."""
    eta, factor = choose(kappa, np.array([1, 1]))
    assert eta - 1 == pytest.approx(1 - eta / kappa, abs=1e-15)
    assert factor == pytest.approx((eta - 1) ** 2, abs=1e-15)
    assert choose(kappa, np.array([1, 2])).eta_bar != eta or kappa == 1


@pytest.mark.parametrize("kappa", [3.99, 10.01, 200.0])
def test_beyond_the_table_it_is_what_is_proved_for_all(monkeypatch: pytest.MonkeyPatch, kappa: float) -> None:
    """A first row is taken for smaller κ too, as a function of a smaller κ has a larger one."""
    use(monkeypatch, ROW)
    eta, factor = choose(kappa, np.array([5, 20]))
    if kappa < 4:
        assert eta == 1.2
        return
    assert eta == 0.75
    drop = 0.75 / kappa
    assert factor == pytest.approx(1 - drop + drop**2, rel=1e-14)


@pytest.mark.parametrize("kappa", [4.0, 5.0, 10.0])
def test_a_row_serves_its_whole_range(monkeypatch: pytest.MonkeyPatch, kappa: float) -> None:
    """At the ends R_i = 1 - (1 - ε)(1 - (1 - η̄μ/τ)^τ), and between them it is linear in 1/κ."""
    use(monkeypatch, ROW)
    tau = np.array([2, 5])

    def end(mu: float) -> float:
        return float(np.mean([1 - 0.9 * (1 - (1 - 1.2 * mu / t) ** t) for t in tau]))

    eta, factor = choose(kappa, tau)
    part = (1 / kappa - 0.1) / (0.25 - 0.1)
    assert eta == 1.2
    assert factor == pytest.approx(((1 - part) * end(0.1) + part * end(0.25)) ** 2, rel=1e-13)


def test_the_best_of_several_rows_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = CertifiedStep((4.0, 10.0), 0.9, 0.1, SURPLUS), CertifiedStep((4.0, 10.0), 1.4, 0.1, SURPLUS)
    for rows in ((slow, ROW, fast), (fast, slow, ROW)):
        use(monkeypatch, *rows)
        assert choose(5.0, np.array([2, 3])).eta_bar == 1.4


@pytest.mark.parametrize(
    ("tau", "place"),
    [
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 3),
        (5, 4),
        (6, 4),
        (7, 5),
        (9, 5),
        (10, 6),
        (16, 6),
        (17, 7),
        (40, 7),
        (41, 8),
        (100, 8),
    ],
)
def test_each_number_of_steps_has_its_surplus(tau: int, place: int) -> None:
    np.testing.assert_array_equal(ROW.spare(np.array([tau])), [SURPLUS[place]])


def test_more_steps_than_the_table_has_are_not_proved() -> None:
    assert ROW.spare(np.array([101])) == [-np.inf]


def test_the_mean_surplus_of_the_clients_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's surplus makes up for another's lack, in proportion to their weights."""
    use(monkeypatch, CertifiedStep((4.0, 10.0), 1.2, 0.1, (0.0, 1.0, -1.0, *[0.0] * 6)))
    tau = np.array([2, 3])
    assert choose(5.0, tau).eta_bar == 0.75  # a mean of nothing could be less than nothing before rounding
    assert choose(5.0, tau, np.array([0.5 + 1e-9, 0.5 - 1e-9])).eta_bar == 1.2
    assert choose(5.0, np.array([4, 5])).eta_bar == 1.2  # where nobody lacks anything, nothing is rounded
    assert choose(5.0, tau, np.array([0.6, 0.4])).eta_bar == 1.2
    assert choose(5.0, tau, np.array([0.4, 0.6])).eta_bar == 0.75


def test_steps_are_in_units_of_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """η_i = η̄/(L τ_i), in plans that change every round too."""
    use(monkeypatch, CertifiedStep((1.0, 1e9), 1.2, 0.1, SURPLUS))
    instance = problem()
    tau = np.array([[2] * instance.clients, [4] * instance.clients])
    plan = certified(instance, tau)
    np.testing.assert_allclose(plan.eta, 1.2 / instance.smoothness / tau, rtol=1e-14)
    np.testing.assert_allclose(theory.certified(instance, tau[1]).eta, plan.eta[1], rtol=1e-14)
    general = [choose(instance.condition, row).factor for row in tau]
    np.testing.assert_allclose(certified_factors(instance.condition, tau, 2), general, rtol=1e-14)
    assert np.all(certified_factors(instance, tau, 2) < general)  # of these quadratics more is known


def test_of_the_proved_steps_the_fastest_on_these_quadratics_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients with curvature 1 and L by turns: the mean has one curvature only, which the longest step overshoots."""
    kappa = 20.0
    mixed = quadratic([np.diag([1.0, kappa]), np.diag([kappa, 1.0])], np.ones((2, 2)))
    alike = quadratic([np.diag([1.0, kappa])] * 2, np.ones((2, 2)))
    rows = [CertifiedStep((4.0, 30.0), eta_bar, 0.1, SURPLUS) for eta_bar in (1.7, 5.4)]
    use(monkeypatch, *rows)
    tau = np.array([8, 8])

    def factor(eta_bar: float) -> float:
        """Of x̄ - x* where half of the clients have curvature 1 and half κ."""
        drops = [(1 - (1 - eta_bar / kappa * curvature / 8) ** 8) / curvature for curvature in (1.0, kappa)]
        return abs(1 - (1 + kappa) / 2 * sum(drops) / 2)

    assert certified(alike, tau).eta[0] == pytest.approx(5.4 / kappa / 8)
    assert certified(mixed, tau).eta[0] == pytest.approx(1.7 / kappa / 8)
    shrunk = factor(1.7)
    assert shrunk < factor(5.4)
    (found,) = certified_factors(mixed, tau, 1)
    assert shrunk**2 < found < (shrunk + 0.03 * (1 - shrunk)) ** 2


def test_quadratics_with_much_to_compute_are_taken_as_any_other_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certified_steps, "_MOST_WORK", 0)
    instance = problem()
    general = choose(instance.condition, np.array([5]), instance.weights)
    np.testing.assert_allclose(certified_factors(instance, 5, 2), general.factor, rtol=1e-14)
    np.testing.assert_allclose(certified(instance, 5).eta, general.eta_bar / instance.smoothness / 5, rtol=1e-14)
