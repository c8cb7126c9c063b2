"""The open problems' answers, checked as `fedlin reproduce --quick` checks them."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin import algorithms
from fedlin.claims import OPEN, Setting, all_claims, find, open_acceleration, open_models
from fedlin.claims.claim import Claim
from fedlin.claims.common.bytes_methods import PROBLEMS, REAL, STEPS, TUNED, instance, local_steps, methods
from fedlin.claims.common.fewer_bits import CHANGE, VALUE, narrow
from fedlin.claims.common.instances import a9a, data_file, quadratics
from fedlin.core import Algorithm
from fedlin.result import Result

ANSWERED = [c for c in all_claims() if c.section == OPEN and not c.by_name and c.should_hold]


LONG = {"open-acceleration", "open-marina"}  # which compile six methods, and one of two kinds of rounds in a batch
MARKED = [pytest.param(c, id=c.id, marks=[pytest.mark.long] if c.id in LONG else []) for c in ANSWERED]


@pytest.mark.parametrize("claim", MARKED)
def test_an_open_problem_is_answered(claim: Claim) -> None:
    """Every deciding row is met on every draw, and there is a picture of it."""
    verdict = claim.run(Setting(quick=True, draws=2))
    assert verdict.holds, verdict.rows
    assert verdict.draws == 2
    assert any(row.ok for row in verdict.rows)
    assert verdict.figures


def unlearned(clients: int, cohort: int, sparsity: int) -> Algorithm[Any, Any]:
    """TAMUNA whose clients are not told the mean."""
    method = fedlin.tamuna(clients, cohort, sparsity)
    return replace(method, phases=method.phases[:1], recipe=None)


def late(clients: int, cohort: int, sparsity: int) -> Algorithm[Any, Any]:
    """TAMUNA whose clients correct by the model they find when they are next asked."""
    model, correction = fedlin.tamuna(clients, cohort, sparsity).phases

    def client(state: Any, x: Any, local: Any) -> Any:
        return model.client(correction.client(state, x, local)[0], x, local)

    return replace(unlearned(clients, cohort, sparsity), phases=(replace(model, client=client),))


def misplaced(clients: int, cohort: int, sparsity: int) -> Algorithm[Any, Any]:
    """TAMUNA whose clients take their number for their place."""
    method = fedlin.tamuna(clients, cohort, sparsity)
    model, correction = method.phases

    def client(state: Any, x: Any, local: Any) -> Any:
        return model.client(state, x, local._replace(place=local.number))

    return replace(method, phases=(replace(model, client=client), correction), recipe=None)


@pytest.mark.long
@pytest.mark.parametrize("wrong", [unlearned, late, misplaced])
def test_a_wrong_tamuna_never_comes_to_the_accuracy(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = quadratics(0, 100.0, dim=5, clients=5, aligned=True)
    assert open_acceleration.rounds_needed(Setting(), "TAMUNA", problem, 0) < 1000
    monkeypatch.setattr(algorithms, "tamuna", wrong)
    assert open_acceleration.rounds_needed(Setting(), "TAMUNA", problem, 0) == np.inf


@pytest.mark.long
def test_newtons_method_that_does_not_learn_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = partial(fedlin.fednl, alpha=1e-9)
    monkeypatch.setattr(algorithms, "fednl", fixed)
    factors = open_acceleration.newton_factors(0)
    assert factors[-1] > open_acceleration.LAST
    assert np.max(factors[1:] / factors[:-1]) > 1


@pytest.mark.long
def test_the_bytes_on_other_problems_are_as_said() -> None:
    verdict = find("open-bytes").run(Setting(quick=True))
    assert verdict.holds, verdict.rows
    assert len(verdict.figures[0].panels) == (1 if data_file("a9a.gz") is None else 2)


def test_fedlins_lower_bound_is_not_one_for_every_algorithm() -> None:
    verdict = find("remark1").run(Setting(quick=True))
    assert verdict.judgement == "does not hold, as expected"
    assert not verdict.failed
    obeys = {row.what.split(":")[0]: row.ok for row in verdict.rows if "shrinks a round by" in row.what}
    assert obeys == {"FedLin at its best step": True, "FedSplit": False, "Scaffnew": False}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("method", "vectors"),
    [
        (algorithms.scaffold(), (((VALUE, VALUE), (CHANGE, CHANGE)),)),
        (algorithms.fedsplit(), (((VALUE,), (CHANGE,)),)),
        (algorithms.fedac(), (((VALUE, VALUE), (VALUE, VALUE)),)),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_narrow_methods_still_reach_x_star_at_the_bytes_of_their_format(method: Any, vectors: Any, dtype: str) -> None:
    problem = quadratics(0, 5.0)
    plan = fedlin.Plan(1, 1 / problem.smoothness)
    whole, rounded = (fedlin.simulate(m, problem, plan, 200) for m in (method, narrow(method, dtype, vectors)))
    assert rounded.gap[-1] <= 1e-12 * rounded.gap[0]
    count = sum(len(kinds) for both in vectors for kinds in both)
    each = np.dtype(dtype).itemsize * problem.dim + 2  # and two bytes of exponent
    assert rounded.bytes[1] == problem.clients * count * each
    assert whole.bytes[1] == problem.clients * count * 8 * problem.dim


def test_privacy_is_chosen_on_data_that_is_not_reported() -> None:
    assert "draws 100 to 101" in find("open-privacy").run(Setting(quick=True, draws=1, rounds=5)).setting["chosen on"]


def test_every_method_of_the_library_is_compared_on_every_problem() -> None:
    recipes = [variant.recipe for variants in methods().values() for variant in variants.values()]
    built = {recipe.build.__name__ for recipe in recipes if recipe is not None}
    # FedAvg is there as FedProx without a pull, to share its program.
    # `narrow` is the number format around a method.
    # The accelerated methods and Newton's are compared in the claims `frontier` and `open-acceleration`.
    elsewhere = {"adiana", "compressed_scaffnew", "fednl", "fednl_pp", "gradskip", "locodl", "marina", "tamuna"}
    elsewhere |= {"fedlin_newton"}
    assert built - {"narrow"} | {"fedavg"} == set(algorithms.__all__) - elsewhere
    assert methods()["FedAvg"] == {"": algorithms.fedprox(0.0)}
    assert set(TUNED) == set(PROBLEMS)
    assert all(set(tuned) == set(methods()) for tuned in TUNED.values())


def test_every_method_is_tuned_to_a_point_of_the_one_grid() -> None:
    for tuned in TUNED.values():
        for method, choice in tuned.items():
            assert choice.variant in methods()[method]
            assert choice.tau in local_steps(method)
            assert choice.step in STEPS


def made_up(gaps: list[float]) -> Result:
    """A run with these gaps, a million bytes up and two down a round."""
    gap, sent = np.array(gaps), np.arange(len(gaps)) * 1_000_000
    measured = dict.fromkeys(("loss", "grad_norm", "gap", "distance"), gap)
    spent = {"bytes_up": sent, "bytes_down": 2 * sent, "gradients": sent, "seconds": sent.astype(float)}
    return Result("made up", "done", np.zeros(1), {**measured, **spent})


def test_a_bill_tells_the_bytes_of_every_goal_and_where_a_method_ends() -> None:
    falling, slow, resting = (
        [1.0, 1e-4, 1e-8, 1e-12],
        [1.0, 1e-4, 1e-6, 1e-7],
        [1.0, 1e-4, 1e-5, 1e-5, 1e-5],
    )
    assert open_models.bill([made_up(falling)]) == "1 + 2 = 3; 2 + 4 = 6; 3 + 6 = 9"
    assert open_models.bill([made_up(slow)]) == "1 + 2 = 3; not in 3 rounds, at 1.0e-07"
    assert open_models.bill([made_up(resting + resting[-1:] * 4)]) == "1 + 2 = 3; never, floor 1.0e-05"
    assert open_models.spent(made_up(slow), 1e-5, "bytes_up") == 2e6


def test_real_data_is_optional(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where FEDLIN_DATA names a folder without the file there is no problem, and no error."""
    monkeypatch.setenv("FEDLIN_DATA", str(tmp_path))
    assert data_file("a9a.gz") is None
    a9a.cache_clear()
    assert instance(REAL, 0) is None
    a9a.cache_clear()


@pytest.mark.long
def test_robust_means_hold_where_the_mean_does_not() -> None:
    assert find("byzantine").run(Setting(quick=True, draws=2)).outcome == "holds"
