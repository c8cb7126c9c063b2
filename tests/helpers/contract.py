"""What every method must do in every engine, as checks of a row: one that you wrote elsewhere gets a row too.

A row has a factory and its arguments, the plan it runs with, and where it ends: at x* ("converges"), at another point
("stalls"), or moving around x* for ever ("neighbourhood"). `fails` names the checks the method cannot pass, with the
reason; they must then fail. `@each_check(rows)` makes a test of every check of every row:

    @each_check([Row(my_method, {"beta": 0.5}, "converges")])
    def test_my_method(check: Check, row: Row) -> None:
        check(row)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from compilation import compilations
from fedlin.core import Algorithm, Central
from fedlin.engines.keys import draw_cohort, phase_keys
from fedlin.engines.local import make_local
from fedlin.engines.opening import opening_rounds
from fedlin.engines.phase import ClientArrays, ClientProgram
from fedlin.engines.simulation.round import Cohort, play_round
from fedlin.engines.simulation.run import Run, prepare_run
from fedlin.errors import FedLinError
from fedlin.payloads import decode
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from fedlin.transports.loopback import Loopback
from quadratics import CLIENTS, DIM, ETA, TAU, X0, A, Array, B, assert_close, problem

SHORT = 12  # rounds, where it does not matter where a run ends


def own_steps(instance: Problem) -> fedlin.Plan:
    """τ_i and η_i of their own for every client."""
    return fedlin.Plan(TAU, ETA)


@dataclass(frozen=True)
class Row:
    """A method with its arguments, and what is expected of it."""

    factory: Callable[..., Algorithm[Any, Any]]
    arguments: Mapping[str, Any]
    ends: Literal["converges", "stalls", "neighbourhood"]
    plan: Callable[[Problem], fedlin.Plan] = own_steps
    every_client: bool = False  # refuses partial participation
    cohort: int | None = None  # how many take part in a round, where it is made for so many
    draws: bool = False  # a lossy link draws at random
    rounds: int = 400  # enough to see where it ends
    fails: Mapping[str, str] = field(default_factory=dict)  # names of checks, and why
    long: bool = False  # whether all checks that compile its program are left to `make test-long`

    @property
    def method(self) -> str:
        """The factory's name."""
        return self.factory.__name__

    @property
    def participation(self) -> float:
        """The share of the clients that takes part in a round."""
        return 1.0 if self.cohort is None else self.cohort / CLIENTS

    def __str__(self) -> str:
        return f"{self.method}({', '.join(f'{name}={value}' for name, value in self.arguments.items())})"

    def algorithm(self) -> Algorithm[Any, Any]:
        """The method."""
        return self.factory(**self.arguments)

    def complete(self) -> Algorithm[Any, Any]:
        """The method with the numbers it takes from the problem in place, as a federation needs it."""
        algorithm = self.algorithm()
        if algorithm.recipe is None:
            return algorithm
        recipe = replace(algorithm.recipe, numbers=tuple(prepared(self).numbers.items()))
        return replace(recipe.with_numbers(dict(recipe.numbers)), recipe=recipe)


Check = Callable[[Row], None]


def each_check(rows: Iterable[Row]) -> pytest.MarkDecorator:
    """Parameters (check, row) of a test: every check of every row, marked where the row cannot pass it."""
    parameters = []
    for row in rows:
        for check in CHECKS:
            name = check.__name__
            reason = row.fails.get(name)
            marks = [pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True)] if reason else []
            if row.long and check not in WITHOUT_PROGRAM:
                marks.append(pytest.mark.long)
            parameters.append(pytest.param(check, row, id=f"{row}-{name}", marks=marks))
    return pytest.mark.parametrize(("check", "row"), parameters)


def run(row: Row, rounds: int, instance: Problem | None = None, **options: Any) -> fedlin.Result:
    """The row's run on the usual problem, or on another."""
    chosen = problem() if instance is None else instance
    usual = {"seed": 1, "participation": row.participation}
    return fedlin.simulate(row.algorithm(), chosen, row.plan(chosen), rounds, **{**usual, **options})


