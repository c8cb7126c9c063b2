"""Mini-batches as passes over a client's rows, and losses that draw.

Client i's row j is the unit vector e_j, and the loss of a row is -⟨row, x⟩. A step then adds η/size to the entries of
the rows it took, so that the model after a round tells which rows were taken how often.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import Checkpoint, Client, Plan, Policy, problems, simulate
from fedlin.errors import ArgumentError, DataError, FedLinError, PlanError
from fedlin.problems.flat_loss import takes_key
from fedlin.transports.loopback import Loopback

ROWS = 10
DIAGONAL = np.eye(ROWS)


def overlap(x: Any, batch: Any) -> Any:
    return -jnp.mean(batch @ x)


def taken(count: int, steps: int, seed: int = 0, lengths: tuple[int, ...] = (ROWS,), **options: Any) -> Any:
    """How often each row of the last client was taken in so many steps, times the size of a batch."""
    clients = [DIAGONAL[:n] for n in lengths]
    problem = problems.minibatch(problems.from_loss(overlap, np.zeros(ROWS), clients), count, **options)
    weights = [0.0] * (len(lengths) - 1) + [1.0]
    result = simulate(
        fedlin.fedavg(), problem, Plan(steps, 1.0), 1, seed=seed, weights=weights, measure_every=9, layout="client"
    )
    return np.round(result.x * count, 9)


def test_a_pass_takes_every_row_once() -> None:
    np.testing.assert_array_equal(taken(5, 2, replace=False), np.ones(ROWS))
    np.testing.assert_array_equal(taken(5, 4, replace=False), 2 * np.ones(ROWS))
    np.testing.assert_array_equal(taken(1, 10, replace=False), np.ones(ROWS))


def test_a_pass_that_is_broken_off_takes_as_many_rows_as_its_steps() -> None:
    for steps in (1, 2, 3):
        assert sorted(taken(2, steps, replace=False)) == [0] * (ROWS - 2 * steps) + [1] * 2 * steps


@pytest.mark.parametrize("passes", [1, 2])
def test_the_last_batch_is_short_or_dropped(passes: int) -> None:
    """Of ten rows, batches of four leave two over: the mean over those counts each twice as much."""
    short = taken(4, 3 * passes, replace=False)
    assert sorted(taken(4, 3, replace=False)) == [1] * 8 + [2] * 2
    assert np.sum(short) == 12 * passes
    assert np.min(short) >= passes
    dropped = taken(4, 2 * passes, replace=False, last="drop")
    assert np.sum(dropped) == 8 * passes
    assert np.max(dropped) <= passes


def test_batches_that_no_client_fills_are_all_of_its_rows() -> None:
    np.testing.assert_array_equal(taken(64, 3, replace=False) / 64, np.full(ROWS, 0.3))


def test_orders_differ_between_passes_seeds_and_clients() -> None:
    first = [taken(2, 1, seed=seed, replace=False) for seed in range(12)]
    assert len({tuple(rows) for rows in first}) > 6
    np.testing.assert_array_equal(first[3], taken(2, 1, seed=3, replace=False))
    # The first batch of the second pass, were the order the same, would be that of the first.
    again = [taken(2, 6, seed=seed, replace=False) - 1 for seed in range(12)]
    assert sum(bool(np.array_equal(a, b)) for a, b in zip(first, again, strict=True)) < 4
    other = [taken(2, 1, seed=seed, lengths=(ROWS, ROWS), replace=False) for seed in range(12)]
    assert sum(bool(np.array_equal(a, b)) for a, b in zip(first, other, strict=True)) < 4


def test_every_order_is_as_likely() -> None:
    """Each of three rows is first in a third of the runs."""
    problem = problems.minibatch(problems.from_loss(overlap, np.zeros(3), np.eye(3)[None]), 1, replace=False)
    results = fedlin.simulate_many(fedlin.fedavg(), problem, Plan(1, 1.0), 1, seeds=range(600))
    share = np.mean([result.x for result in results], axis=0)
    np.testing.assert_allclose(share, 1 / 3, atol=5 * np.sqrt(2 / 9 / 600))


def test_padding_changes_no_draw() -> None:
    """A client of seven rows beside one of ten draws as it would among its like."""
    for options in ({"replace": False}, {}):
        alone = taken(3, 5, lengths=(7, 7), **options)
        np.testing.assert_array_equal(taken(3, 5, lengths=(10, 7), **options), alone)
        np.testing.assert_array_equal(alone[7:], 0)


def test_a_layout_changes_no_draw() -> None:
    problem = problems.from_loss(overlap, np.zeros(ROWS), [DIAGONAL[:n] for n in (10, 7, 9)])
    problem = problems.minibatch(problem, 3, replace=False)
    plan = Plan([7, 1, 4], 0.1)
    by_client, by_step = (simulate(fedlin.fedavg(), problem, plan, 3, layout=layout).x for layout in ("client", "step"))
    np.testing.assert_allclose(by_client, by_step, rtol=1e-14)


def test_epochs_count_whole_passes() -> None:
    exact = problems.from_loss(overlap, np.zeros(ROWS), [DIAGONAL[:n] for n in (10, 7, 8)])
    short, drop = (problems.minibatch(exact, 4, replace=False, last=last) for last in ("short", "drop"))
    assert fedlin.epochs(short, 2).tolist() == [6, 4, 4]
    assert fedlin.epochs(drop, 2).tolist() == [4, 2, 4]
    assert fedlin.epochs(drop, 0.5).tolist() == [1, 1, 1]
    with pytest.raises(PlanError, match="no mini-batches"):
        fedlin.epochs(exact, 1)


def test_rows_of_every_problem_go_through_passes() -> None:
    """A pass of steps too small to move the model sums up to the gradient over all rows."""
    draw = np.random.default_rng(0)
    X, y = [draw.standard_normal((n, 3)) for n in (8, 5)], [np.sign(draw.standard_normal(n)) for n in (8, 5)]
    tiny = 1e-7
    for exact in (
        problems.logistic(X, y, l2=0.1),
        problems.logistic(X, y, nonconvex=0.1),
        problems.regression(X, y),
    ):
        x0 = np.linspace(-1, 1, exact.dim)
        problem = problems.minibatch(exact, 1, replace=False)
        for client in range(2):
            plan, weights = Plan(fedlin.epochs(problem, 1), tiny), np.eye(2)[client]
            move = simulate(fedlin.fedavg(), problem, plan, 1, x0=x0, weights=weights).x - x0
            expected = exact.weighted(weights).grad(x0)
            np.testing.assert_allclose(-move / tiny / len(y[client]), expected, rtol=1e-5, atol=1e-6)


# Losses that draw.


def dropped(x: Any, batch: Any, key: Any) -> Any:
    """A row's loss counts twice or not at all."""
    kept = jax.random.bernoulli(key, 0.5, batch.shape[:1])
    return -jnp.mean(jnp.where(kept, 2.0, 0.0) * (batch @ x)) + x @ x / 2


