"""The accelerated and second-order methods follow their papers' equations, on draws that nothing was tuned to."""

from collections.abc import Callable
from functools import cache, partial
from math import ceil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import accelerated_reference as by_hand
import fedlin
import reference
from fedlin import low_rank, quantize, rand_k, top_k
from fedlin.algorithms.compressed_scaffnew import PatternEntries, selected
from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Requirement
from fedlin.engines.keys import draw_cohort, phase_keys, renewal_key
from fedlin.errors import FedLinError, WireError
from fedlin.precision import precision
from quadratics import CLIENTS, DIM, X0, Array, assert_close

ROUNDS = 30
ETA, P, SHORT = 0.05, 0.25, 0.002
FEW = 4  # clients of a round, where not all take part
DRAWS = [11, 12, 13]  # problems of their own, all of the usual shape
others = [pytest.param(seed, marks=pytest.mark.long) for seed in DRAWS[1:]]
each_draw = pytest.mark.parametrize("seed", [DRAWS[0], *others])


class Coins(NamedTuple):
    """What a run with seed 0 draws in each round, numbers in [0, 1) and an order of the clients."""

    shared: Array
    server: Array
    clients: Array
    split: Array  # by the first half of the shared key
    orders: Array  # by the second
    few: Array  # of four of them, by the second
    renewal: Array


@cache
def coins() -> Coins:
    def of_round(number: jax.Array) -> Any:
        keys = phase_keys(jax.random.key(0), number, 0)
        first, second = jax.random.split(keys.shared)
        uniform = partial(jax.random.uniform, shape=(), dtype=jnp.float32)
        each = jax.vmap(lambda i: uniform(keys.client(i)))(jnp.arange(CLIENTS))
        orders = (jax.random.permutation(second, count) for count in (CLIENTS, FEW))
        renewal = uniform(renewal_key(jax.random.key(0), number))
        return uniform(keys.shared), uniform(keys.server), each, uniform(first), *orders, renewal

    return Coins(*map(np.asarray, jax.jit(jax.vmap(of_round))(jnp.arange(ROUNDS))))


def falls_at(draw: float, probability: float) -> int:
    """The first success of a coin, the draw in [0, 1) standing for all of its tosses."""
    return 1 if probability == 1 else 1 + int(np.log(1 - np.float32(draw)) / np.log1p(np.float32(-probability)))


def by_compressor(compressor: Compressor, parts: int) -> by_hand.Compress:
    """Each client's compressor with the key it has in that round, split for as many vectors as it sends."""

    @jax.jit
    def apply(r: jax.Array, j: jax.Array, v: jax.Array, which: jax.Array) -> jax.Array:
        key = phase_keys(jax.random.key(0), r, 0).client(j)
        return compressor(key if parts == 1 else jax.random.split(key, parts)[which], v)

    def compress(r: int, j: int, v: Array, which: int) -> Array:
        with precision(np.float64):
            return np.asarray(apply(r, j, v, which))

    return compress


class Draw:
    """A quadratic as a problem and as functions."""

    def __init__(self, seed: int) -> None:
        self.A, self.B = reference.random_quadratic(seed, CLIENTS, DIM)
        self.problem = fedlin.problems.quadratic(self.A, self.B)
        self.mu = self.problem.strong_convexity

    def grad(self, i: int, x: Array) -> Array:
        return np.asarray(self.A[i] @ x - self.B[i])


def by_compressed_scaffnew(draw: Draw) -> Array:
    counts = [falls_at(coin, P) for coin in coins().split]
    assert len(set(counts)) > 3
    return by_hand.compressed_scaffnew(draw.grad, X0, CLIENTS, 3, ETA, P, counts, list(coins().orders))


def by_locodl(draw: Draw, pace: float = 0.7) -> Array:
    counts = [falls_at(coin, P) for coin in coins().shared]
    compress = by_compressor(rand_k(2, unbiased=True), 1)
    return by_hand.locodl(draw.grad, X0, CLIENTS, ETA, P, pace, draw.mu, DIM / 2 - 1, counts, compress)


