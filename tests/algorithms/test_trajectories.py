"""Every method follows the published equations step by step, and ends where the theory says."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
import reference
from fedlin import natural, plain, top_k
from fedlin.algorithms.s_local_svrg import SvrgClient
from fedlin.core import Algorithm
from fedlin.engines.keys import PhaseKeys, phase_keys
from fedlin.engines.local import make_local
from fedlin.precision import precision
from fedlin.theory import surrogate
from quadratics import CLIENTS, DIM, ETA, ROUNDS, TAU, X0, A, Array, B, assert_close, plan, problem

ONE_ETA = 0.012
PROX_STEP = 0.3
L, MU = np.linalg.eigvalsh(A).max(), np.linalg.eigvalsh(A).min()


def by_fedlin(**options: Any) -> Callable[[], Array]:
    return lambda: reference.fedlin(A, B, TAU, ETA, X0, ROUNDS, **options)


def by_scaffold(**options: Any) -> Callable[[], Array]:
    return lambda: reference.scaffold(A, B, TAU, ETA, X0, ROUNDS, **options)


def by_fedsplit(steps: int | None = None, start: str = "u") -> Callable[[], Array]:
    return lambda: reference.fedsplit(
        A, B, PROX_STEP, X0, ROUNDS, steps=steps, inner_step=2 / (L + MU + 2 / PROX_STEP), start=start
    )


def keys(round_index: int) -> PhaseKeys:
    """Of the first phase, as a run with seed 0 draws them."""
    return phase_keys(jax.random.key(0), round_index, 0)  # type: ignore[arg-type]


def by_fedcomgate() -> Array:
    """Each client's quantiser with the key it has in that round."""

    def quantise(r: int, j: int, v: Array) -> Array:
        with precision(np.float64):
            return np.asarray(natural()(keys(r).client(j), jnp.asarray(v)))  # type: ignore[arg-type]

    return reference.fedcomgate(A, B, 4, ONE_ETA, X0, ROUNDS, 0.7, quantise)


def by_s_local_svrg() -> Array:
    """Renewed in the first round, and where the coin of the round falls below q."""
    coins = [float(jax.random.uniform(keys(t).shared, (), jnp.float32)) for t in range(ROUNDS)]
    renewed = [t == 0 or coin < 0.3 for t, coin in enumerate(coins)]
    assert 5 < sum(renewed) < 25
    return reference.s_local_svrg(A, B, TAU, ETA, X0, ROUNDS, renewed)


def scaffnew_counts(p: float) -> list[int]:
    """Local steps until the coin of the round falls."""
    luck = [1 - float(jax.random.uniform(keys(t).shared, (), jnp.float32)) for t in range(ROUNDS)]
    counts = [1 + int(np.log(value) / np.log(1 - p)) for value in luck]
    assert min(counts) == 1
    return counts


def by_scaffnew() -> Array:
    """Local steps until the coin falls, p = 1/4; then the mean, and h_i by how far it is from x_i."""
    p, counts = 0.25, scaffnew_counts(0.25)
    x, h = np.tile(X0, (CLIENTS, 1)), np.zeros((CLIENTS, DIM))
    expected = [X0]
    for count in counts:
        for _ in range(count):
            x = x - ONE_ETA * (np.einsum("ijk,ik->ij", A, x) - B - h)
        mean = x.mean(axis=0)
        h = h + p / ONE_ETA * (mean[None] - x)
        x = np.tile(mean, (CLIENTS, 1))
        expected.append(mean)
    return np.array(expected)