def prepared(row: Row) -> Run:
    """The row's run before it starts."""
    return prepare_run(
        row.algorithm(),
        problem(),
        row.plan(problem()),
        1,
        seed=0,
        x0=X0,
        participation=row.participation,
        weights=None,
        stop=None,
    )


def equal_arguments_give_the_same_object(row: Row) -> None:
    """Which engines have compiled already."""
    assert row.algorithm() is row.algorithm()


def the_state_keeps_its_structure(row: Row) -> None:
    """Trees, shapes, types and weak types are those of the start, after the first round and the next ones."""
    with precision(np.float64):
        algorithm, start = row.complete(), prepared(row).state()
        inputs = prepared(row).inputs(0, 1)
        weights = jnp.asarray(inputs.weights)

        def play(phases: Any, server: Any, states: Any) -> Any:
            clients = ClientArrays(jnp.arange(CLIENTS), inputs.data, None, inputs.tau, inputs.eta, states)
            site = ClientProgram(problem().objective, None)
            number = jnp.zeros((), jnp.int32)
            seed = jax.random.key(inputs.seed)
            return play_round(phases, site, server, clients, weights, inputs.totals, Cohort(), seed, number)[:2]

        def facts(state: Any) -> Any:
            described = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), state)
            return jax.tree.structure(state), jax.tree.leaves(described)

        expected = facts(jax.eval_shape(lambda: tuple(start)))
        rounds = [algorithm.opening or algorithm.phases, algorithm.phases, algorithm.phases]
        state: Any = tuple(start)
        for phases in rounds:
            state = jax.eval_shape(lambda s, c, phases=phases: play(phases, s, c), *state)
            assert facts(state) == expected
        assert state[0].x.shape == (DIM,)


def the_end(row: Row) -> None:
    """At x*, at rest elsewhere, or restless near x*."""
    assert_ends(row, run(row, row.rounds))


def assert_ends(row: Row, result: fedlin.Result) -> None:
    """A long run ends as the row says."""
    assert result.status == "done"
    relative = result.distance / result.distance[0]
    moves = np.linalg.norm(np.diff(result.iterates, axis=0), axis=1) / np.linalg.norm(problem().minimizer)
    late = slice(-50, None)
    if row.ends == "converges":
        assert np.all(relative[late] < 1e-24)
    elif row.ends == "stalls":
        assert np.all(relative[late] > 1e-4)
        assert np.all(moves[late] < 1e-12)
    else:
        assert 1e-6 < np.median(relative[late]) < 0.5
        assert np.min(moves[late]) > 1e-6
    assert np.median(relative[late]) < 0.5  # wherever it ends, it is nearer than it began


def other_numbers_compile_nothing(row: Row) -> None:
    """Data, steps, start, seed and the number of rounds are inputs of the program."""
    run(row, SHORT)
    other = fedlin.problems.quadratic(A[::-1] + np.eye(DIM), -B)
    other.optimum  # noqa: B018 - what a problem finds out about itself is not the run's
    with compilations() as seen:
        plan = row.plan(other)
        changed = fedlin.Plan(plan.tau[::-1] if plan.tau.ndim else plan.tau, plan.eta * 0.9)
        share = row.participation
        result = fedlin.simulate(row.algorithm(), other, changed, SHORT + 3, seed=2, x0=X0, participation=share)
    assert seen == []
    assert result.status == "done"


def a_seed_decides_every_bit(row: Row) -> None:
    """The same seed gives the same models."""
    first, again = run(row, SHORT, x0=X0), run(row, SHORT, x0=X0)
    np.testing.assert_array_equal(first.iterates, again.iterates)
    np.testing.assert_array_equal(first.gap, again.gap)


