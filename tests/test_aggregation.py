"""Robust means: against loops written here, against the library byzfl, and what no false upload can do to them."""

import json
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import fedlin
from byzfl_cases import KEY, OURS, ROWS, byzfl_values, shuffled
from fedlin import aggregation
from fedlin.aggregation import Aggregator
from fedlin.errors import ArgumentError
from fedlin.precision import precision
from fedlin.transports.loopback import Loopback
from quadratics import CLIENTS, DIM, ETA, X0, A, B, assert_close, plan, problem, robust_fedlin

Array = NDArray[Any]


@cache
def compiled(aggregator: Aggregator) -> Any:
    return jax.jit(lambda rows, present: aggregator(rows, present, jax.random.key(KEY)))


def ours(aggregator: Aggregator, rows: Any, present: Array | None = None) -> Any:
    with precision(np.dtype(np.float64)):
        stacked = len(jax.tree.leaves(rows)[0])
        return jax.tree.map(
            np.asarray, compiled(aggregator)(rows, np.ones(stacked, bool) if present is None else present)
        )


# Loops, written from the definitions.


def median_loop(rows: Array) -> Array:
    middle = []
    for entries in rows.T:
        in_order = sorted(entries)
        n = len(in_order)
        middle.append(in_order[n // 2] if n % 2 else (in_order[n // 2 - 1] + in_order[n // 2]) / 2)
    return np.array(middle)


def trimmed_loop(rows: Array, f: int) -> Array:
    return np.array([sum(sorted(entries)[f : len(entries) - f]) / (len(entries) - 2 * f) for entries in rows.T])


def weiszfeld_loop(rows: Array, steps: int, smoothing: float) -> Array:
    z = np.zeros(rows.shape[1])
    for _ in range(steps):
        inverse = [1 / max(float(np.linalg.norm(row - z)), smoothing) for row in rows]
        z = sum(b * row for b, row in zip(inverse, rows, strict=True)) / sum(inverse)
    return z


def clipping_loop(rows: Array, radius: float, steps: int) -> Array:
    z = median_loop(rows)
    for _ in range(steps):
        moves = []
        for row in rows:
            away = row - z
            length = float(np.linalg.norm(away))
            moves.append(away if length <= radius else away * radius / length)
        z = z + sum(moves) / len(rows)
    return z


def scores_loop(rows: Array, f: int) -> list[float]:
    scores = []
    for i, row in enumerate(rows):
        others = sorted(float(np.sum((row - other) ** 2)) for j, other in enumerate(rows) if j != i)
        scores.append(sum(others[: len(rows) - f - 1]))
    return scores


def krum_loop(rows: Array, f: int) -> Array:
    best: Array = rows[int(np.argmin(scores_loop(rows, f)))]
    return best


def multi_krum_loop(rows: Array, f: int) -> Array:
    chosen = np.argsort(scores_loop(rows, f))[: len(rows) - f]
    return np.asarray(sum(rows[i] for i in chosen) / len(chosen))


def mixing_loop(rows: Array, f: int) -> Array:
    mixed = []
    for row in rows:
        near = sorted(range(len(rows)), key=lambda j: float(np.sum((rows[j] - row) ** 2)))[: len(rows) - f]
        mixed.append(sum(rows[j] for j in near) / len(near))
    return np.array(mixed)


def buckets_loop(rows: Array, s: int) -> Array:
    return np.array([np.mean(rows[first : first + s], axis=0) for first in range(0, len(rows), s)])


LOOPS: dict[str, Callable[[Array], Array]] = {
    "median": median_loop,
    "trimmed mean": lambda rows: trimmed_loop(rows, 3),
    "geometric median": lambda rows: weiszfeld_loop(rows, 9, 0.1),
    "clipping": lambda rows: clipping_loop(rows, 2.5, 4),
    "krum": lambda rows: krum_loop(rows, 3),
    "multi-krum": lambda rows: multi_krum_loop(rows, 3),
    "mixing, median": lambda rows: median_loop(mixing_loop(rows, 3)),
    "mixing, trimmed mean": lambda rows: trimmed_loop(mixing_loop(rows, 3), 3),
}
BUCKETS: dict[str, Callable[[], Array]] = {
    "buckets, trimmed mean": lambda: trimmed_loop(buckets_loop(shuffled(), 2), 2),
    "buckets of three, krum": lambda: krum_loop(buckets_loop(shuffled(), 3), 1),
}


@pytest.mark.parametrize("name", OURS)
def test_rules_are_the_loops(name: str) -> None:
    expected = LOOPS[name](ROWS) if name in LOOPS else BUCKETS[name]()
    assert_close(ours(OURS[name], ROWS), expected, 1e-13)


@pytest.mark.parametrize("name", LOOPS)
def test_those_who_do_not_answer_count_for_nothing(name: str) -> None:
    present = np.arange(len(ROWS)) % 4 != 1
    rows = np.where(present[:, None], ROWS, 1e6)
    assert_close(ours(OURS[name], rows, present), LOOPS[name](ROWS[present]), 1e-13)


@pytest.mark.parametrize("name", OURS)
def test_rules_are_byzfl_s(name: str) -> None:
    stored = json.loads((Path(__file__).parent / "helpers" / "byzfl_values.json").read_text())
    assert stored.keys() == OURS.keys()
    assert_close(ours(OURS[name], ROWS), np.array(stored[name]), 1e-12)


def test_the_stored_values_are_byzfl_s() -> None:
    if find_spec("byzfl") is None:
        pytest.skip("needs byzfl, which has an environment of its own")
    stored = json.loads((Path(__file__).parent / "helpers" / "byzfl_values.json").read_text())
    for name, value in byzfl_values().items():
        assert_close(ours(OURS[name], ROWS), np.array(value), 1e-12)
        np.testing.assert_array_equal(value, stored[name])


# What they are for.


@pytest.mark.parametrize(
    "inner", [aggregation.krum(3), aggregation.centred_clipping(2.5), aggregation.geometric_median()], ids=str
)
def test_sums_of_the_largest_uploads_there_are_stay_finite(inner: Aggregator) -> None:
    """Mixed with each other they would be infinite, and their distances no numbers; also in single precision."""
    aggregator = aggregation.nearest_neighbour_mixing(inner, 3)
    for dtype in (np.float64, np.float32):
        rows = np.concatenate([ROWS[:8], np.full((3, 6), np.finfo(dtype).max)]).astype(dtype)
        found = ours(aggregator, rows)
        assert np.linalg.norm(found - ROWS[:8].mean(axis=0)) < max(np.linalg.norm(row) for row in ROWS[:8])


@pytest.mark.parametrize("name", [name for name in OURS if name != "buckets of three, krum"])
def test_false_uploads_do_not_move_a_robust_mean_far(name: str) -> None:
    """Two of eleven, as far away as can be: the aggregate stays within the honest uploads' distance of their mean."""
    honest = ROWS[:9] / np.linspace(0.5, 30.0, 11)[:9, None]
    centre = honest.mean(axis=0)
    reach = max(float(np.linalg.norm(row - centre)) for row in honest)
    for far in (1e3, 1e9, np.finfo(np.float64).max):
        rows = np.concatenate([honest, far * np.ones((2, 6))])
        assert np.linalg.norm(ours(OURS[name], rows) - centre) < reach
        assert np.max(np.abs((rows / len(rows)).sum(axis=0) - centre)) > 10 * reach


def test_the_geometric_median_has_the_least_sum_of_distances() -> None:
    def total(z: Array) -> float:
        return float(np.sum(np.linalg.norm(ROWS - z, axis=1)))

    z = ours(aggregation.geometric_median(), ROWS)
    draw = np.random.default_rng(3)
    assert all(total(z) <= total(z + size * draw.standard_normal(6)) for size in (1e-3, 1e-1, 10.0) for _ in range(20))


def test_an_upload_of_several_arrays_is_one_vector() -> None:
    """Krum's choice falls on one client for all of its arrays."""
    pair = (ROWS[:, :2], ROWS[:, 2:].reshape(len(ROWS), 2, 2))
    first, second = ours(OURS["krum"], pair)
    np.testing.assert_array_equal([*first, *second.ravel()], ours(OURS["krum"], ROWS))
    assert second.shape == (2, 2)


# In the engines.


def test_simulated_rounds_are_the_loops_and_a_federation_s() -> None:
    aggregate = aggregation.trimmed_mean(2)
    result = fedlin.simulate(fedlin.fedlin(), problem(), plan(), 12, x0=X0, aggregate=aggregate)
    assert_close(result.iterates, robust_fedlin(12, lambda rows: trimmed_loop(rows, 2)), 1e-11)
    [batched, _] = fedlin.simulate_many(
        fedlin.fedlin(), problem(), plan(), 12, seeds=[0, 1], x0=X0, aggregate=aggregate
    )
    assert_close(batched.iterates, result.iterates, 1e-13)
    sites = {f"site-{i}": fedlin.Client(fedlin.fedlin(), problem().client(i)).handle for i in range(CLIENTS)}
    served = fedlin.serve(fedlin.fedlin(), Loopback(sites), plan(), 12, x0=X0, aggregate=aggregate)
    assert_close(served.x, result.x, 1e-12)


def test_a_mean_given_by_name_is_the_default_bit_for_bit() -> None:
    named = fedlin.simulate(fedlin.fedlin(), problem(), plan(), 9, x0=X0, aggregate=aggregation.mean())
    np.testing.assert_array_equal(
        named.iterates, fedlin.simulate(fedlin.fedlin(), problem(), plan(), 9, x0=X0).iterates
    )


def test_a_schedule_of_who_answers_is_obeyed() -> None:
    present = np.ones((6, CLIENTS))
    present[2:, 4] = 0
    options: dict[str, Any] = {"x0": X0, "aggregate": aggregation.coordinate_median()}
    whole = fedlin.simulate(fedlin.gradient_descent(), problem(), plan(), 6, participation=present, **options)
    x, iterates = X0.copy(), [X0.copy()]
    for row in present:
        x = median_loop(np.array([x - ETA[i] * (A[i] @ x - B[i]) for i in range(CLIENTS) if row[i]]))
        iterates.append(x)
    assert_close(whole.iterates, np.array(iterates), 1e-12)


def test_buckets_are_drawn_anew_in_every_round() -> None:
    """With one client to a bucket or all in one, nothing is drawn; with two, rounds and seeds differ."""

    def run(s: int, seed: int) -> Array:
        rule = aggregation.bucketing(aggregation.coordinate_median(), s)
        return fedlin.simulate(
            fedlin.gradient_descent(), problem(), plan(), 4, x0=X0, seed=seed, aggregate=rule
        ).iterates

    assert_close(
        run(CLIENTS, 0), fedlin.simulate(fedlin.gradient_descent(), problem(), plan(), 4, x0=X0).iterates, 1e-13
    )
    assert not np.allclose(run(2, 0), run(2, 1))
    uploads = np.array([X0 - ETA[i] * (A[i] @ X0 - B[i]) for i in range(CLIENTS)])
    possible = [
        median_loop(np.array([*(uploads[list(pair)].mean(axis=0) for pair in pairs), uploads[last]]))
        for last in range(CLIENTS)
        for pairs in _pairings([i for i in range(CLIENTS) if i != last])
    ]
    after = run(2, 0)[1]
    assert min(float(np.max(np.abs(after - one))) for one in possible) < 1e-12


def _pairings(items: list[int]) -> list[list[tuple[int, int]]]:
    if not items:
        return [[]]
    first, *rest = items
    return [[(first, one), *more] for one in rest for more in _pairings([i for i in rest if i != one])]


# What is refused, before any work.


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (fedlin.scaffold(), {}, r"scaffold needs the mean of the uploads.*trimmed_mean\(2\)"),
        (fedlin.fedlin(uplink=fedlin.top_k(2)), {}, r"error_feedback\(top_k\(2\)\).*needs the mean of the uploads"),
        (fedlin.fedlin(model_uplink=fedlin.innovation(fedlin.top_k(2))), {}, "needs the mean of the uploads"),
        (fedlin.ef21(fedlin.top_k(2)), {}, "needs the mean of the uploads"),
        (fedlin.gradient_tracking(), {}, "needs the mean of the uploads"),
        (fedlin.fedpaq(fedlin.privacy.gaussian(1.0, 1.0, where="central")), {}, "server add noise"),
        (fedlin.fedavg(), {"weights": np.arange(1.0, CLIENTS + 1)}, "counts all clients alike.*equal"),
        (fedlin.fedavg(), {"chunk": 3}, "chunk = 3.*needs all uploads at once"),
        (fedlin.fedavg(), {"participation": 0.5}, "needs at least 5 uploads, and a round may have 4"),
        (fedlin.fedavg(), {"aggregate": "median"}, "aggregate = 'median' is not allowed"),
        (fedlin.fedavg(), {"aggregate": aggregation.bucketing(aggregation.krum(2), 2)}, "at least 9 uploads"),
    ],
)
def test_what_needs_the_mean_is_refused(method: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        fedlin.simulate(method, problem(), plan(), 3, **{"aggregate": aggregation.trimmed_mean(2), **options})


def test_links_without_memory_are_served() -> None:
    method = fedlin.fedlin(uplink=fedlin.plain(fedlin.quantize(4)), downlink=fedlin.top_k(3))
    fedlin.simulate(method, problem(), plan(), 2, x0=X0, aggregate=aggregation.trimmed_mean(2))


def test_a_federation_refuses_unequal_weights_and_small_quorums() -> None:
    def handlers(heavy: float) -> dict[str, Any]:
        return {
            f"site-{i}": fedlin.Client(fedlin.fedavg(), problem().client(i), weight=heavy if i == 0 else 1.0).handle
            for i in range(CLIENTS)
        }

    options: dict[str, Any] = {"dim": DIM, "aggregate": aggregation.trimmed_mean(2)}
    with pytest.raises(ArgumentError, match="counts all clients alike"):
        fedlin.serve(fedlin.fedavg(), Loopback(handlers(2.0)), plan(), 2, **options)
    with pytest.raises(ArgumentError, match="at least 5 uploads, and a round may have 3"):
        fedlin.serve(fedlin.fedavg(), Loopback(handlers(1.0)), plan(), 2, policy=fedlin.Policy.first(3), **options)
    attacked = fedlin.attacks.sign_flip(fedlin.fedavg(), [0])
    with pytest.raises(ArgumentError, match="can only be simulated"):
        fedlin.serve(attacked, Loopback(handlers(1.0)), plan(), 2, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: aggregation.trimmed_mean(-1), "f = -1"),
        (lambda: aggregation.krum(1.5), "f = 1.5"),  # type: ignore[arg-type]
        (lambda: aggregation.centred_clipping(0.0), "radius = 0.0"),
        (lambda: aggregation.bucketing("median", 2), "aggregator = 'median'"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments(make: Callable[[], Aggregator], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_equal_rules_are_one_object() -> None:
    made = [aggregation.bucketing(aggregation.krum(1), 2) for _ in range(2)]
    assert made[0] is made[1]
    assert len({aggregator.name for aggregator in OURS.values()}) == len(OURS)
    assert aggregation.centred_clipping(1.0) != aggregation.centred_clipping(1.0 + 1e-9)
    assert aggregation.geometric_median(smoothing=0.1) != aggregation.geometric_median(smoothing=0.1 + 1e-9)
    assert all(a != b for a, b in combinations(OURS.values(), 2))