def by_slow_locodl(draw: Draw) -> Array:
    return by_locodl(draw, 0.3)


def by_marina(draw: Draw) -> Array:
    full = coins().renewal < np.float32(P)
    assert 2 < full[1:].sum() < ROUNDS - 2
    return by_hand.marina(draw.grad, X0, CLIENTS, ETA, full.tolist(), by_compressor(rand_k(2, unbiased=True), 1))


def by_adiana(draw: Draw, eta: float = ETA) -> Array:
    moves = (coins().server < P).tolist()
    assert 0 < np.sum(moves) < ROUNDS
    compress = by_compressor(quantize(3), 3)
    return by_hand.adiana(draw.grad, X0, CLIENTS, eta, draw.mu, 0.3, P, moves, compress)


def by_adiana_with_short_steps(draw: Draw) -> Array:
    """So short that √(ημ/q) is below 1/4, and is θ₁."""
    assert np.sqrt(SHORT * draw.mu / P) < 1 / 4 < np.sqrt(ETA * draw.mu / P)
    return by_adiana(draw, SHORT)


SKIPPING = np.array([1, 4, 2, 3, 4, 2, 1])  # of the mean 1/P = 4 steps of a round


def by_gradskip(draw: Draw) -> Array:
    chance = (1 / SKIPPING - P) / (1 - P)
    counts = [falls_at(coin, P) for coin in coins().shared]
    rests = [
        np.array([falls_at(own, c) if c > 0 else 10**6 for own, c in zip(each, chance, strict=True)])
        for each in coins().clients
    ]
    return by_hand.gradskip(draw.grad, X0, CLIENTS, ETA, P, counts, rests)


Case = tuple[Algorithm[Any, Any], fedlin.Plan, Callable[[Draw], Array]]
CASES: dict[str, Case] = {
    "compressed-scaffnew": (fedlin.compressed_scaffnew(CLIENTS, 3), fedlin.Plan(4, ETA), by_compressed_scaffnew),
    "locodl": (fedlin.locodl(rand_k(2, unbiased=True), P, 0.7), fedlin.Plan(1, ETA), by_locodl),
    "locodl at a slow pace": (fedlin.locodl(rand_k(2, unbiased=True), P, 0.3), fedlin.Plan(1, ETA), by_slow_locodl),
    "adiana": (fedlin.adiana(quantize(3), 0.3, P), fedlin.Plan(1, ETA), by_adiana),
    "adiana with short steps": (
        fedlin.adiana(quantize(3), 0.3, P),
        fedlin.Plan(1, SHORT),
        by_adiana_with_short_steps,
    ),
    "marina": (fedlin.marina(rand_k(2, unbiased=True), P), fedlin.Plan(1, ETA), by_marina),
    "gradskip": (fedlin.gradskip(P), fedlin.Plan(SKIPPING, ETA), by_gradskip),
}


@each_draw
@pytest.mark.parametrize("name", CASES)
def test_follows_the_published_equations(name: str, seed: int) -> None:
    algorithm, plan, expected = CASES[name]
    draw = Draw(seed)
    result = fedlin.simulate(algorithm, draw.problem, plan, ROUNDS, x0=X0)
    assert_close(result.iterates, expected(draw), 1e-10)


@cache
def cohorts() -> Array:
    draw = jax.vmap(lambda number: draw_cohort(jax.random.key(0), number, CLIENTS, FEW))
    return np.asarray(jax.jit(draw)(jnp.arange(ROUNDS)))


@each_draw
def test_tamuna_follows_the_published_equations(seed: int) -> None:
    """With four of seven clients a round, whom the run draws; every client takes part now and then."""
    draw, counts = Draw(seed), [falls_at(coin, P) for coin in coins().split]
    assert len(set(cohorts().flat)) == CLIENTS
    expected = by_hand.tamuna(draw.grad, X0, CLIENTS, 3, ETA, P, counts, list(cohorts()), list(coins().few))
    method = fedlin.tamuna(CLIENTS, FEW, 3)
    result = fedlin.simulate(method, draw.problem, fedlin.Plan(4, ETA), ROUNDS, x0=X0, participation=FEW / CLIENTS)
    assert_close(result.iterates, expected, 1e-10)
    np.testing.assert_array_equal(np.diff(result.gradients), FEW * np.array(counts))