def the_order_of_the_clients_does_not_matter(row: Row) -> None:
    """Clients renumbered with their plan give the same models."""
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    plan = row.plan(problem())
    steps = fedlin.Plan(plan.tau[order] if plan.tau.ndim else plan.tau, plan.eta[order] if plan.eta.ndim else plan.eta)
    renumbered = fedlin.problems.quadratic(A[order], B[order])
    share = row.participation
    result = fedlin.simulate(row.algorithm(), renumbered, steps, SHORT, seed=1, x0=X0, participation=share)
    assert_close(result.iterates, run(row, SHORT, x0=X0).iterates, 1e-12)


EVERYONE = np.ones((SHORT, CLIENTS), bool)
PRESENT = np.random.default_rng(8).random((SHORT, CLIENTS)) < 0.5
PRESENT[0], PRESENT[1], PRESENT[:, 2] = True, [0, 1, 1, 0, 0, 0, 1], True  # somebody answers in every round


def in_single_precision(row: Row, participation: Array | float) -> fedlin.Result:
    """A short run on the usual problem in float32."""
    single = fedlin.problems.quadratic(A.astype(np.float32), B.astype(np.float32))
    return run(row, SHORT, single, participation=participation)


def single_and_double_precision(row: Row) -> None:
    """A problem's precision is the run's, and single is double up to its rounding."""
    double = run(row, SHORT)
    single = in_single_precision(row, row.participation if row.every_client or row.cohort else EVERYONE)
    assert double.x.dtype == double.iterates.dtype == double.gap.dtype == np.float64
    assert single.x.dtype == single.iterates.dtype == single.gap.dtype == np.float32
    # A draw in another precision is another draw, so only the first round, sent in full, can be compared.
    rounds = 1 if row.draws else SHORT
    assert_close(single.iterates[: rounds + 1].astype(np.float64), double.iterates[: rounds + 1], 1e-4)
    assert np.all(np.isfinite(single.iterates))


def some_clients_stay_away(row: Row) -> None:
    """Only those who answer send and compute; a method whose clients must not miss a message refuses.

    One that is made for rounds of so many refuses others, and a schedule of so many is as good as a draw.
    """
    if row.cohort is not None:
        for participation in (PRESENT, 1.0):
            with pytest.raises(FedLinError, match=f"made for rounds of {row.cohort} clients"):
                run(row, SHORT, participation=participation)
        drawn = jax.vmap(lambda t: draw_cohort(jax.random.key(1), t, CLIENTS, row.cohort or 0))(jnp.arange(SHORT))
        schedule = np.zeros((SHORT, CLIENTS), bool)
        np.put_along_axis(schedule, np.asarray(drawn), True, axis=1)
        part, whole = run(row, SHORT, participation=schedule), run(row, SHORT)
        assert_close(part.iterates, whole.iterates, 1e-12)
        np.testing.assert_array_equal(part.gradients, whole.gradients)
        return
    if row.every_client:
        for participation in (PRESENT, 0.5):
            with pytest.raises(FedLinError, match="every client in every round"):
                run(row, SHORT, participation=participation)
        return
    part, whole = in_single_precision(row, PRESENT), in_single_precision(row, EVERYONE)
    assert np.all(np.isfinite(part.iterates))
    np.testing.assert_array_equal(part.iterates[1], whole.iterates[1])  # all answer in the first round
    assert np.max(np.abs(part.iterates[2] - whole.iterates[2])) > 1e-4
    for name in ("bytes_up", "bytes_down"):
        one = np.diff(getattr(whole, name)) // CLIENTS
        np.testing.assert_array_equal(np.diff(getattr(part, name)), one * PRESENT.sum(axis=1))
    calls, all_calls = np.diff(part.gradients), np.diff(whole.gradients)
    np.testing.assert_array_equal(calls < all_calls, (PRESENT.sum(axis=1) < CLIENTS) & (all_calls > 0))


