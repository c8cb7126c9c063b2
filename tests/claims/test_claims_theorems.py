"""The claims about Theorems 1 to 9: what mathematics says of their verdicts, and the machinery they share."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlin import theory
from fedlin.claims import Setting, find, thm3, thm6
from fedlin.claims.common import instances
from fedlin.claims.common.bound_check import Case
from fedlin.claims.common.curves import RESOLVED, exponent, fall, straightness, thin
from fedlin.report.figure import Curve
from fedlin.report.verdict import Row, Verdict

PROVEN = (
    "thm1",
    "first-gradient",
    "rivals",
    "thm2a",
    "thm2b",
    "thm3",
    "thm4",
    "thm5",
    "prop3",
    "time-varying",
    "thm7",
    "thm8",
    "thm9",
    "looseness",
    "exact-rates",
    "exact-local-steps",
    "exact-compression",
)


@cache
def verdict(id: str) -> Verdict:
    return find(id).run(Setting(quick=True))


def row(id: str, what: str) -> Row:
    return next(row for row in verdict(id).rows if row.what.startswith(what))


@pytest.mark.parametrize("id", PROVEN)
def test_what_is_proven_holds_on_every_draw(id: str) -> None:
    found = verdict(id)
    assert found.holds, [row for row in found.rows if row.ok is False]
    assert any(row.ok for row in found.rows)
    assert found.figures


@pytest.mark.parametrize("id", [*PROVEN, "thm6", "combined"])
def test_figures_show_numbers(id: str) -> None:
    for figure in verdict(id).figures:
        for panel in figure.panels:
            for curve in panel.curves:
                assert np.isfinite(curve.y).any(), (figure.name, panel.title, curve.label)
                assert len(curve.x) <= 200  # a page carries many of these


def test_the_same_numbers_on_every_run() -> None:
    assert find("thm7").run(Setting(quick=True)).rows == verdict("thm7").rows


def test_server_compression_is_exact_and_both_ends_come_to_a_neighbourhood() -> None:
    assert row("combined", "strongly convex quadratics, server alone").ok
    assert row("combined", "strongly convex quadratics, both ends: last").ok


@pytest.mark.parametrize(
    ("id", "depth"), [("thm1", 1e-3), ("thm4", 1e-3), ("thm7", 1e-3), ("thm8", 1e-3), ("time-varying", 1e-3)]
)
def test_bounds_fall_far_enough_to_exclude_anything(id: str, depth: float) -> None:
    """Even a quick run's sharpest case is played until its bound is a thousandth of the start."""
    reached = [float(row.measured.split("the bound is ")[1].split()[0]) for row in bounded(id)]
    assert min(reached) <= depth


def bounded(id: str) -> list[Row]:
    return [row for row in verdict(id).rows if "largest measured/bound" in row.what]


def test_where_clients_share_x_star_sparse_uploads_reach_it() -> None:
    assert float(row("thm9", "D = 0: last squared distance").measured) <= 1e-12


def test_a_row_says_where_a_bound_is_nearest_and_how_much_room_the_end_leaves() -> None:
    for one in bounded("thm1"):
        assert re.match(r"[\d.e-]+ in round \d+ \(draw \d\); [\d.e-]+ at the end", one.measured)


class TestNoisy:
    def test_the_proven_range_is_told_apart_from_the_stated_one(self) -> None:
        assert "12η̄L ≤ 1" in verdict("thm5").findings[0]
        names = {row.what.split(":")[0] for row in verdict("thm5").rows}
        assert {"η̄ = 1/(12L), as proven", "η̄ = 0.99/(6L), as stated"} <= names

    def test_theory_uses_what_is_proven(self) -> None:
        problem = instances.even_quadratics(0, 2.0)
        assert theory.noisy(problem, 1).eta == pytest.approx(1 / (12 * problem.smoothness))
        assert theory.noisy_decaying(problem, 1, 9).eta.max() == pytest.approx(1 / (12 * problem.smoothness))


def test_identical_clients_gain_a_round_with_every_local_step() -> None:
    assert row("prop3", "T rounds of 5 steps").ok


