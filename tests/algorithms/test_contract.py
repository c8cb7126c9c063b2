"""What every method must do, one row each: to add a method, add a row.

A row names a public factory and its arguments, the plan it runs with, and where it ends:
at x* ("converges"), at another point ("stalls"), or moving around x* for ever ("neighbourhood").
`fails` names the checks the method cannot pass, with the reason; they must then fail.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from compilation import compilations
from fedlin import cast, error_feedback, innovation, natural, plain, privacy, quantize, rand_k, shifted, sign, top_k
from fedlin.core import Algorithm, Central
from fedlin.engines.keys import phase_keys
from fedlin.engines.local import make_local
from fedlin.engines.phase import ClientArrays, ClientProgram
from fedlin.engines.simulation.round import Cohort, play_round
from fedlin.engines.simulation.run import Run, prepare_run
from fedlin.errors import FedLinError
from fedlin.payloads import decode
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from fedlin.transports.loopback import Loopback
from quadratics import CLIENTS, DIM, ETA, TAU, X0, A, Array, B, assert_close, problem

SHORT = 12
Check = Literal["permutation", "precision"]


def own_steps(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(TAU, ETA)


def one_step_size(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(TAU, 0.01)


def one_large_step(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(1, 1 / instance.smoothness)


def one_of_each(instance: Problem) -> fedlin.Plan:
    return fedlin.Plan(3, 1 / instance.smoothness)


def accelerated(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.fedac(instance, 5)


def changes(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.ef21(instance, DIM / 2)


def differences(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.diana(instance, DIM / 2 - 1)


def splitting(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.fedsplit(instance)


@dataclass(frozen=True)
class Row:
    method: str
    arguments: Mapping[str, Any]
    ends: Literal["converges", "stalls", "neighbourhood"]
    plan: Callable[[Problem], fedlin.Plan] = own_steps
    every_client: bool = False  # refuses partial participation
    draws: bool = False  # a lossy link draws at random
    rounds: int = 400  # enough to see where it ends
    fails: Mapping[Check, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method}({', '.join(f'{name}={value}' for name, value in self.arguments.items())})"

    def algorithm(self) -> Algorithm[Any, Any]:
        made: Algorithm[Any, Any] = getattr(fedlin.algorithms, self.method)(**self.arguments)
        return made


DRAWS: Mapping[Check, str] = {"permutation": "each client draws its own entries, and its number decides which"}
NOISED: Mapping[Check, str] = {"precision": "no round is sent in full, and a draw in another precision is another draw"}
FROM_THE_START: Mapping[Check, str] = {**DRAWS, **NOISED}
ROWS = [
    Row("gradient_descent", {}, "converges", one_large_step),
    Row("fedavg", {}, "stalls"),
    Row("fedprox", {"beta": 0.5}, "stalls"),
    Row("fednova", {}, "stalls", one_step_size),
    Row("scaffold", {}, "converges"),
    Row("scaffold", {"option": 1, "server_step": 0.8}, "converges"),
    Row("fedsplit", {}, "converges", splitting),
    Row("fedsplit", {"steps": 3, "start": "u"}, "stalls", splitting),
    Row("fedsplit", {"steps": 3, "start": "model"}, "converges", splitting),
    Row("scaffnew", {}, "converges", one_of_each, every_client=True),
    Row("ef21", {"compressor": top_k(2)}, "converges", changes, rounds=2000),
    Row(
        "diana",
        {"compressor": rand_k(2, unbiased=True), "alpha": 0.4},
        "converges",
        differences,
        draws=True,
        fails=DRAWS,
    ),
    Row(
        "fedpaq",
        {"compressor": quantize(4)},
        "neighbourhood",
        draws=True,
        fails=FROM_THE_START,
    ),
    Row(
        "fedpaq",
        {"compressor": privacy.gaussian(1.0, 0.02)},
        "neighbourhood",
        draws=True,
        fails=NOISED,
    ),
    Row(
        "fedlin",
        {"uplink": innovation(privacy.gaussian(1.0, 0.01)), "model_uplink": privacy.gaussian(1.0, 0.01)},
        "neighbourhood",
        draws=True,
        fails=FROM_THE_START,
    ),
    Row(
        "fedlin",
        {
            "uplink": privacy.gaussian(50.0, 1e-3, where="central"),
            "model_uplink": privacy.gaussian(1.0, 0.01, where="central"),
        },
        "neighbourhood",
        draws=True,
        fails=NOISED,
    ),
    # Exactly, though quantised: at x* with δ_i = ∇f_i(x*) there is nothing left to quantise.
    Row("fedcomgate", {"compressor": natural()}, "converges", draws=True, fails=FROM_THE_START),
    Row("gradient_tracking", {}, "converges"),
    Row("fedac", {}, "stalls", accelerated),
    Row("s_local_svrg", {"renewal": 0.3}, "converges", every_client=True),
    Row("compressed", {"k": 2}, "converges", every_client=True),
    Row("fedlin", {"same_batch": True}, "converges"),
    Row("fedlin", {}, "converges"),
    Row("fedlin", {"uplink": error_feedback(top_k(2))}, "neighbourhood"),
    Row("fedlin", {"downlink": plain(top_k(2))}, "converges"),
    Row("fedlin", {"uplink": top_k(2), "downlink": top_k(2)}, "neighbourhood"),
    Row("fedlin", {"uplink": innovation(top_k(2))}, "converges"),
    Row("fedlin", {"uplink": innovation(cast("float16", top_k(2)))}, "converges"),
    Row(
        "fedlin",
        {"uplink": innovation(cast("float16")), "downlink": cast("float16"), "model_downlink": cast("float16")},
        "converges",
        every_client=True,
    ),
    Row("ef21", {"compressor": cast("float32", top_k(2))}, "converges", changes, rounds=2000),
    Row("fedlin", {"downlink": innovation(top_k(2))}, "converges", every_client=True),
    Row("fedlin", {"model_uplink": error_feedback(top_k(2))}, "converges"),
    Row("fedlin", {"model_uplink": innovation(top_k(2))}, "converges"),
    Row("fedlin", {"model_downlink": error_feedback(top_k(2))}, "converges", every_client=True),
    Row("fedlin", {"model_downlink": innovation(top_k(2))}, "converges", every_client=True),
    Row("fedlin", {"uplink": rand_k(2)}, "neighbourhood", draws=True, fails=DRAWS),
    Row("fedlin", {"uplink": quantize(4)}, "neighbourhood", draws=True, fails=DRAWS),
    Row("fedlin", {"uplink": sign()}, "neighbourhood"),
    Row("fedlin", {"uplink": shifted(rand_k(2, unbiased=True), 0.4)}, "converges", draws=True, fails=DRAWS),
    Row(
        "fedlin",
        {"downlink": innovation(quantize(4)), "model_uplink": sign()},
        "converges",
        every_client=True,
        draws=True,
    ),
]


def every_row(check: Check | None = None) -> pytest.MarkDecorator:
    """All rows, those that cannot pass this check marked so."""
    rows = []
    for row in ROWS:
        marks = []
        if check is not None and check in row.fails:
            marks.append(pytest.mark.xfail(reason=row.fails[check], raises=AssertionError, strict=True))
        rows.append(pytest.param(row, id=str(row), marks=marks))
    return pytest.mark.parametrize("row", rows)


def run(row: Row, rounds: int, instance: Problem | None = None, **options: Any) -> fedlin.Result:
    chosen = problem() if instance is None else instance
    return fedlin.simulate(row.algorithm(), chosen, row.plan(chosen), rounds, **{"seed": 1, **options})


def member(row: Row) -> Run:
    return prepare_run(
        row.algorithm(),
        problem(),
        row.plan(problem()),
        1,
        seed=0,
        x0=X0,
        participation=1.0,
        weights=None,
        stop=None,
    )


def complete(row: Row) -> Algorithm[Any, Any]:
    """The method with the numbers it takes from the problem in place."""
    algorithm = row.algorithm()
    assert algorithm.recipe is not None
    return algorithm.recipe.with_numbers(member(row).numbers)


def test_every_public_method_has_a_row() -> None:
    assert {row.method for row in ROWS} == set(fedlin.algorithms.__all__)
    assert set(fedlin.algorithms.__all__) <= set(fedlin.__all__)


@pytest.mark.parametrize("method", fedlin.algorithms.__all__)
def test_a_factory_keeps_the_name_and_the_words_of_what_it_wraps(method: str) -> None:
    made = getattr(fedlin.algorithms, method)
    assert made.__name__ == method
    assert f"{method}(" in made.__doc__  # its doctest


@every_row()
def test_equal_arguments_give_the_same_object(row: Row) -> None:
    """Which engines have compiled already."""
    assert row.algorithm() is row.algorithm()


@every_row()
def test_the_state_keeps_its_structure(row: Row) -> None:
    """Trees, shapes, types and weak types are those of the start, after the first round and the next ones."""
    with precision(np.float64):
        algorithm, start = complete(row), member(row).state()
        inputs = member(row).inputs(0, 1)
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


@every_row()
def test_the_end(row: Row) -> None:
    """At x*, at rest elsewhere, or restless near x*."""
    assert_ends(row, run(row, row.rounds))


def assert_ends(row: Row, result: fedlin.Result) -> None:
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


@every_row()
def test_other_numbers_compile_nothing(row: Row) -> None:
    """Data, steps, start, seed and the number of rounds are inputs of the program."""
    run(row, SHORT)
    other = fedlin.problems.quadratic(A[::-1] + np.eye(DIM), -B)
    other.optimum  # noqa: B018 - what a problem finds out about itself is not the run's
    with compilations() as seen:
        plan = row.plan(other)
        changed = fedlin.Plan(plan.tau[::-1] if plan.tau.ndim else plan.tau, plan.eta * 0.9)
        result = fedlin.simulate(row.algorithm(), other, changed, SHORT + 3, seed=2, x0=X0)
    assert seen == []
    assert result.status == "done"


@every_row()
def test_a_seed_decides_every_bit(row: Row) -> None:
    first, again = run(row, SHORT, x0=X0), run(row, SHORT, x0=X0)
    np.testing.assert_array_equal(first.iterates, again.iterates)
    np.testing.assert_array_equal(first.gap, again.gap)


@every_row("permutation")
def test_the_order_of_the_clients_does_not_matter(row: Row) -> None:
    """Clients renumbered with their plan give the same models."""
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    plan = row.plan(problem())
    steps = fedlin.Plan(plan.tau[order] if plan.tau.ndim else plan.tau, plan.eta[order] if plan.eta.ndim else plan.eta)
    renumbered = fedlin.problems.quadratic(A[order], B[order])
    result = fedlin.simulate(row.algorithm(), renumbered, steps, SHORT, seed=1, x0=X0)
    assert_close(result.iterates, run(row, SHORT, x0=X0).iterates, 1e-12)


EVERYONE = np.ones((SHORT, CLIENTS), bool)
PRESENT = np.random.default_rng(8).random((SHORT, CLIENTS)) < 0.5
PRESENT[0], PRESENT[1], PRESENT[:, 2] = True, [0, 1, 1, 0, 0, 0, 1], True  # somebody answers in every round


def in_single_precision(row: Row, participation: Array | float) -> fedlin.Result:
    single = fedlin.problems.quadratic(A.astype(np.float32), B.astype(np.float32))
    return run(row, SHORT, single, participation=participation)


@every_row("precision")
def test_single_and_double_precision(row: Row) -> None:
    """A problem's precision is the run's, and single is double up to its rounding."""
    double = run(row, SHORT)
    single = in_single_precision(row, 1.0 if row.every_client else EVERYONE)
    assert double.x.dtype == double.iterates.dtype == double.gap.dtype == np.float64
    assert single.x.dtype == single.iterates.dtype == single.gap.dtype == np.float32
    # A draw in another precision is another draw, so only the first round, sent in full, can be compared.
    rounds = 1 if row.draws else SHORT
    assert_close(single.iterates[: rounds + 1].astype(np.float64), double.iterates[: rounds + 1], 1e-4)
    assert np.all(np.isfinite(single.iterates))


@every_row()
def test_some_clients_stay_away(row: Row) -> None:
    """Only those who answer send and compute; a method whose clients must not miss a message refuses."""
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


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_share_of_the_clients_is_drawn_anew_every_round(method: str) -> None:
    """Half of seven is four; each of them sends, and over many rounds everyone is drawn."""
    row = next(row for row in ROWS if row.method == method)
    result, whole = run(row, 200, participation=0.5), run(row, 200)
    np.testing.assert_array_equal(result.bytes_up * CLIENTS, whole.bytes_up * 4)
    calls = np.diff(result.gradients)
    assert len(set(calls.tolist())) > 10  # τ_i all differ, so other cohorts take other numbers of steps
    assert np.mean(calls) == pytest.approx(4 * TAU.mean(), rel=0.05)


@every_row()
def test_a_federation_takes_the_same_steps(row: Row) -> None:
    """Seven machines and a server, each with its own part of the numbers, make the simulated run."""
    recipe = row.algorithm().recipe
    assert recipe is not None
    numbers = {name: getattr(problem(), name) if value is None else value for name, value in recipe.numbers}
    algorithm = getattr(fedlin.algorithms, row.method)(**{**row.arguments, **numbers})
    sites = {f"site-{i}": fedlin.Client(algorithm, problem().client(i), secret=b"").handle for i in range(CLIENTS)}
    models = [X0]
    result = fedlin.serve(
        algorithm,
        Loopback(sites),
        row.plan(problem()),
        SHORT,
        seed=1,
        secret=b"",
        x0=X0,
        on_round=lambda t, x, _: models.append(x),
    )
    simulated = run(row, SHORT, x0=X0)
    assert_close(np.array(models), simulated.iterates, 1e-10)
    for name in ("bytes_up", "bytes_down", "gradients"):
        np.testing.assert_array_equal(getattr(result, name), getattr(simulated, name))


@every_row()
def test_a_run_in_chunks_takes_the_same_steps(row: Row) -> None:
    """Three clients at a time, the data and states of all on the host, make the run in memory."""
    whole, chunks = run(row, SHORT, x0=X0), run(row, SHORT, x0=X0, chunk=3)
    assert_close(chunks.iterates, whole.iterates, 1e-10)
    for name in ("bytes_up", "bytes_down", "gradients"):
        np.testing.assert_array_equal(getattr(chunks, name), getattr(whole, name))


def sent_by_hand(row: Row, rounds: int) -> tuple[list[int], list[int]]:
    """Bytes of the arrays one client really gets and sends in each round."""
    algorithm = complete(row)
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


@every_row()
def test_bytes_are_those_of_the_arrays_sent(row: Row) -> None:
    """The first round's, the second's and, since nothing changes after, all later ones'."""
    result = run(row, SHORT)
    down, up = sent_by_hand(row, 2)
    for counted, sent in ((result.bytes_down, down), (result.bytes_up, up)):
        assert counted[0] == 0
        np.testing.assert_array_equal(np.diff(counted), CLIENTS * np.array([sent[0]] + [sent[1]] * (SHORT - 1)))