def a_federation_takes_the_same_steps(row: Row) -> None:
    """Seven machines and a server, each with its own part of the numbers, make the simulated run."""
    algorithm = row.complete()
    sites = {f"site-{i}": fedlin.Client(algorithm, problem().client(i), secret=b"").handle for i in range(CLIENTS)}
    models = [X0]
    result = fedlin.serve(
        algorithm,
        Loopback(sites),
        row.plan(problem()),
        SHORT,
        seed=1,
        secret=b"",
        policy=None if row.cohort is None else fedlin.Policy.drawn(row.cohort),
        x0=X0,
        on_round=lambda t, x, _: models.append(x),
    )
    simulated = run(row, SHORT, x0=X0)
    assert_close(np.array(models), simulated.iterates, 1e-10)
    for name in ("bytes_up", "bytes_down", "gradients"):
        np.testing.assert_array_equal(getattr(result, name), getattr(simulated, name))


def a_run_in_chunks_takes_the_same_steps(row: Row) -> None:
    """Three clients at a time, the data and states of all on the host, make the run in memory."""
    whole, chunks = run(row, SHORT, x0=X0), run(row, SHORT, x0=X0, chunk=3)
    assert_close(chunks.iterates, whole.iterates, 1e-10)
    for name in ("bytes_up", "bytes_down", "gradients"):
        np.testing.assert_array_equal(getattr(chunks, name), getattr(whole, name))


def sent_by_hand(row: Row, rounds: int) -> tuple[list[int], list[int]]:
    """Bytes of the arrays one client really gets and sends in each round."""
    algorithm = row.complete()
    instance = fedlin.problems.quadratic(A[:1], B[:1])
    down, up = [], []
    with precision(np.float64):
        data = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), instance.data)
        tau, eta, one = jnp.asarray(3, jnp.int32), jnp.asarray(0.01), jnp.asarray(1.0)
        server, client = algorithm.init_server(jnp.asarray(X0)), algorithm.init_client(jnp.asarray(X0))
        for number in range(rounds):
            got = sent = 0
            for position, phase in enumerate((number == 0 and algorithm.opening) or algorithm.phases):
                keys = phase_keys(jax.random.key(0), jnp.asarray(number), position)
                message = phase.down(server)
                local, _ = make_local(
                    instance.objective, None, data, None, tau, eta, keys.client(jnp.asarray(0)), keys.shared
                )
                client, upload = phase.client(client, decode(message), local)
                server = phase.server(
                    server, decode(upload), Central(one, keys.server, keys.shared, eta, one / CLIENTS)
                )
                got += sum(leaf.nbytes for leaf in jax.tree.leaves(message))
                sent += sum(leaf.nbytes for leaf in jax.tree.leaves(upload))
            down.append(got)
            up.append(sent)
    return down, up


def bytes_are_those_of_the_arrays_sent(row: Row) -> None:
    """The first round's, the second's and, since nothing changes after, all later ones' that are not as the first."""
    result = run(row, SHORT)
    down, up = sent_by_hand(row, 2)
    opens = opening_rounds(row.algorithm(), 1, 0, SHORT)
    opens[0] = True
    for counted, sent in ((result.bytes_down, down), (result.bytes_up, up)):
        assert counted[0] == 0
        np.testing.assert_array_equal(np.diff(counted), (row.cohort or CLIENTS) * np.where(opens, *sent))


CHECKS: tuple[Check, ...] = (
    equal_arguments_give_the_same_object,
    the_state_keeps_its_structure,
    the_end,
    other_numbers_compile_nothing,
    a_seed_decides_every_bit,
    the_order_of_the_clients_does_not_matter,
    single_and_double_precision,
    some_clients_stay_away,
    a_federation_takes_the_same_steps,
    a_run_in_chunks_takes_the_same_steps,
    bytes_are_those_of_the_arrays_sent,
)
WITHOUT_PROGRAM: tuple[Check, ...] = (equal_arguments_give_the_same_object, the_state_keeps_its_structure)