class TestLowerBound:
    def test_the_code_plays_the_round_of_the_formulas(self) -> None:
        assert row("thm6", "54 round maps").ok
        assert row("thm6", "54 round maps").premise

    @pytest.mark.parametrize(("L", "H", "ok"), [(14, 2, True), (14, 5, True), (14, 20, False), (50, 20, True)])
    def test_the_paper_s_example(self, L: int, H: int, ok: bool) -> None:
        assert row("thm6", f"L = {L}, H = {H}:").ok is ok
        assert not verdict("thm6").failed  # known, and told as a finding

    def test_a_step_beyond_one_over_h_beats_the_bound(self) -> None:
        """FedLin written out on the two clients, without anything of the package but the step size."""
        L, H = 14.0, 20
        _, eta, _ = thm6.Sweep(L, H).best()
        assert eta * H > 3
        x = np.array([1.0, 1.0])
        for _ in range(4):
            ends = []
            for A in (np.diag([1.0, 1.0]), np.diag([L, 1.0])):
                mean = np.diag([(L + 1) / 2, 1.0]) @ x
                y = x
                for _ in range(H):
                    y = y - eta * (A @ y - A @ x + mean)
                ends.append(y)
            x = np.mean(ends, axis=0)
        assert x @ x < np.exp(-4 * 4) * 2 / 1000

    @pytest.mark.parametrize("H", [*range(2, 12), 20, 51, 100])
    @pytest.mark.parametrize("L", [14.0, 15.0, 40.0])
    def test_the_repaired_example_bears_it_out(self, L: float, H: int) -> None:
        radius, _, furthest = thm6.Sweep(L, H).best(repaired=True)
        assert radius > np.exp(-2)
        assert furthest < 8 / 7

    @pytest.mark.parametrize("H", [1, 2, 3, 8, 21, 50, 101])
    @pytest.mark.parametrize("L", [7.5, 14.0, 100.0, 1000.0])
    def test_the_repaired_bound_matches_theorem_1_in_kappa(self, L: float, H: int) -> None:
        """By the eigenvalues of the round map itself: no stable η shrinks the second entry below 1 - 8/(L+1)."""
        eta = np.geomspace(1e-4 / (L * H), 2.5 / L, 3000)
        first, second = theory.lower_bound.eigenvalues(eta, H, L)
        third = theory.lower_bound.third_eigenvalue(eta, H, L)
        stable = np.max(np.abs([first, second, third]), axis=0) < 1
        assert stable.any()
        assert second[stable].min() >= theory.lower_bound.rate(L)
        for k in np.flatnonzero(stable)[::700]:  # and these are the eigenvalues
            problem = theory.lower_bound.repaired(L)
            A = np.asarray(problem.data.A)
            mean = A.mean(axis=0)
            maps = []
            for one in A:
                y = np.eye(3)
                for _ in range(H):
                    y = y - eta[k] * (one @ (y - np.eye(3)) + mean)
                maps.append(y)
            np.testing.assert_allclose(np.diag(np.mean(maps, axis=0)), [first[k], second[k], third[k]], atol=1e-9)

    @pytest.mark.parametrize("H", [3, 21, 51])
    def test_odd_h_needs_no_repair(self, H: int) -> None:
        radius, _, furthest = thm6.Sweep(14.0, H).best()
        assert radius > np.exp(-2)
        assert furthest < 1


class TestCase:
    bound = np.array([0.5 ** np.arange(6)])

    def test_a_curve_on_its_bound_holds(self) -> None:
        case = Case("", self.bound, self.bound)
        assert case.ratios.tolist() == [[1.0] * 5]
        assert case.below().ok

    @pytest.mark.parametrize("wrong", [0.6, np.inf, np.nan])
    def test_one_round_above_is_found(self, wrong: float) -> None:
        measured = self.bound / 2
        measured[0, 0], measured[0, 3] = 1, wrong
        case = Case("", measured, self.bound)
        assert not case.held[0]
        assert case.below().ok is False
        assert "in round 3" in case.below().measured

    @pytest.mark.parametrize("bound", [0.0, -1.0, -np.inf])
    def test_a_bound_of_zero_or_below_refutes_what_has_not_vanished(self, bound: float) -> None:
        """What stands still, or climbs, makes the bounds of Theorems 2 and 3 so."""
        case = Case("", np.ones((1, 4)), np.array([[np.inf, bound, bound, bound]]))
        assert not case.held[0]

    def test_rounding_is_not_held_against_a_bound(self) -> None:
        bound = np.array([[1.0, 1e-10, RESOLVED / 10]])
        assert Case("", np.array([[1.0, 1e-12, RESOLVED / 2]]), bound).held[0]
        assert not Case("", np.array([[1.0, 1e-12, 10 * RESOLVED]]), bound).held[0]

    def test_rate(self) -> None:
        rate = fall(np.concatenate([0.9 ** np.arange(300), np.full(900, 1e-25)]))
        assert rate == pytest.approx(-np.log(0.9))
        assert np.isnan(fall(np.full(9, np.inf)))

    def test_exponent_and_straightness(self) -> None:
        t = np.arange(1.0, 2000)
        assert exponent(7 / t**2) == pytest.approx(2, abs=0.02)
        assert straightness(0.9**t, 1e-12) == pytest.approx(1)
        assert straightness(1 / t**2, 1e-12) < 0.9
        assert np.isnan(straightness(np.full(9, 1e-15), 1e-12))

    def test_thin_keeps_both_ends(self) -> None:
        x = np.arange(5001.0)
        few = thin(Curve("", x, x, x, x))
        assert (few.x[0], few.x[-1], len(few.x) <= 160) == (0, 5000, True)