def quietly(x: Any, batch: Any, key: Any = None) -> Any:
    return overlap(x, batch) + x @ x / 2 if key is None else dropped(x, batch, key)


DROPPED = problems.from_loss(dropped, np.zeros(ROWS), np.stack([DIAGONAL, DIAGONAL[::-1], DIAGONAL]))
PASSES = problems.minibatch(DROPPED, 5, replace=False)


def test_keys_differ_by_step_client_round_and_seed_and_repeat_with_the_seed() -> None:
    plan = Plan(1, 1.0)  # x ← what the draw says
    by_seed = [simulate(fedlin.fedavg(), DROPPED, plan, 2, seed=seed).iterates for seed in range(4)]
    assert len({tuple(run[1]) for run in by_seed}) == 4
    assert all(not np.array_equal(run[1], run[2]) for run in by_seed)
    np.testing.assert_array_equal(by_seed[2], simulate(fedlin.fedavg(), DROPPED, plan, 2, seed=2).iterates)
    weights = [[1.0, 0, 0], [0, 0, 1.0]]
    one, other = (simulate(fedlin.fedavg(), DROPPED, plan, 1, weights=weight).x for weight in weights)
    assert not np.array_equal(one, other)  # the same rows, another client
    once, twice = (simulate(fedlin.fedavg(), DROPPED, Plan(tau, 0.5), 1, weights=weights[0]).x for tau in (1, 2))
    assert not np.allclose(once, twice - once / 2)  # the second step drops others


def test_draws_are_unbiased() -> None:
    """The mean over keys is the loss without dropping anything."""
    runs = fedlin.simulate_many(fedlin.fedavg(), PASSES, Plan(1, 1.0), 1, seeds=range(800))
    mean = np.mean([run.x for run in runs], axis=0)
    np.testing.assert_allclose(mean, 0.1, atol=5 * 0.2 / np.sqrt(800))


def test_at_the_anchor_the_same_draw_cancels() -> None:
    """FedLin's first step with one batch for both gradients is that of gradient descent, whatever is drawn."""
    for problem in (DROPPED, PASSES):
        anchored = simulate(fedlin.fedlin(same_batch=True), problem, Plan(1, 0.25), 1, x0=np.ones(ROWS)).x
        whole = simulate(fedlin.fedlin(), DROPPED, Plan(1, 0.25), 1, x0=np.ones(ROWS)).x
        drawn = 4 * (1 - anchored) - 1  # minus the mean of the clients' draws over all rows
        assert set(np.round(-drawn * ROWS * 3).astype(int)) <= {0, 2, 4, 6}
        assert not np.array_equal(anchored, whole)