# Newton's method needs losses that are no quadratics: on those the first step ends it.


class Regression:
    """Logistic regression as a problem and as functions."""

    def __init__(self, seed: int) -> None:
        source = np.random.default_rng(seed)
        X = source.standard_normal((CLIENTS, 12, DIM)) * source.uniform(0.3, 3, (CLIENTS, 1, DIM))
        self.mu, y = 0.05, np.where(source.random((CLIENTS, 12)) < 0.5, -1.0, 1.0)
        self.signed = X * y[..., None]
        self.problem = fedlin.problems.logistic(X, y, l2=self.mu)

    def loss(self, x: Array) -> float:
        return float(np.mean(np.log1p(np.exp(-self.signed @ x))) + self.mu / 2 * x @ x)

    def grad(self, i: int, x: Array) -> Array:
        rows = self.signed[i]
        return np.asarray(-(rows.T / (1 + np.exp(rows @ x))).mean(axis=1) + self.mu * x)

    def hessian(self, i: int, x: Array) -> Array:
        rows = self.signed[i]
        bend = 1 / ((1 + np.exp(rows @ x)) * (1 + np.exp(-rows @ x)))
        return np.asarray((rows.T * bend) @ rows / len(rows) + self.mu * np.eye(DIM))


NEWTON = fedlin.Plan(1, 1.0)
FAR = 3 * X0


def rank(r: int) -> Callable[[Array], Array]:
    return lambda matrix: by_hand.low_rank(matrix, r)


def largest(k: int) -> Callable[[Array], Array]:
    return lambda matrix: by_hand.top_k_symmetric(matrix, k)


@each_draw
@pytest.mark.parametrize(
    ("algorithm", "compress", "options"),
    [
        (fedlin.fednl(low_rank(1)), rank(1), {}),
        (fedlin.fednl(top_k(6)), largest(6), {}),
        (fedlin.fednl(low_rank(2), correction="shift"), rank(2), {"shift": True}),
        (fedlin.fednl(top_k(4), correction="shift", start="zero"), largest(4), {"shift": True, "zero": True}),
        (fedlin.fednl(low_rank(2), line_search=True), rank(2), {"line_search": True}),
        (
            fedlin.fednl(top_k(6), correction="shift", line_search=True),
            largest(6),
            {"line_search": True, "shift": True},
        ),
    ],
    ids=[
        "rank 1, projection",
        "TOP-6, projection",
        "rank 2, shift",
        "TOP-4, shift, from zero",
        "rank 2, projection, line search",
        "TOP-6, shift, line search",
    ],
)
def test_fednl_follows_the_published_equations(
    algorithm: Algorithm[Any, Any], compress: Any, options: Any, seed: int
) -> None:
    draw = Regression(seed)
    start = FAR if "line_search" in options else X0 / 4
    expected = by_hand.fednl(draw.loss, draw.grad, draw.hessian, start, CLIENTS, draw.mu, 12, compress, **options)
    result = fedlin.simulate(algorithm, draw.problem, NEWTON, 12, x0=start)
    assert_close(result.iterates, expected, 1e-10)
    assert result.gap[-1] < 1e-2 * result.gap[0]


EACH_ITS_OWN = np.array([1, 3, 2, 1, 2, 1, 3])  # τ_i