class TestInstances:
    @pytest.mark.parametrize("kind", ["", "aligned", "shared", "identical"])
    def test_quadratics_have_the_curvature_they_claim(self, kind: str) -> None:
        problem = instances.quadratics(3, 7.0, **({kind: True} if kind else {}))
        np.testing.assert_allclose(problem.smoothness_each, 14)
        np.testing.assert_allclose(problem.strong_convexity_each, 2)
        least = np.linalg.eigvalsh(problem.hessian)[0]
        assert least == pytest.approx(2) if kind in ("aligned", "identical") else least > 2.1

    def test_shared_minimisers(self) -> None:
        problem = instances.quadratics(1, 5.0, shared=True)
        slopes = problem.data.A @ problem.minimizer - problem.data.b
        np.testing.assert_allclose(slopes, 0, atol=1e-12)

    def test_flat_problems_are_not_strongly_convex(self) -> None:
        problem = instances.even_quadratics(0, 2.0, flat=5, pull=300.0)
        assert np.linalg.matrix_rank(problem.hessian) == 7
        assert problem.strong_convexity == 0
        assert problem.polyak_lojasiewicz == pytest.approx(2)
        assert instances.small_logistic(0).strong_convexity == 0

    @pytest.mark.parametrize("pull", [0.0, 300.0])
    def test_even_quadratics_have_entries_of_a_size_and_pulls_that_cancel(self, pull: float) -> None:
        problem = instances.even_quadratics(1, 10.0, pull=pull)
        assert (problem.smoothness, problem.strong_convexity) == (20.0, 2.0)
        size = np.abs(problem.grad(problem.start))
        assert size.max() / size.min() < 1.3  # TOP-k leaves out almost the most it may
        slopes = problem.data.A @ problem.minimizer - problem.data.b
        np.testing.assert_allclose(slopes.mean(axis=0), 0, atol=1e-11 * (1 + pull))
        assert bool(np.abs(slopes).max() > 100) is (pull > 0)

    def test_curvature_of_the_bent_logistic(self) -> None:
        problem = instances.small_logistic(0, nonconvex=0.3)
        x = np.linspace(-2, 2, problem.dim)
        with jax.enable_x64(True):
            hessian = sum(
                jax.hessian(lambda x, one=one: problem.objective.loss(one, x))(jnp.asarray(x))
                for one in (jax.tree.map(lambda leaf, i=i: leaf[i], problem.data) for i in range(problem.clients))
            )
        expected = np.linalg.eigvalsh(np.asarray(hessian) / problem.clients)[0]
        assert thm3.least_curvature(problem, x) == pytest.approx(expected)

    def test_the_wave_obeys_the_condition_without_being_convex(self) -> None:
        x = np.linspace(-10, 10, 20001)
        f, slope, bend = x**2 + 3 * np.sin(x) ** 2, 2 * x + 3 * np.sin(2 * x), 2 + 6 * np.cos(2 * x)
        assert np.all(slope**2 >= 2 / 32 * f)
        assert np.max(np.abs(bend)) == pytest.approx(8)
        assert bend.min() < 0
        problem = instances.waves(2, tilt=500.0)
        assert problem.grad(np.zeros(1))[0] == pytest.approx(0, abs=1e-13)
        here = np.full((problem.clients, 1, 1), 0.7)
        each = instances.wave_gradients(problem)(here)
        assert each.mean() == pytest.approx(float(problem.grad(np.array([0.7]))[0]), abs=1e-12)
