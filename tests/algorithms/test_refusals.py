"""What methods of few bits and few rounds cannot serve is refused before any work, and what is named instead serves."""

import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import fedlin
from compilation import compilations
from contract import Row
from fedlin import top_k
from fedlin.aggregation import trimmed_mean
from fedlin.core import Algorithm, Requirement
from fedlin.engines.simulation.run import prepare_run
from fedlin.errors import FedLinError
from fedlin.problems.problem import Problem
from method_rows import ROWS
from quadratics import CLIENTS, DIM, A, B, problem

ALIKE = {Requirement.ONE_STEP_SIZE, Requirement.ONE_STEP_COUNT, Requirement.PLAIN_STEPS, Requirement.OWN_MODEL}
FOLLOWS = {Requirement.MEAN_UPLOAD}
ALL = {Requirement.EVERY_CLIENT} | FOLLOWS
STEEP = {Requirement.STRONG_CONVEXITY, Requirement.OWN_MODEL, Requirement.ONE_STEP_SIZE} | ALL
NEEDS: dict[str, set[Requirement]] = {
    "adiana": STEEP,
    "compressed_scaffnew": ALIKE | ALL | {Requirement.EQUAL_WEIGHTS},
    "diana": FOLLOWS,
    "ef21": FOLLOWS,
    "fedlin_newton": {Requirement.HESSIAN, Requirement.STRONG_CONVEXITY, Requirement.PLAIN_STEPS},
    "fednl": {Requirement.HESSIAN, Requirement.STRONG_CONVEXITY, Requirement.ONE_STEP_SIZE} | ALL,
    "fednl_pp": {Requirement.HESSIAN, Requirement.OWN_MODEL} | FOLLOWS,
    "gradskip": ALIKE - {Requirement.ONE_STEP_COUNT} | ALL,
    "locodl": STEEP | {Requirement.PLAIN_STEPS},
    "marina": ALL,
    "scaffnew": ALIKE | ALL,
    "tamuna": ALIKE | FOLLOWS | {Requirement.EQUAL_WEIGHTS},
}
LOSSY = ALL | {Requirement.OWN_MODEL}  # besides, where models come down as moves and gradients go up as changes
METHODS = [row for row in ROWS if row.method in NEEDS]
ONE = fedlin.Plan(2, 0.01)
SOME = np.random.default_rng(1).random((3, CLIENTS)) < 0.5
SOME[:, 0] = True


class Input(NamedTuple):
    """What a run is given in place of the usual, and whom it does not suit."""

    lacks: set[Any]  # of what methods require; "clients" where they are made for a number of them
    given: dict[str, Any]


def torch_problem() -> Problem:
    torch = pytest.importorskip("torch")
    import fedlin.torch

    model = torch.nn.Linear(DIM, 1, bias=False, dtype=torch.float64)
    rows = [(torch.ones(3, DIM, dtype=torch.float64), torch.ones(3, dtype=torch.float64)) for _ in range(CLIENTS)]
    made: Problem = fedlin.torch.problem(model, lambda out, y: ((out[:, 0] - y) ** 2).mean(), rows, l2=0.1)
    return made


INPUTS = {
    "unequal τ_i": Input({Requirement.ONE_STEP_COUNT}, {"plan": fedlin.Plan(np.arange(CLIENTS) + 1, 0.01)}),
    "unequal η_i": Input({Requirement.ONE_STEP_SIZE}, {"plan": fedlin.Plan(2, 0.01 * (np.arange(CLIENTS) + 1))}),
    "a share of the clients": Input({Requirement.EVERY_CLIENT}, {"participation": 2 / CLIENTS}),
    "a schedule": Input({Requirement.EVERY_CLIENT}, {"participation": SOME}),
    "unequal weights": Input({Requirement.EQUAL_WEIGHTS}, {"weights": np.arange(1.0, CLIENTS + 1)}),
    "no curvature": Input(
        {Requirement.STRONG_CONVEXITY}, {"problem": fedlin.problems.logistic(A, np.ones((CLIENTS, DIM)))}
    ),
    "a torch model": Input({Requirement.HESSIAN, Requirement.STRONG_CONVEXITY}, {}),  # made where it is needed
    "one client more": Input({"clients"}, {"problem": fedlin.problems.quadratic([*A, A[0]], [*B, B[0]])}),
    "a robust mean": Input({Requirement.MEAN_UPLOAD}, {"aggregate": trimmed_mean(1)}),
}


