"""What claims about FedLin say when something else stands in for it: all is noticed, or it is said why not."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
import realdata
from fedlin import algorithms, theory
from fedlin.claims import Setting, all_claims, find
from fedlin.claims.claim import Claim
from fedlin.claims.common import instances
from fedlin.claims.common.algorithm1 import AGREE, PLAYED, TopK, departure, rounds_to_play
from fedlin.claims.common.wrong_methods import EXCLUDED, OF_LINKS, WRONG, Fault, stand_in
from fedlin.core import Algorithm
from fedlin.plan import Plan

QUICK = Setting(quick=True, draws=1)
TESTED = [claim for claim in all_claims() if claim.wrong]
# The claims whose wrong methods are tried in a few seconds; the others take minutes together.
CORE = ("prop1", "eq-prox", "eq-nova", "thm1", "thm2b", "thm4", "thm8")
MUST = ("thm1", "thm2a", "thm2b", "thm3", "thm4", "thm7", "thm8", "thm9", "time-varying", "combined", "fig2", "fig3")


def marked(claims: list[Claim]) -> list[Any]:
    return [
        pytest.param(claim, id=claim.id, marks=pytest.mark.slow if claim.id in CORE else pytest.mark.long)
        for claim in claims
    ]


def played_again(claim: Claim, method: str) -> bool:
    """Whether the claim plays the rounds of Algorithm 1 again: not where there is noise, nor of other methods."""
    return claim.id != "fig7" and method in WRONG


@pytest.mark.parametrize("claim", marked(TESTED))
def test_every_wrong_method_is_noticed_by_the_statement_or_passes_it_for_the_reason_given(
    claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table for all: a method fails the statement just where no reason is given, and is noticed in any case."""
    if claim.id == "frontier":  # on real data alone
        monkeypatch.setenv(realdata.DATA, str(realdata.data_file("a9a.gz").parent))
    for notice in claim.notices():
        excluded = claim.wrong[notice.method] == EXCLUDED
        assert bool(notice.by) is excluded, notice
        assert notice.noticed or not played_again(claim, notice.method), notice
        assert bool(notice.reason) is not excluded


def test_every_theorem_lists_every_wrong_method() -> None:
    for id in MUST:
        listed = set(find(id).wrong)
        compressed = id in ("thm7", "thm8", "thm9", "combined", "fig2", "fig3")
        missing = set(WRONG) - listed - (set() if compressed else set(OF_LINKS))
        assert missing <= {"never empties its memory"}, id  # which is not wrong where there is none
        assert find(id).wrong


LINKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": ({}, {}),
    "plain down": ({"downlink": fedlin.plain(fedlin.top_k(2))}, {"down": TopK(2, False)}),
    "feedback down": ({"downlink": fedlin.error_feedback(fedlin.top_k(2))}, {"down": TopK(2, True)}),
    "feedback up": ({"uplink": fedlin.error_feedback(fedlin.top_k(2))}, {"up": TopK(2, True)}),
    "both": (
        {"uplink": fedlin.top_k(3), "downlink": fedlin.top_k(2)},
        {"up": TopK(3, True), "down": TopK(2, True)},
    ),
}


@pytest.mark.parametrize("links", LINKS)
def test_without_a_fault_the_stand_in_is_fedlin(links: str) -> None:
    problem = instances.quadratics(0, 5.0)
    plan = theory.strongly_convex(problem, instances.steps(0))
    runs = [
        fedlin.simulate(method(**LINKS[links][0]), problem, plan, 60) for method in (fedlin.fedlin, stand_in(Fault()))
    ]
    np.testing.assert_allclose(runs[0].iterates, runs[1].iterates, rtol=0, atol=1e-13)