def test_models_are_measured_without_a_key_where_that_can_be_done() -> None:
    data = np.stack([DIAGONAL, DIAGONAL])
    quiet, exact = problems.from_loss(quietly, np.zeros(ROWS), data), problems.from_loss(overlap, np.zeros(ROWS), data)
    x = np.linspace(0, 1, ROWS)
    assert quiet.loss(x) == pytest.approx(exact.loss(x) + x @ x / 2, rel=1e-14)
    np.testing.assert_allclose(quiet.grad(x), exact.grad(x) + x, rtol=1e-14)
    assert DROPPED.loss(x) == DROPPED.loss(x)  # always the same draw
    result = simulate(fedlin.fedavg(), quiet, Plan(1, 1.0), 3)
    expected = [quiet.loss(model) for model in result.iterates]
    np.testing.assert_allclose(result.loss, expected, rtol=1e-13)


@pytest.mark.parametrize("problem", [DROPPED, PASSES], ids=["all rows", "passes"])
def test_a_run_that_draws_resumes_bit_for_bit(problem: Any, tmp_path: Path) -> None:
    plan, place = Plan([1, 3, 2], 0.3), Checkpoint(tmp_path / "run.ckpt", every=2)
    method = fedlin.scaffold()
    whole = simulate(method, problem, plan, 6, seed=5)
    simulate(method, problem, plan, 4, seed=5, checkpoint=place)
    resumed = simulate(method, problem, plan, 6, seed=5, checkpoint=place)
    np.testing.assert_array_equal(resumed.iterates, whole.iterates)


@pytest.mark.parametrize("same_batch", [False, True])
def test_a_federation_draws_as_the_simulation_does(same_batch: bool) -> None:
    method, plan = fedlin.fedlin(same_batch=same_batch), Plan([1, 3, 2], 0.3)
    sites = {f"site-{i}": Client(method, PASSES.client(i)).handle for i in range(3)}
    policy = Policy.everyone(pause=0.0, patience=60.0)
    served = fedlin.serve(method, Loopback(sites), rounds=3, plan=plan, x0=np.zeros(ROWS), seed=4, policy=policy)
    np.testing.assert_allclose(served.x, simulate(method, PASSES, plan, 3, seed=4).x, rtol=1e-12)


def test_a_short_batch_and_padding_get_a_key_for_each_row() -> None:
    """A row's draw does not depend on how many rows stand beside it."""
    ragged = problems.from_loss(dropped, np.zeros(ROWS), [DIAGONAL[:7], DIAGONAL])
    result = simulate(fedlin.fedavg(), ragged, Plan(1, 1.0), 1, weights=[1.0, 0.0])
    np.testing.assert_array_equal(result.x[7:], 0)
    assert set(np.round(result.x * 7).astype(int)) == {0, 2}
    short = problems.minibatch(ragged, 4, replace=False)
    steps = simulate(fedlin.fedavg(), short, Plan(2, 1.0), 1, weights=[1.0, 0.0]).x
    assert np.all(np.isfinite(steps))
    np.testing.assert_array_equal(steps[7:], 0)


# Mistakes.


def four(a: Any, b: Any, c: Any, d: Any) -> Any:
    return a


def test_a_loss_says_by_its_third_argument_whether_it_draws() -> None:
    assert takes_key(jax.jit(dropped)) == (True, False)
    assert takes_key(quietly) == (True, True)
    with pytest.raises(ArgumentError, match=r"takes \(a, b, c, d\): write it as"):
        takes_key(four)


BAD: dict[str, tuple[Callable[[], object], type[FedLinError], str]] = {
    "order": (lambda: problems.minibatch(DROPPED, 2, replace="no"), ArgumentError, "replace = 'no'"),  # type: ignore[arg-type]
    "last": (lambda: problems.minibatch(DROPPED, 2, replace=False, last="half"), ArgumentError, "last = 'half'"),
    "too few rows": (
        lambda: problems.minibatch(
            problems.from_loss(overlap, np.zeros(ROWS), [DIAGONAL, DIAGONAL[:3]]), 4, replace=False, last="drop"
        ),
        DataError,
        "client 1 has 3 rows and size = 4",
    ),
    "twice": (lambda: problems.minibatch(PASSES, 2), ArgumentError, "noisy oracle already"),
    "noise around draws": (lambda: problems.noisy(DROPPED, 0.1), ArgumentError, "noisy oracle already"),
    "a loss an entry": (
        lambda: problems.from_loss(lambda x, batch: batch * x[None], np.zeros(ROWS), DIAGONAL[None]),
        DataError,
        r"shape \(10, 10\) and type float64",
    ),
    "no loss": (lambda: problems.from_loss(3, np.zeros(ROWS), DIAGONAL[None]), ArgumentError, "loss = 3"),  # type: ignore[arg-type]
    "precision": (
        lambda: problems.from_loss(overlap, np.zeros(ROWS), DIAGONAL[None], precision="low"),
        ArgumentError,
        "precision = 'low'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_told(name: str) -> None:
    call, error, words = BAD[name]
    with pytest.raises(error, match=words):
        call()