# Ways to choose clients around a method: what they do to it, one row each.


@dataclass(frozen=True)
class Choosing:
    way: str  # a public function of a method, a problem, a plan and a clock
    row: Row  # the method in it, and where that ends
    options: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.way}({self.row})"

    def run(self, rounds: int, order: Array | None = None, **rest: Any) -> fedlin.Result:
        """On the usual problem, its clients and their machines renumbered if told."""
        chosen = np.arange(CLIENTS) if order is None else order
        instance = fedlin.problems.quadratic(A[chosen], B[chosen])
        steps = self.row.plan(problem())
        eta = steps.eta[chosen] if steps.eta.ndim else steps.eta
        plan, clock = fedlin.Plan(steps.tau[chosen] if steps.tau.ndim else steps.tau, eta), fedlin.Clock(SPEED[chosen])
        given = {"seed": 1, "x0": X0, **self.options, **rest}
        result: fedlin.Result = getattr(fedlin, self.way)(self.row.algorithm(), instance, plan, clock, rounds, **given)
        return result


def in_stages(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.flanp(instance, TAU)


SPEED = np.array([3.0, 50.0, 1.0, 20.0, 9.0, 70.0, 5.0])
CHOOSING = [
    Choosing("flanp", Row("gradient_tracking", {}, "converges", in_stages), {"accuracy": 1.0}),
    Choosing("flanp", Row("fedavg", {}, "stalls"), {"accuracy": 1.0, "first": 2}),
]
every_choice = pytest.mark.parametrize("choosing", CHOOSING, ids=str)


def test_every_way_to_choose_clients_has_a_row_and_steps_of_its_own() -> None:
    takes = ["algorithm", "problem", "plan", "clock"]
    public = {name: getattr(fedlin, name) for name in fedlin.__all__ if inspect.isfunction(getattr(fedlin, name))}
    ways = {name for name, thing in public.items() if list(inspect.signature(thing).parameters)[:4] == takes}
    assert ways == {choosing.way for choosing in CHOOSING}
    assert ways <= set(fedlin.theory.__all__)


@every_choice
def test_choosing_clients_does_not_change_where_a_method_ends(choosing: Choosing) -> None:
    assert_ends(choosing.row, choosing.run(choosing.row.rounds))


@every_choice
def test_a_seed_decides_who_is_chosen(choosing: Choosing) -> None:
    first, again = choosing.run(SHORT), choosing.run(SHORT)
    np.testing.assert_array_equal(first.iterates, again.iterates)
    np.testing.assert_array_equal(first.simulated, again.simulated)


@every_choice
def test_who_is_chosen_does_not_depend_on_the_order_of_the_clients(choosing: Choosing) -> None:
    renumbered = choosing.run(SHORT, np.array([3, 0, 6, 1, 5, 2, 4]))
    expected = choosing.run(SHORT)
    assert_close(renumbered.iterates, expected.iterates, 1e-12)
    np.testing.assert_array_equal(renumbered.bytes_up, expected.bytes_up)


@every_choice
def test_only_those_who_are_chosen_send(choosing: Choosing) -> None:
    """Bytes of a round are those one client sends, as often as there are clients: from `first` to all of them."""
    sent = np.diff(choosing.run(choosing.row.rounds).bytes_down)
    counts = fedlin.theory.staged.stages(CLIENTS, choosing.options.get("first", 1))
    sizes = fedlin.message_sizes(choosing.row.algorithm(), problem())
    each = {sum(m.down.total for m in part) for part in sizes}  # the first round of a stage may send more
    assert set(sent.tolist()) <= {count * size for count in counts for size in each}
    assert sent[0] in {counts[0] * size for size in each}
    assert sent[-1] == CLIENTS * sum(m.down.total for m in sizes.later)