class TestAlgorithm1:
    @pytest.mark.parametrize(
        ("kind", "links"),
        [*(("quadratic", links) for links in LINKS), ("logistic", "both"), ("changing speeds", "both")],
    )
    def test_fedlin_is_algorithm_1_in_every_round(self, kind: str, links: str) -> None:
        problem = instances.small_logistic(0, 0.1) if kind == "logistic" else instances.quadratics(0, 5.0)
        tau = instances.steps(0, rounds=150 if kind == "changing speeds" else None)
        plan = theory.strongly_convex(problem, tau)
        given, played = LINKS[links]
        run = fedlin.simulate(fedlin.fedlin(**given), problem, plan, 150)
        assert departure(problem, plan, run.iterates, **played)[0] <= AGREE / 100

    @pytest.mark.parametrize("name", WRONG)
    def test_no_wrong_method_is(self, name: str) -> None:
        problem, links = instances.quadratics(0, 5.0), "feedback up"
        plan = theory.strongly_convex(problem, instances.steps(0))
        given, played = LINKS[links]
        run = fedlin.simulate(stand_in(WRONG[name])(**given), problem, plan, 150)
        size, where = departure(problem, plan, run.iterates, **played)
        assert size > 1e3 * AGREE
        assert where > 20 or name != "FedAvg from round 20 on"

    def test_a_single_wrong_round_shows_where_it_is(self) -> None:
        problem = instances.quadratics(1, 5.0)
        plan = theory.strongly_convex(problem, instances.steps(1))
        models = fedlin.simulate(fedlin.fedlin(), problem, plan, 40).iterates.copy()
        models[18:] += 1e-4 * (models[18] - models[17])
        size, where = departure(problem, plan, models)
        assert where == 18
        assert size == pytest.approx(1e-4, rel=1e-3)

    def test_a_fault_beside_x_star_shows_though_moves_are_short(self) -> None:
        problem = instances.quadratics(1, 5.0)
        plan = theory.strongly_convex(problem, instances.steps(1))
        models = fedlin.simulate(fedlin.fedlin(), problem, plan, 400).iterates.copy()
        first = models[1] - models[0]
        assert np.linalg.norm(models[-1] - models[-2]) < 1e-4 * np.linalg.norm(first)
        models[-1] += 1e-7 * first
        size, where = departure(problem, plan, models)
        assert where == 400
        assert size == pytest.approx(1e-3, rel=1e-2)

    @pytest.mark.parametrize("every", [2, 10, 24, 100])
    def test_no_fault_falls_between_the_rounds_of_a_long_run_that_are_played(self, every: int) -> None:
        chosen = rounds_to_play(24000, PLAYED)
        assert len(np.unique(chosen)) == PLAYED
        assert set(chosen % every) == set(range(every))
        assert set(chosen[chosen >= 12000] % every) == set(range(every)) or every == 100

    def test_a_run_that_ended_or_left_the_numbers_is_none(self) -> None:
        problem = instances.quadratics(0, 5.0)
        plan = Plan.scaled(2, 0.01)
        assert departure(problem, plan, problem.start[None])[0] == np.inf
        assert departure(problem, plan, np.full((3, problem.dim), np.nan))[0] == np.inf


def slower(**links: Any) -> Algorithm[Any, Any]:
    """Steps a tenth too short."""
    return with_locals(algorithms_fedlin(**links), lambda local: local._replace(eta=0.9 * local.eta))


def halted(**links: Any) -> Algorithm[Any, Any]:
    """Local steps of clients with more than seven are lost: they send back what they were given."""
    return with_locals(
        algorithms_fedlin(**links), lambda local: local._replace(eta=jnp.where(local.tau < 8, local.eta, 0))
    )


algorithms_fedlin: Callable[..., Algorithm[Any, Any]] = algorithms.fedlin


def with_locals(method: Algorithm[Any, Any], change: Callable[[Any], Any]) -> Algorithm[Any, Any]:
    """The method whose clients see other steps than the plan's, in every phase and in the opening."""

    def changed(phase: Any) -> Any:
        def client(state: Any, message: Any, local: Any) -> Any:
            seen = change(local)

            def descend(start: Any, **options: Any) -> Any:
                return local.descend(start, **{"eta": seen.eta, **options})

            return phase.client(state, message, seen._replace(descend=descend))

        return dataclasses.replace(phase, client=client)

    phases = tuple(map(changed, method.phases))
    opening = method.opening and tuple(map(changed, method.opening))
    return dataclasses.replace(method, name="changed", phases=phases, opening=opening, recipe=None)


def test_claims_are_loaded_whatever_stands_in_for_fedlin() -> None:
    """A method in FedLin's place may know fewer arguments, so no claim may build one while it is imported."""
    program = """
import fedlin.algorithms
def refuse(**links):
    raise TypeError("too early")
fedlin.algorithms.fedlin = fedlin.fedlin = refuse
from fedlin.claims import Setting, all_claims, find
assert len(all_claims()) > 30
assert "too early" in find("thm1").attempt(Setting(quick=True)).error
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("wrong", [slower, halted], ids=["a tenth shorter", "fast clients halted"])
@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=pytest.mark.slow if id in CORE else pytest.mark.long) for id in MUST]
)
def test_a_wrong_method_of_someone_else_is_refuted(
    id: str, wrong: Callable[..., Algorithm[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the package exports as FedLin is what gets tested, found in faults the claims do not list."""
    monkeypatch.setattr(algorithms, "fedlin", wrong)
    verdict = find(id).run(QUICK)
    assert verdict.failed
    assert not verdict.holds