@each_draw
@pytest.mark.parametrize("levels", [None, 31])
def test_fedlin_newton_follows_its_equations(levels: int | None, seed: int) -> None:
    """With whole messages, and with all four rounded to the nearest of 63 levels."""
    draw, links = Regression(seed), {}
    eta = 0.4 / EACH_ITS_OWN
    if levels is not None:
        rounded = fedlin.nearest(levels)
        links = dict.fromkeys(("downlink", "model_uplink", "model_downlink"), fedlin.plain(rounded))
        links["uplink"] = fedlin.innovation(rounded)
    expected = by_hand.fedlin_newton(draw.grad, draw.hessian, X0 / 4, EACH_ITS_OWN, eta, 12, levels)
    result = fedlin.simulate(fedlin.fedlin_newton(**links), draw.problem, fedlin.Plan(EACH_ITS_OWN, eta), 12, x0=X0 / 4)
    assert_close(result.iterates, expected, 1e-10)
    assert result.gap[-1] < 1e-2 * result.gap[0]


def test_fedlin_newton_takes_exact_gradients_of_a_noisy_problem() -> None:
    """As its Hessians are exact: noise in one and not in the other would be no step of Newton's."""
    exact = Regression(DRAWS[0]).problem
    method, plan = fedlin.fedlin_newton(), fedlin.Plan(1, 0.4)
    runs = [fedlin.simulate(method, one, plan, 5, x0=X0 / 4) for one in (exact, fedlin.problems.noisy(exact, 1.0))]
    assert_close(runs[1].iterates, runs[0].iterates, 1e-12)


@each_draw
@pytest.mark.parametrize(
    ("compressor", "compress", "start"),
    [(low_rank(1), rank(1), "hessian"), (top_k(5), largest(5), "zero")],
    ids=["rank 1", "TOP-5 from zero"],
)
def test_fednl_pp_follows_the_published_equations(compressor: Any, compress: Any, start: str, seed: int) -> None:
    """With half of the clients at a time, some of whom come late."""
    draw = Regression(seed)
    present = np.random.default_rng(seed).random((12, CLIENTS)) < 0.5
    present[:, 3] = True
    assert not present[0].all()
    cohorts = [np.flatnonzero(row).tolist() for row in present]
    expected = by_hand.fednl_pp(draw.grad, draw.hessian, X0 / 4, CLIENTS, cohorts, compress, start == "zero")
    algorithm = fedlin.fednl_pp(compressor, start=start)
    result = fedlin.simulate(algorithm, draw.problem, NEWTON, 12, x0=X0 / 4, participation=present)
    assert_close(result.iterates, expected, 1e-10)


@pytest.mark.long
def test_fednl_ends_faster_than_any_linear_rate() -> None:
    """Each step's factor is smaller than the one before, as the learned Hessian comes near the true one."""
    draw = Regression(DRAWS[0])
    result = fedlin.simulate(fedlin.fednl(low_rank(2)), draw.problem, NEWTON, 12, x0=X0 / 4)
    above = result.distance[result.distance > 1e-26]
    factors = above[1:] / above[:-1]
    assert len(factors) >= 4
    assert factors[-1] < 1e-3 * factors[0]


@pytest.mark.long
def test_fednl_in_half_precision_stays_exact() -> None:
    """Whatever is rounded in a Hessian or a gradient comes later, so that nothing but bits is lost."""
    draw, half = Regression(DRAWS[0]), fedlin.cast("float16")
    method = fedlin.fednl(low_rank(1, half), start=half, uplink=fedlin.innovation(half))
    result = fedlin.simulate(method, draw.problem, NEWTON, 20, x0=X0 / 4)
    whole = fedlin.simulate(fedlin.fednl(low_rank(1)), draw.problem, NEWTON, 20, x0=X0 / 4)
    assert result.distance[-1] < 1e-24
    assert result.bytes_up[-1] < 0.4 * whole.bytes_up[-1]


@pytest.mark.long
def test_line_search_saves_a_start_from_which_newton_diverges() -> None:
    draw = Regression(DRAWS[0])
    plain = fedlin.simulate(fedlin.fednl(low_rank(2)), draw.problem, NEWTON, 12, x0=8 * X0)
    searched = fedlin.simulate(fedlin.fednl(low_rank(2), line_search=True), draw.problem, NEWTON, 12, x0=8 * X0)
    assert plain.gap[-1] > 1
    assert np.all(np.diff(searched.gap) < 1e-14)
    assert searched.gap[-1] < 1e-10