Case = tuple[Algorithm[Any, Any], fedlin.Plan, Callable[[], Array]]
ONE_STEP_SIZE = fedlin.Plan(TAU, ONE_ETA)
SPLITTING = fedlin.Plan(1, PROX_STEP)
CASES: dict[str, Case] = {
    "fedlin": (fedlin.fedlin(), plan(), by_fedlin()),
    "fedlin-client-feedback": (fedlin.fedlin(uplink=top_k(2)), plan(), by_fedlin(client_k=2)),
    "fedlin-client-plain": (
        fedlin.fedlin(uplink=plain(top_k(2))),
        plan(),
        by_fedlin(client_k=2, client_feedback=False),
    ),
    "fedlin-server-feedback": (fedlin.fedlin(downlink=top_k(2)), plan(), by_fedlin(server_k=2)),
    "fedlin-server-plain": (
        fedlin.fedlin(downlink=plain(top_k(2))),
        plan(),
        by_fedlin(server_k=2, server_feedback=False),
    ),
    "fedlin-both": (fedlin.fedlin(uplink=top_k(3), downlink=top_k(2)), plan(), by_fedlin(client_k=3, server_k=2)),
    "gradient-descent": (
        fedlin.gradient_descent(),
        fedlin.Plan(TAU, 0.1),
        lambda: reference.gradient_descent(A, B, 0.1, X0, ROUNDS),
    ),
    "fedavg": (fedlin.fedavg(), plan(), lambda: reference.fedavg(A, B, TAU, ETA, X0, ROUNDS)),
    "fedprox": (fedlin.fedprox(0.7), plan(), lambda: reference.fedprox(A, B, TAU, ETA, X0, ROUNDS, 0.7)),
    "fednova": (fedlin.fednova(), ONE_STEP_SIZE, lambda: reference.fednova(A, B, TAU, ONE_ETA, X0, ROUNDS)),
    "scaffold-1": (fedlin.scaffold(1), plan(), by_scaffold(option=1)),
    "scaffold-2": (fedlin.scaffold(), plan(), by_scaffold(option=2)),
    "scaffold-server-step": (fedlin.scaffold(server_step=0.6), plan(), by_scaffold(server_step=0.6)),
    "fedsplit-exact": (fedlin.fedsplit(), SPLITTING, by_fedsplit()),
    "fedsplit-3-from-u": (fedlin.fedsplit(3), SPLITTING, by_fedsplit(3)),
    "fedsplit-4-from-model": (fedlin.fedsplit(4, start="model"), SPLITTING, by_fedsplit(4, "model")),
    "fedcomgate": (fedlin.fedcomgate(natural(), server_step=0.7), fedlin.Plan(4, ONE_ETA), by_fedcomgate),
    "gradient-tracking": (
        fedlin.gradient_tracking(server_step=0.7),
        fedlin.Plan(4, ONE_ETA),
        lambda: reference.gradient_tracking(A, B, 4, ONE_ETA, 0.7, X0, ROUNDS),
    ),
    "fedac": (fedlin.fedac(), fedlin.Plan(4, 0.1), lambda: reference.fedac(A, B, 4, 0.1, MU, X0, ROUNDS)),
    "fedac-given-convexity": (
        fedlin.fedac(strong_convexity=0.2),
        fedlin.Plan(4, 0.05),
        lambda: reference.fedac(A, B, 4, 0.05, 0.2, X0, ROUNDS),
    ),
    "scaffnew": (fedlin.scaffnew(), fedlin.Plan(4, ONE_ETA), by_scaffnew),
    "scaffnew-from-its-log": (
        fedlin.scaffnew(probability=0.25),
        fedlin.Plan(np.tile(np.array(scaffnew_counts(0.25))[:, None], (1, CLIENTS)), ONE_ETA),
        by_scaffnew,
    ),
    "s-local-svrg": (fedlin.s_local_svrg(0.3), plan(), by_s_local_svrg),
}


@pytest.mark.parametrize("closed_form", [True, False], ids=["closed", "loop"])
@pytest.mark.parametrize("name", CASES)
def test_follows_the_published_equations(name: str, closed_form: bool) -> None:
    """Every iterate of 50 rounds, local steps in closed form or one by one."""
    algorithm, steps, expected = CASES[name]
    result = fedlin.simulate(algorithm, problem(closed_form), steps, ROUNDS, x0=X0)
    assert_close(result.iterates, expected(), 1e-10)


@pytest.mark.parametrize("name", ["fedlin", "scaffold-2"])
def test_layouts_follow_the_same_equations(name: str) -> None:
    """How clients are laid out in the program changes nothing."""
    algorithm, steps, expected = CASES[name]
    for layout in ("client", "step"):
        result = fedlin.simulate(algorithm, problem(False), steps, ROUNDS, x0=X0, layout=layout)
        assert_close(result.iterates, expected(), 1e-10)


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_with_a_schedule_of_cohorts(option: int) -> None:
    """The absent keep their control variates, and the server's moves by their share."""
    present = np.random.default_rng(11).random((ROUNDS, CLIENTS)) < 0.5
    present[np.arange(ROUNDS), np.arange(ROUNDS) % CLIENTS] = True
    assert not present.all()
    cohorts = [np.flatnonzero(row).tolist() for row in present]
    expected = reference.scaffold(A, B, TAU, ETA, X0, ROUNDS, option=option, cohorts=cohorts)
    result = fedlin.simulate(fedlin.scaffold(option), problem(), plan(), ROUNDS, x0=X0, participation=present)
    assert_close(result.iterates, expected, 1e-10)


@pytest.mark.parametrize("closed_form", [True, False], ids=["closed", "loop"])
def test_fedlin_with_a_plan_that_changes_every_round(closed_form: bool) -> None:
    """Round t takes row t of τ and of η."""
    rng = np.random.default_rng(12)
    tau = rng.integers(1, 14, (ROUNDS, CLIENTS))
    eta = rng.uniform(0.02, 0.05, (ROUNDS, CLIENTS)) / tau
    x = X0
    expected = [x]
    for t in range(ROUNDS):
        g = np.mean([A[i] @ x - B[i] for i in range(CLIENTS)], axis=0)
        models = []
        for i in range(CLIENTS):
            y = x
            for _ in range(tau[t, i]):
                y = y - eta[t, i] * (A[i] @ y - A[i] @ x + g)
            models.append(y)
        x = np.mean(models, axis=0)
        expected.append(x)
    result = fedlin.simulate(fedlin.fedlin(), problem(closed_form), fedlin.Plan(tau, eta), ROUNDS, x0=X0)
    assert_close(result.iterates, np.array(expected), 1e-10)


