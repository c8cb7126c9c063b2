"""A cohort of many clients: drawn fairly, at the cost of those drawn, and measured as often as was said."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

import fedlin
from fedlin import Checkpoint, Plan, Result, Stop, problems, simulate, simulate_many
from fedlin.core import structure
from fedlin.engines.keys import draw_cohort
from fedlin.engines.phase import ClientProgram
from fedlin.engines.simulation.program import ProgramKey, program
from fedlin.engines.simulation.run import prepare_run
from fedlin.engines.simulation.stop import RUNNING
from fedlin.precision import precision

MEASURES = ("loss", "grad_norm", "gap", "distance")


def cohorts(clients: int, size: int, rounds: int, seed: int = 0) -> NDArray[np.int64]:
    draw = jax.vmap(lambda t: draw_cohort(jax.random.key(seed), t, clients, size))
    return np.asarray(jax.jit(draw)(np.arange(rounds, dtype=np.int32)))


def logistic(clients: int = 400, seed: int = 0) -> problems.Problem:
    draw = np.random.default_rng(seed)
    X = draw.standard_normal((clients, 6, 3))
    return problems.logistic(X, np.sign(X @ [1.0, -1.0, 0.5] + draw.standard_normal((clients, 6))), l2=0.1)


LOGISTIC = logistic()
PLAN = Plan(2, 0.5)


def run(rounds: int = 25, **rest: Any) -> Result:
    return simulate(fedlin.scaffold(), LOGISTIC, PLAN, rounds, **{"participation": 0.01, "seed": 3, **rest})


# Who is drawn.


@pytest.mark.parametrize(("clients", "size"), [(1, 1), (7, 5), (40, 10), (10**6, 1000)])
def test_a_cohort_is_distinct_clients_in_order(clients: int, size: int) -> None:
    drawn = cohorts(clients, size, 20)
    assert drawn.shape == (20, size)
    assert np.all(np.diff(drawn, axis=1) > 0)
    assert drawn.min() >= 0
    assert drawn.max() < clients
    np.testing.assert_array_equal(drawn, cohorts(clients, size, 20))
    assert clients == size or np.any(drawn != cohorts(clients, size, 20, seed=1))


@pytest.mark.parametrize("clients", [12, 7], ids=["one by one", "dealt"])
def test_every_pair_is_drawn_equally_often(clients: int) -> None:
    """Pearson's statistic over all sets of two; it exceeds this quantile once in a thousand seeds."""
    rounds, sets = 20_000, clients * (clients - 1) // 2
    first, second = cohorts(clients, 2, rounds).T
    seen = np.bincount(first * clients + second)
    seen = seen[seen > 0]
    assert len(seen) == sets
    expected = rounds / sets
    assert np.sum((seen - expected) ** 2) / expected < chi2.ppf(0.999, sets - 1)