# Reductions.


@pytest.mark.long
def test_gradskip_without_rest_is_scaffnew() -> None:
    draw = Draw(DRAWS[0])
    skip = fedlin.simulate(fedlin.gradskip(P), draw.problem, fedlin.Plan(4, ETA), ROUNDS, x0=X0)
    whole = fedlin.simulate(fedlin.scaffnew(), draw.problem, fedlin.Plan(4, ETA), ROUNDS, x0=X0)
    assert_close(skip.iterates, whole.iterates, 1e-12)
    np.testing.assert_array_equal(skip.gradients, whole.gradients)


@pytest.mark.long
def test_tamuna_with_everyone_is_compressed_scaffnew() -> None:
    """Whose clients learn the mean with the next round, and so get half as much."""
    draw, plan = Draw(DRAWS[0]), fedlin.Plan(4, ETA)
    two = fedlin.simulate(fedlin.tamuna(CLIENTS, CLIENTS, 3), draw.problem, plan, ROUNDS, x0=X0)
    one = fedlin.simulate(fedlin.compressed_scaffnew(CLIENTS, 3), draw.problem, plan, ROUNDS, x0=X0)
    assert_close(two.iterates, one.iterates, 1e-12)
    np.testing.assert_array_equal(two.bytes_up, one.bytes_up)
    np.testing.assert_array_equal(two.bytes_down, 2 * one.bytes_down)


@pytest.mark.long
@pytest.mark.parametrize(
    "method", [fedlin.marina(fedlin.identity(), P), fedlin.marina(rand_k(2, unbiased=True), 1.0)], ids=["whole", "full"]
)
def test_marina_in_full_is_gradient_descent(method: Algorithm[Any, Any]) -> None:
    draw, plan = Draw(DRAWS[0]), fedlin.Plan(1, ETA)
    runs = [fedlin.simulate(one, draw.problem, plan, ROUNDS, x0=X0) for one in (method, fedlin.gradient_descent())]
    assert_close(runs[0].iterates, runs[1].iterates, 1e-12)
    np.testing.assert_array_equal(runs[0].bytes_up, runs[1].bytes_up)


@pytest.mark.long
def test_many_runs_of_marina_are_each_as_one() -> None:
    """Though the coins of a batch fall in different rounds, and with different probabilities."""
    draw, plan = Draw(DRAWS[0]), fedlin.Plan(1, ETA)
    methods = [fedlin.marina(rand_k(2, unbiased=True), p) for p in (0.2, 0.6)]
    batch = fedlin.simulate_many(methods, draw.problem, plan, ROUNDS, seeds=[3, 4], x0=X0)
    for method, seed, run in zip(methods, (3, 4), batch, strict=True):
        alone = fedlin.simulate(method, draw.problem, plan, ROUNDS, seed=seed, x0=X0)
        assert_close(run.iterates, alone.iterates, 1e-12)
        np.testing.assert_array_equal(run.bytes_up, alone.bytes_up)
    assert not np.array_equal(batch[0].bytes_up, batch[1].bytes_up)


@pytest.mark.long
def test_gradskip_takes_the_gradients_of_its_plan() -> None:
    """1/(1 - q_i(1 - p)) a round on average, so that the plan's τ_i are what clients pay."""
    draw = Draw(DRAWS[0])
    rounds = 2000
    result = fedlin.simulate(fedlin.gradskip(P), draw.problem, fedlin.Plan(SKIPPING, ETA), rounds, iterates=False)
    assert result.gradients[-1] / rounds == pytest.approx(SKIPPING.sum(), rel=0.05)


def test_tamuna_needs_every_client_where_its_cohort_is_all_of_them() -> None:
    needs = [Requirement.EVERY_CLIENT in fedlin.tamuna(CLIENTS, cohort, 2).requires for cohort in (FEW, CLIENTS)]
    assert needs == [False, True]