def test_fedlin_with_innovations_at_the_clients() -> None:
    """h_i moves by TOP-k of what changed, from h_i = ∇f_i(x̄_1), and g is the mean of the h_i."""
    h = np.array([A[i] @ X0 - B[i] for i in range(CLIENTS)])
    x = X0
    expected = [x]
    for t in range(ROUNDS):
        for i in range(CLIENTS):
            if t > 0:
                h[i] = h[i] + reference.top_k(A[i] @ x - B[i] - h[i], 2)
        g = h.mean(axis=0)
        models = []
        for i in range(CLIENTS):
            y = x
            for _ in range(TAU[i]):
                y = y - ETA[i] * (A[i] @ y - A[i] @ x + g)
            models.append(y)
        x = np.mean(models, axis=0)
        expected.append(x)
    algorithm = fedlin.fedlin(uplink=fedlin.innovation(top_k(2)))
    result = fedlin.simulate(algorithm, problem(), plan(), ROUNDS, x0=X0)
    assert_close(result.iterates, np.array(expected), 1e-10)


def test_s_local_svrg_sends_zeros_where_it_takes_no_gradient() -> None:
    """Once begun, with a coin that does not fall: the reference point stays, and the message says nothing."""
    x = np.array([0.0, 1.0, -1.0, 2.0, -2.0])
    shared = next(keys(t).shared for t in range(ROUNDS) if jax.random.uniform(keys(t).shared, (), jnp.float32) > 0.3)
    with precision(np.float64):
        data = jax.tree.map(lambda leaf: leaf[0], problem().data)
        tau, eta = jnp.asarray(3, jnp.int32), jnp.asarray(0.1)
        local, _ = make_local(problem().objective, None, data, None, tau, eta, keys(0).client(0), shared)  # type: ignore[arg-type]
        state = SvrgClient(None, jnp.asarray(X0), jnp.ones((), bool))
        after, message = fedlin.s_local_svrg(0.3).phases[0].client(state, jnp.asarray(x), local)
    np.testing.assert_array_equal(message, np.zeros(DIM))
    np.testing.assert_array_equal(after.y, X0)


@pytest.mark.parametrize("option", [1, 2])
def test_scaffold_reaches_the_minimiser(option: int) -> None:
    """Whatever τ_i and η_i."""
    result = fedlin.simulate(fedlin.scaffold(option), problem(), plan(), 400, x0=X0)
    x_star = np.linalg.solve(A.mean(axis=0), B.mean(axis=0))
    assert np.linalg.norm(result.x - x_star) < 1e-12 * np.linalg.norm(x_star)


@pytest.mark.parametrize(
    ("algorithm", "replaced"),
    [
        (fedlin.fedavg(), surrogate.fedprox(problem(), TAU, ONE_ETA)),
        (fedlin.fedprox(0.7), surrogate.fedprox(problem(), TAU, ONE_ETA, 0.7)),
        (fedlin.fednova(), surrogate.fednova(problem(), TAU, ONE_ETA)),
    ],
    ids=["fedavg", "fedprox", "fednova"],
)
def test_stops_at_the_surrogate_minimiser(algorithm: Algorithm[Any, Any], replaced: fedlin.problems.Problem) -> None:
    """Propositions 1 and 2: the end is the surrogate's minimiser, and not f's."""
    result = fedlin.simulate(algorithm, problem(), ONE_STEP_SIZE, 400, x0=X0)
    assert_close(result.x, replaced.minimizer, 1e-12)
    assert np.linalg.norm(result.x - problem().minimizer) > 1e-2 * np.linalg.norm(problem().minimizer)


@pytest.mark.parametrize(("delta", "rounds"), [(1, 100), (2, 100), (4, 200)])
def test_paper_least_squares_with_a_sparse_broadcast(delta: int, rounds: int) -> None:
    """Section 7: TOP-(d/δ) at the server without feedback still reaches the minimiser exactly."""
    instance = fedlin.problems.least_squares(clients=20, dim=100, samples=500, alpha=10, seed=0)
    steps = fedlin.Plan.scaled(fedlin.draw_steps(20, 2, 100, seed=0), 1e-2)
    algorithm = fedlin.fedlin(downlink=plain(top_k(100 // delta)))
    result = fedlin.simulate(algorithm, instance, steps, rounds)
    assert result.distance[0] > 1
    assert result.distance[-1] < 1e-20


def test_iterates_begin_at_the_start() -> None:
    """Index 0 is x0, zero unless given, and there is one entry more than rounds."""
    given = fedlin.simulate(fedlin.fedavg(), problem(), plan(), ROUNDS, x0=X0)
    assert given.iterates.shape == (ROUNDS + 1, DIM)
    np.testing.assert_array_equal(given.iterates[0], X0)
    default = fedlin.simulate(fedlin.fedavg(), problem(), plan(), ROUNDS)
    np.testing.assert_array_equal(default.iterates[0], np.zeros(DIM))