@pytest.mark.parametrize("row", METHODS, ids=str)
def test_a_method_needs_what_its_source_asks_for(row: Row) -> None:
    """Written down here once more, since what follows reads it from the methods themselves."""
    lossy = row.method == "fedlin_newton" and bool(row.arguments)
    assert row.algorithm().requires == NEEDS[row.method] | (LOSSY if lossy else set())


def prepare(algorithm: Algorithm[Any, Any], given: dict[str, Any], share: float = 1.0) -> None:
    """All that is checked before a run."""
    usual = {"problem": problem(), "plan": ONE, "seed": 0, "x0": None, "participation": share, "weights": None}
    prepare_run(algorithm, rounds=3, **{**usual, "stop": None, **given})


def suits(row: Row, name: str) -> bool:
    """Whether the method can serve this input."""
    algorithm, lacks = row.algorithm(), INPUTS[name].lacks
    if row.cohort is not None and "participation" in INPUTS[name].given:
        return False
    return not lacks & (algorithm.requires | ({"clients"} if algorithm.clients else set()))


def serving(words: str) -> list[Algorithm[Any, Any]]:
    """The methods that a refusal names."""
    calls = re.findall(r"fedlin\.[a-z_0-9]+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", words)
    known = {"fedlin": fedlin, "beta": 0.1, "compressor": top_k(2)}
    return [made for made in (eval(call, known) for call in calls) if isinstance(made, Algorithm)]


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("row", METHODS, ids=str)
def test_what_does_not_suit_is_refused_and_what_is_named_instead_serves(row: Row, name: str) -> None:
    given = INPUTS[name].given or {"problem": torch_problem()}
    algorithm = row.algorithm()
    if suits(row, name):
        prepare(algorithm, given, row.participation)
        return
    usual = {"problem": problem(), "plan": ONE, "participation": row.participation}
    with compilations() as seen, pytest.raises(FedLinError) as caught:
        fedlin.simulate(algorithm, rounds=3, **{**usual, **given})
    assert seen == []
    words = str(caught.value)
    assert words.startswith(algorithm.name)
    instead = serving(words)
    assert instead
    for other in instead:
        prepare(other, given)


@pytest.mark.parametrize("row", METHODS, ids=str)
def test_a_quorum_is_refused_where_everyone_or_the_drawn_are_needed(row: Row) -> None:
    algorithm, quorum = row.algorithm(), fedlin.Policy.first(3)
    if Requirement.EVERY_CLIENT not in algorithm.requires and row.cohort is None:
        quorum.check(algorithm)
        fedlin.Policy.drawn(3).check(algorithm)
        return
    for policy in (quorum, fedlin.Policy.drawn(3)):
        with pytest.raises(FedLinError) as caught:
            policy.check(algorithm)
        instead = serving(str(caught.value))
        assert len(instead) > 1
        for other in instead:
            policy.check(other)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: fedlin.diana(top_k(2), 0.5), "DIANA"),
        (lambda: fedlin.adiana(top_k(2), 0.5, 0.5), "ADIANA"),
        (lambda: fedlin.locodl(top_k(2), 0.5, 0.5), "LoCoDL"),
        (lambda: fedlin.marina(top_k(2), 0.5), "MARINA"),
    ],
    ids=["diana", "adiana", "locodl", "marina"],
)
def test_a_biased_compressor_is_refused_by_name(make: Any, named: str) -> None:
    with pytest.raises(FedLinError) as caught:
        make()
    assert f"biased, and {named} needs" in str(caught.value)
    for other in serving(str(caught.value)):
        prepare(other, {})


@pytest.mark.parametrize("row", METHODS, ids=str)
def test_momentum_asks_for_what_its_method_asks_for_and_leaves_own_models_alone(row: Row) -> None:
    algorithm = row.algorithm()
    if Requirement.OWN_MODEL not in algorithm.requires:
        assert fedlin.momentum(algorithm, 0.3).requires == algorithm.requires
        return
    with pytest.raises(FedLinError, match="momentum puts another one in its place") as caught:
        fedlin.momentum(algorithm, 0.3)
    assert str(caught.value).startswith(algorithm.name)
    instead = serving(str(caught.value))
    assert len(instead) == 3
    for other in instead:
        fedlin.momentum(other, 0.3)


def test_stages_of_fast_clients_refuse_methods_that_need_all_or_so_many() -> None:
    clock = fedlin.Clock(100.0)
    for method in (fedlin.marina(fedlin.natural(), 0.5), fedlin.tamuna(CLIENTS, 4, 2)):
        with pytest.raises(FedLinError, match="leave the slow ones out") as caught:
            fedlin.flanp(method, problem(), ONE, clock, 3, accuracy=1.0)
        assert len(serving(str(caught.value))) == 2
