"""The claims about Section 2 and about the figures, on a quick run: what mathematics says must come out."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from fedlin import problems
from fedlin.algorithms import fedlin
from fedlin.claims import Setting, find
from fedlin.claims.common.curves import fall, floors, stack, summary
from fedlin.claims.common.instances import least_squares, least_squares_steps, logistic
from fedlin.claims.common.stability import examine, hessians
from fedlin.claims.eq_nova import derived, printed
from fedlin.claims.fig5 import arrives
from fedlin.engines.simulation.simulate import simulate
from fedlin.plan import Plan
from fedlin.report.figure import Figure
from fedlin.report.verdict import Verdict

HOLD = ("prop1", "prop2", "eq-prox", "eq-nova", "fig1", "fixed-point", "fig2", "fig3", "fig4", "fig6", "fig7")


@cache
def verdict(id: str) -> Verdict:
    """Checked once, looked at by several tests."""
    return find(id).run(Setting(quick=True))


@pytest.mark.parametrize("id", HOLD)
def test_the_claim_holds_on_every_draw(id: str) -> None:
    found = verdict(id)
    assert found.holds, [row for row in found.rows if row.ok is False]
    assert any(row.ok for row in found.rows)
    assert all(row.measured for row in found.rows)


def test_logistic_regression_fails_only_where_the_minimiser_repels() -> None:
    found = verdict("fig5")
    assert not found.failed
    assert 0 < found.held <= found.draws
    decided = next(row for row in found.rows if row.what == "draws that do other than this says")
    assert decided.ok
    assert decided.premise
    assert "The paper says always; we see" in found.findings[0]


@pytest.mark.parametrize(
    ("id", "panels"), [("fig1", 2), ("fig2", 2), ("fig3", 2), ("fig4", 1), ("fig5", 1), ("fig7", 1)]
)
def test_pictures_have_the_papers_panels_and_finite_curves(id: str, panels: int) -> None:
    figure = verdict(id).figures[0]
    assert figure.name == id
    assert len(figure.panels) == panels
    for curve in curves(figure):
        assert np.isfinite(curve).any()


def curves(figure: Figure) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    return [curve.y for panel in figure.panels for curve in panel.curves]


def test_two_runs_give_the_same_numbers() -> None:
    first, second = verdict("fig3"), find("fig3").run(Setting(quick=True))
    assert dataclasses.replace(first, seconds=0, figures=()) == dataclasses.replace(second, seconds=0, figures=())
    for one, two in zip(curves(first.figures[0]), curves(second.figures[0]), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("id", ["fig1", "fig2", "fig3", "fig5", "fig6", "fig7"])
def test_what_the_paper_leaves_open_is_marked_as_our_choice(id: str) -> None:
    chosen = {name for name in verdict(id).setting if name.endswith("(our choice)")}
    assert {"start (our choice)", "rounds (our choice)"} <= chosen


def test_scaffold_leaves_x_star_by_the_control_variates_of_the_round_before() -> None:
    rows = {row.what: row for row in verdict("fixed-point").rows}
    assert any("leads to x*" in what and row.premise and row.ok for what, row in rows.items())
    assert sum("SCAFFOLD" in what for what in rows) >= 3


def test_the_erratum_is_told() -> None:
    assert "Erratum" in verdict("eq-nova").findings[0]
    eta = np.array([1e-4, 1e-3])
    assert np.log10(printed(eta)[1] / printed(eta)[0]) == pytest.approx(2, abs=0.01)
    assert np.log10(derived(eta)[1] / derived(eta)[0]) == pytest.approx(1, abs=0.01)


def test_instances_are_the_papers() -> None:
    assert least_squares(3).data.A.shape == (20, 100, 100)
    assert least_squares_steps(3).min() >= 2
    problem = logistic(3)
    assert problem.sheet.X.shape == (10, 500, 100)
    assert np.all(problem.sheet.weight == 1)
    assert np.linalg.norm(problem.grad(problem.minimizer)) < 1e-10


def test_the_radius_is_the_rate_of_a_dense_run() -> None:
    source = np.random.default_rng(0)
    G = source.standard_normal((3, 4, 4))
    problem = problems.quadratic(G @ G.transpose(0, 2, 1) + np.eye(4), source.standard_normal((3, 4)))
    tau = np.array([2, 5, 9], np.int32)
    eta_bar = 1 / problem.smoothness
    found = examine(problem, tau, eta_bar)
    run = simulate(fedlin(), problem, Plan.scaled(tau, eta_bar), 400)
    measured = np.sqrt(run.distance[60] / run.distance[40]) ** (1 / 20)
    assert measured == pytest.approx(found.radius, rel=1e-2)


def test_a_client_with_coarse_steps_is_blamed() -> None:
    problem = problems.quadratic(np.ones((3, 1, 1)), np.zeros((3, 1)))
    found = examine(problem, np.array([50, 3, 50], np.int32), 12.0)
    assert found.radius > 1 > found.cured
    assert (found.client, found.tau, found.reach) == (1, 3, 4.0)


def test_logistic_hessians_are_the_derivative_of_the_gradients() -> None:
    source = np.random.default_rng(1)
    X = source.standard_normal((2, 30, 3))
    problem = problems.logistic(X, np.where(source.random((2, 30)) < 0.5, 1.0, -1.0), reduction="sum")
    x, h = problem.minimizer, 1e-5
    numeric = [(problem.grad(x + h * e) - problem.grad(x - h * e)) / (2 * h) for e in np.eye(3)]
    np.testing.assert_allclose(hessians(problem).mean(axis=0), numeric, rtol=1e-6)


def test_a_diverged_run_counts_as_infinitely_far() -> None:
    problem = problems.quadratic(np.ones((1, 1, 1)), np.ones((1, 1)))
    runs = [simulate(fedlin(), problem, Plan(1, eta), 200) for eta in (0.5, 5.0)]
    assert runs[1].status == "diverged"
    far = stack(runs, "distance")
    assert far.shape == (2, 201)
    assert np.isinf(far[1, -1])
    assert summary("both", far).high is not None
    assert np.isfinite(summary("both", far).high).all()  # type: ignore[arg-type]


def test_levels_rates_and_arrivals() -> None:
    t = np.arange(101.0)
    falling, stuck = 0.9**t, np.maximum(0.5**t, 1e-3)
    assert np.exp(-fall(falling)) == pytest.approx(0.9)
    assert floors(np.array([stuck]))[0] == 1e-3
    assert arrives(np.array([falling, stuck])).tolist() == [True, False]