@pytest.mark.parametrize("algorithm", [fedlin.scaffold(), fedlin.fedlin(uplink=fedlin.top_k(1))], ids=lambda a: a.name)
def test_a_small_cohort_is_the_same_cohort_on_schedule(algorithm: Any) -> None:
    rounds = 12
    schedule = np.zeros((rounds, LOGISTIC.clients))
    np.put_along_axis(schedule, cohorts(LOGISTIC.clients, 4, rounds, seed=3), 1, axis=1)
    drawn, told = (
        simulate(algorithm, LOGISTIC, PLAN, rounds, seed=3, participation=p, measure_every=1) for p in (0.01, schedule)
    )
    np.testing.assert_allclose(drawn.iterates, told.iterates, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(drawn.gradients, told.gradients)
    np.testing.assert_array_equal(drawn.bytes, told.bytes)


def test_a_round_copies_only_the_cohort() -> None:
    """Beside their inputs and outputs, the compiled rounds keep of every client what is measured and no more."""

    def scratch(clients: int) -> int:
        problem = logistic(clients)
        problem.known_optimum = None
        made = fedlin.fedlin(uplink=fedlin.top_k(1))
        member = prepare_run(
            made, problem, PLAN, 5, seed=0, x0=None, participation=50 / clients, weights=None, stop=None
        )
        site = ClientProgram(problem.objective, None, None)
        shape = ProgramKey(structure(made), False, site, 10, 4, member.cohort, member.when)
        with precision(problem.dtype):
            numbers = (np.int32(RUNNING), np.int32(1), np.int32(4))
            compiled = program(shape).lower(member.inputs(0, 4), member.state(), *numbers).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        return int(analysis.temp_size_in_bytes)

    each = (scratch(20_000) - scratch(5_000)) / 15_000
    measures, states = 8 * (1 + 3 + 1), 8 * 3 * 3  # a client's loss, gradient and gap; what it remembers
    assert each < measures + states / 10


# What is measured, and when.


def test_measured_rounds_are_those_of_a_run_that_measures_all() -> None:
    seldom, whole = run(measure_every=10), run(measure_every=1)
    np.testing.assert_array_equal(seldom.measured, [0, 10, 20, 25])
    np.testing.assert_array_equal(whole.measured, np.arange(26))
    for name in MEASURES:
        found, expected = getattr(seldom, name), getattr(whole, name)
        np.testing.assert_allclose(found[seldom.measured], expected[seldom.measured], rtol=1e-12, err_msg=name)
        assert np.all(np.isnan(np.delete(found, seldom.measured)))
    for name in ("iterates", "gradients", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(getattr(seldom, name), getattr(whole, name), err_msg=name)
    assert "after 25 rounds (3 measured)" in repr(seldom)
    assert "measured" not in repr(whole)
    np.testing.assert_array_equal(seldom.plot().lines[0].get_xdata(), seldom.measured)


def test_how_often_by_default() -> None:
    """All rounds, unless one in a hundred takes part and the measures need them all."""
    np.testing.assert_array_equal(run(250).measured, [0, 100, 200, 250])
    np.testing.assert_array_equal(run(10, participation=0.02).measured, np.arange(11))
    draw = np.random.default_rng(0)
    squares = problems.regression(draw.standard_normal((200, 4, 2)), draw.standard_normal((200, 4)))
    cheap = simulate(fedlin.fedavg(), squares, Plan(1, 1e-3), 5, participation=0.005)
    np.testing.assert_array_equal(cheap.measured, np.arange(6))


def test_a_stop_looks_at_measured_rounds_only() -> None:
    whole = run(measure_every=1, stop=Stop(gap=0.05))
    seldom = run(measure_every=4, stop=Stop(gap=0.05))
    assert whole.rounds > 1
    assert seldom.status == "stopped"
    assert seldom.rounds % 4 == 0
    assert seldom.rounds >= whole.rounds
    assert seldom.gap[-1] <= 0.05


def test_a_run_that_ends_between_measures_is_measured_at_its_end() -> None:
    whole = run(measure_every=1)
    cut = run(measure_every=10, callbacks=[lambda t, _: t == 13])
    np.testing.assert_array_equal(cut.measured, [0, 10, 13])
    np.testing.assert_allclose(cut.gap[-1], whole.gap[13], rtol=1e-12)
    far = simulate(fedlin.fedavg(), LOGISTIC, Plan(1, 1e3), 400, participation=0.01, measure_every=1000)
    assert far.status == "diverged"
    assert far.diverged_at == far.rounds + 1 < 400
    np.testing.assert_array_equal(far.measured, [0, far.rounds])


def test_a_run_seldom_measured_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    place = Checkpoint(tmp_path / "run.ckpt", every=7)
    run(14, measure_every=10, checkpoint=place)
    resumed = run(measure_every=10, checkpoint=place)
    np.testing.assert_array_equal(resumed.measured, [0, 10, 14, 20, 25])  # the first part ended at 14
    np.testing.assert_array_equal(resumed.iterates, run(measure_every=10).iterates)


def test_a_batch_measures_as_its_members_would() -> None:
    plans = [Plan(2, 0.5), Plan(2, 0.25)]
    together = simulate_many(fedlin.scaffold(), LOGISTIC, plans, 12, seeds=3, participation=0.01, measure_every=5)
    for plan, result in zip(plans, together, strict=True):
        alone = simulate(fedlin.scaffold(), LOGISTIC, plan, 12, seed=3, participation=0.01, measure_every=5)
        np.testing.assert_array_equal(result.measured, [0, 5, 10, 12])
        np.testing.assert_allclose(result.gap[result.measured], alone.gap[alone.measured], rtol=1e-10)


def test_an_old_gradient_takes_short_steps() -> None:
    """With two clients in every round and a third in every tenth, the third's gradient counts for ten rounds."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((3, 100, 20))
    problem = fedlin.problems.regression(X, np.einsum("irj,ij->ir", X, draw.standard_normal((3, 20))))
    present = np.ones((400, 3), bool)
    present[:, 2] = np.arange(400) % 10 == 0
    method = fedlin.fedlin(uplink=fedlin.innovation(fedlin.identity()))

    def distance(step: float) -> float:
        plan = Plan.scaled([11, 8, 5], step / problem.smoothness)
        return float(simulate(method, problem, plan, 400, participation=present).distance[-1])

    start = float(np.sum(problem.minimizer**2))
    assert distance(0.5) < 1e-20 * start
    assert distance(2.0) > start