def test_a_column_beyond_the_pattern_is_refused() -> None:
    def entries(column: int) -> PatternEntries:
        return PatternEntries(jnp.zeros(2), jnp.uint8(column), DIM, 3, CLIENTS)

    entries(CLIENTS - 1).validate()
    for column in (CLIENTS, CLIENTS + 1):
        with pytest.raises(WireError, match=f"beyond the {CLIENTS}"):
            entries(column).validate()


def test_every_entry_of_a_pattern_is_sent_by_s_clients() -> None:
    """Whether the entries are more than the clients or fewer."""
    for dim, clients, sparsity in ((5, 7, 3), (5, 7, 7), (40, 6, 2), (3, 30, 4)):
        counts = np.zeros(dim + 1, int)
        for column in range(clients):
            places = np.asarray(selected(jnp.int32(column), dim, sparsity, clients))
            assert len(places) == ceil(sparsity * dim / clients)  # and nobody sends more
            assert len(set(places[places < dim])) == np.sum(places < dim)
            np.add.at(counts, places, 1)
        np.testing.assert_array_equal(counts[:dim], sparsity)


# What they cannot serve is refused before any work, and what would serve instead is named.


def refused(algorithm: Algorithm[Any, Any], problem: Any, plan: fedlin.Plan, **options: Any) -> str:
    with pytest.raises(FedLinError) as caught:
        fedlin.simulate(algorithm, problem, plan, 3, **options)
    return str(caught.value)


def test_bad_input_is_refused_with_what_would_serve() -> None:
    draw = Draw(DRAWS[0])
    one, masked = fedlin.Plan(4, ETA), fedlin.compressed_scaffnew(CLIENTS, 3)
    assert "clients=7" in refused(fedlin.compressed_scaffnew(8, 3), draw.problem, one)
    unequal = refused(masked, draw.problem, one, weights=np.arange(1.0, CLIENTS + 1))
    assert "equal weight" in unequal
    assert "fedlin.scaffnew()" in unequal
    assert "one number of local steps" in refused(masked, draw.problem, fedlin.Plan(SKIPPING, ETA))
    for method in (masked, fedlin.gradskip(P), fedlin.adiana(quantize(3), 0.3, P), fedlin.fednl(low_rank(1))):
        assert "every client in every round" in refused(method, draw.problem, one, participation=0.5)
    flat = fedlin.problems.quadratic(np.zeros((CLIENTS, DIM, DIM)), draw.B)
    assert "l2 regularisation" in refused(fedlin.fednl(low_rank(1)), flat, one)


def test_arguments_that_fit_no_method_are_refused() -> None:
    for make in (
        lambda: fedlin.compressed_scaffnew(4, 5),
        lambda: fedlin.compressed_scaffnew(4, 1),
        lambda: fedlin.locodl(top_k(2), P, 0.5),
        lambda: fedlin.adiana(top_k(2), 0.5, P),
        lambda: fedlin.gradskip(0.0),
        lambda: fedlin.marina(top_k(2), P),
        lambda: fedlin.marina(rand_k(2, unbiased=True), 0.0),
        lambda: fedlin.tamuna(4, 5, 2),
        lambda: fedlin.tamuna(5, 3, 4),
        lambda: fedlin.tamuna(5, 3, 1),
        lambda: fedlin.fednl(quantize(3)),
        lambda: fedlin.fednl(low_rank(1), start="zero"),
        lambda: fedlin.fednl(low_rank(1), correction="none"),
        lambda: low_rank(0),
    ):
        with pytest.raises(FedLinError):
            make()
    assert fedlin.compressed_scaffnew(2, 2).name == "compressed_scaffnew(clients=2, sparsity=2)"  # the least there is
    with pytest.raises(FedLinError, match="more than the model's 5 entries"):
        fedlin.simulate(fedlin.fednl(low_rank(6)), Draw(DRAWS[0]).problem, NEWTON, 1)
