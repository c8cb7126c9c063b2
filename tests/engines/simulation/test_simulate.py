"""The simulator: what it records, when it ends, that it compiles once, and that a killed run goes on where it was."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import compilation
import fedlin
from compilation import compilations
from fedlin import Algorithm, Checkpoint, Phase, Plan, Result, Stop, problems, simulate, simulate_many
from fedlin.engines.simulation import resident
from fedlin.engines.simulation.program import ProgramKey, program
from fedlin.errors import CheckpointError, UnknownError

Array = NDArray[np.float64]
M, D = 4, 3
TAU = np.array([1, 2, 3, 5])
X0 = np.array([1.0, -2.0, 3.0])


def quadratic(seed: int = 0) -> problems.Problem:
    draw = np.random.default_rng(seed)
    half = draw.standard_normal((M, D, D))
    return problems.quadratic(half @ half.transpose(0, 2, 1) + np.eye(D), draw.standard_normal((M, D)))


PROBLEM = quadratic()
PLAN = Plan.scaled(TAU, 0.3 / PROBLEM.smoothness)
WILD = Plan(2, 30 / PROBLEM.smoothness)  # far beyond what any method survives


def run(algorithm: Any = None, plan: Plan = PLAN, rounds: int = 40, **rest: Any) -> Result:
    problem = rest.pop("problem", PROBLEM)
    return simulate(algorithm or fedlin.fedlin(), problem, plan, rounds, x0=X0, **rest)


def curves(result: Result) -> dict[str, NDArray[Any]]:
    """Everything measured but the time."""
    return {name: a for name, a in {**result.curves(), "x": result.iterates}.items() if name != "seconds"}


def assert_prefix(part: Result, whole: Result) -> None:
    """`part` is `whole` up to its last round, to the bit."""
    for name, array in curves(part).items():
        np.testing.assert_array_equal(array, curves(whole)[name][: part.rounds + 1], err_msg=name)
    np.testing.assert_array_equal(part.x, part.iterates[-1])


# What is recorded.


def test_every_array_has_an_entry_for_the_start_and_for_every_round() -> None:
    result = run(rounds=25)
    assert (result.status, result.rounds, result.diverged_at) == ("done", 25, None)
    for array in (*curves(result).values(), result.seconds):
        assert len(array) == 26
    np.testing.assert_array_equal(result.iterates[0], X0)
    np.testing.assert_array_equal(result.iterates[-1], result.x)
    for name in ("bytes_up", "bytes_down", "gradients", "seconds"):
        assert getattr(result, name)[0] == 0
    assert np.all(np.diff(result.seconds) > 0)
    for t in (0, 7, 25):
        x = result.iterates[t]
        assert result.loss[t] == pytest.approx(PROBLEM.loss(x), rel=1e-12)
        assert result.gap[t] == pytest.approx(PROBLEM.gap(x), rel=1e-9)
        assert result.distance[t] == pytest.approx(np.sum((x - PROBLEM.minimizer) ** 2), rel=1e-9)
        assert result.grad_norm[t] == pytest.approx(np.linalg.norm(PROBLEM.grad(x)), rel=1e-9)


def test_starts_from_the_problems_own_start() -> None:
    result = simulate(fedlin.fedlin(), PROBLEM, PLAN, 1)
    np.testing.assert_array_equal(result.iterates[0], PROBLEM.start)


def test_one_round_of_one_round() -> None:
    result = run(fedlin.gradient_descent(), Plan(1, 0.1), rounds=1)
    np.testing.assert_allclose(result.x, X0 - 0.1 * PROBLEM.grad(X0), rtol=1e-14)


def test_a_limit_met_at_the_start_plays_no_round() -> None:
    result = simulate(fedlin.fedlin(), PROBLEM, PLAN, 10, x0=PROBLEM.minimizer, stop=Stop(distance=1e-20))
    assert result.status == "stopped"
    assert result.rounds == 0
    np.testing.assert_array_equal(result.x, PROBLEM.minimizer)


def test_iterates_are_kept_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = run()
    without = run(iterates=False)
    np.testing.assert_array_equal(without.x, kept.x)
    np.testing.assert_array_equal(without.gap, kept.gap)
    with pytest.raises(UnknownError, match="iterates=True"):
        _ = without.iterates
    monkeypatch.setattr("fedlin.engines.simulation.records.KEPT_BY_DEFAULT", 41 * D - 1)
    with pytest.raises(UnknownError, match="iterates=True"):
        _ = run().iterates
    assert run(iterates=True).iterates.shape == (41, D)
    assert run(rounds=39).iterates.shape == (40, D)


# What is counted.


@pytest.mark.parametrize(
    ("algorithm", "a_round"),
    [
        (fedlin.fedlin(), sum(TAU) + M),
        (fedlin.fedavg(), sum(TAU)),
        (fedlin.scaffold(option=1), sum(TAU) + M),
        (fedlin.scaffold(option=2), sum(TAU)),
        (fedlin.gradient_descent(), M),
        (fedlin.fedsplit(steps=6), 6 * M),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_gradients_are_counted(algorithm: Algorithm[Any, Any], a_round: int) -> None:
    np.testing.assert_array_equal(run(algorithm, rounds=12).gradients, a_round * np.arange(13))


@pytest.mark.parametrize("chunk", [None, 4])
def test_a_round_counts_more_gradients_than_32_bits_hold(chunk: int | None) -> None:
    """In single precision too, where a program has no larger whole numbers."""
    single = problems.quadratic(np.ones((M, 1, 1), np.float32), np.ones((M, 1), np.float32))
    result = simulate(fedlin.fedavg(), single, Plan(2**30, 0.5), 2, chunk=chunk)
    np.testing.assert_array_equal(result.gradients, [0, M * 2**30, 2 * M * 2**30])


def test_gradients_of_a_changing_plan() -> None:
    tau = np.arange(1, 5 * M + 1).reshape(5, M)
    result = run(plan=Plan(tau, 1e-3), rounds=5)
    np.testing.assert_array_equal(result.gradients[1:], np.cumsum(tau.sum(1) + M))


@pytest.mark.parametrize(
    ("algorithm", "up", "down"),
    [
        (fedlin.fedavg(), 8 * D, 8 * D),
        (fedlin.fedlin(), 16 * D, 16 * D),
        (fedlin.scaffold(), 16 * D, 16 * D),
        (fedlin.fednova(), 8 * D + 8, 8 * D),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_bytes_are_counted(algorithm: Algorithm[Any, Any], up: int, down: int) -> None:
    result = run(algorithm, Plan(TAU, 1e-3), rounds=6)
    np.testing.assert_array_equal(result.bytes_up, M * up * np.arange(7))
    np.testing.assert_array_equal(result.bytes_down, M * down * np.arange(7))


def test_bytes_of_a_compressed_run_start_in_full() -> None:
    result = run(fedlin.fedlin(uplink=fedlin.top_k(2)), rounds=6)
    # Two values and two one-byte indices a gradient after the first round, and the model in full.
    np.testing.assert_array_equal(np.diff(result.bytes_up), M * np.array([16 * D] + [2 * 9 + 8 * D] * 5))
    np.testing.assert_array_equal(np.diff(result.bytes_down), M * 16 * D)


def test_only_those_who_take_part_are_counted() -> None:
    half = run(rounds=6, participation=0.5)
    np.testing.assert_array_equal(half.bytes_up, 2 * 16 * D * np.arange(7))
    present = np.array([[1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1]])
    chosen = run(rounds=4, participation=present)
    np.testing.assert_array_equal(np.diff(chosen.bytes_up), 16 * D * present.sum(1))
    np.testing.assert_array_equal(np.diff(chosen.gradients), present @ (TAU + 1))


def test_a_round_moves_by_those_who_take_part() -> None:
    eta = 0.01
    result = run(fedlin.gradient_descent(), Plan(1, eta), rounds=1, participation=[[0, 1, 0, 1]], weights=[1, 2, 3, 4])
    own = PROBLEM.data.A @ X0 - PROBLEM.data.b
    np.testing.assert_allclose(result.x, X0 - eta * (2 * own[1] + 4 * own[3]) / 6, rtol=1e-13)


# When it ends.


@pytest.mark.parametrize("measure", ["gap", "distance", "grad_norm", "loss"])
def test_stops_at_the_first_round_that_meets_the_limit(measure: str) -> None:
    whole = run(rounds=150)
    limit = float(getattr(whole, measure)[60])
    first = int(np.flatnonzero(getattr(whole, measure) <= limit)[0])
    assert 0 < first <= 60
    stopped = run(rounds=150, stop=Stop(**{measure: limit}))
    assert (stopped.status, stopped.rounds) == ("stopped", first)
    assert_prefix(stopped, whole)


def test_a_limit_never_met_changes_nothing() -> None:
    stopped = run(stop=Stop(gap=1e-300))
    assert stopped.status == "done"
    assert_prefix(stopped, run())


@pytest.mark.parametrize("algorithm", [fedlin.fedavg(), fedlin.fedlin()], ids=lambda a: a.name)
def test_divergence_is_told_and_what_was_finite_is_kept(algorithm: Algorithm[Any, Any]) -> None:
    result = run(algorithm, WILD, rounds=500)
    assert result.status == "diverged"
    assert result.diverged_at is not None
    assert result.rounds == result.diverged_at - 1
    for array in curves(result).values():
        assert len(array) == result.rounds + 1
        assert np.all(np.isfinite(array))
    # One round more leaves the horizon.
    following = simulate(algorithm, PROBLEM, WILD, 1, x0=result.x)
    assert np.linalg.norm(result.x) < 1e30 * (1 + np.linalg.norm(X0)) <= np.linalg.norm(following.x)
    without = run(algorithm, WILD, rounds=500, iterates=False)
    np.testing.assert_array_equal(without.x, result.x)


def test_a_loss_of_minus_infinity_is_a_run_that_diverged_and_reaches_no_limit() -> None:
    problem = problems.from_loss(
        lambda x, batch: jnp.log(jnp.sum(x**2)) + 0 * jnp.sum(batch), np.zeros(2), np.ones((2, 3))
    )
    result = simulate(fedlin.gradient_descent(), problem, Plan(1, 0.1), 3, stop=Stop(loss=-5.0))
    assert (result.status, result.diverged_at) == ("diverged", 1)


def test_float32_divergence_has_finite_curves() -> None:
    small = problems.quadratic(PROBLEM.data.A.astype(np.float32), PROBLEM.data.b.astype(np.float32))
    result = simulate(fedlin.fedavg(), small, WILD, 500, x0=X0)
    assert result.status == "diverged"
    assert result.x.dtype == np.float32
    for array in curves(result).values():
        assert np.all(np.isfinite(array))


# Callbacks.


def test_callbacks_see_every_round_once_and_in_order() -> None:
    calls: list[tuple[str, int, dict[str, float]]] = []
    result = run(
        callbacks=[
            lambda t, measures: calls.append(("first", t, measures)),
            lambda t, measures: calls.append(("second", t, measures)),
        ]
    )
    assert [(who, t) for who, t, _ in calls] == [(who, t) for t in range(1, 41) for who in ("first", "second")]
    for _, t, measures in calls:
        for name, value in measures.items():
            assert value == getattr(result, name)[t]
    assert {"gap", "distance", "grad_norm", "loss", "bytes_up", "bytes_down", "gradients"} <= set(calls[0][2])
    assert_prefix(result, run())


@pytest.mark.parametrize("iterates", [True, False])
@pytest.mark.parametrize("end", [1, 2, 17, 40])
def test_a_callback_ends_the_run_exactly_there(end: int, iterates: bool) -> None:
    whole = run()
    calls: list[int] = []

    def ends(t: int, measures: dict[str, float]) -> bool:
        calls.append(t)
        return t == end

    result = run(iterates=iterates, callbacks=[ends])
    assert (result.status, result.rounds, calls) == ("stopped", end, list(range(1, end + 1)))
    np.testing.assert_array_equal(result.x, whole.iterates[end])
    np.testing.assert_array_equal(result.gap, whole.gap[: end + 1])
    np.testing.assert_array_equal(result.gradients, whole.gradients[: end + 1])


@pytest.mark.parametrize("stop", [None, Stop(gap=1e-9)])
def test_nothing_depends_on_how_many_rounds_a_call_plays(stop: Stop | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """That number follows the clock; a model is measured with the next round's gradients or apart from them."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((3, 20, 4))
    problem = problems.logistic(X, np.where(X[..., 0] + draw.standard_normal((3, 20)) > 0, 1.0, -1.0), 0.1)

    def result(count: int) -> tuple[Result, Result]:
        monkeypatch.setattr(resident.Pace, "note", lambda pace, played, seconds: setattr(pace, "count", count))
        single = simulate(fedlin.fedlin(), problem, Plan(2, 0.1), 300, stop=stop)
        several = simulate_many(fedlin.fedlin(), problem, Plan(2, [0.1, 0.1, 0.2]), 300, seeds=[0, 1], stop=stop)
        return single, several[0]

    expected = result(1)
    assert expected[0].status == ("done" if stop is None else "stopped")
    for count in (7, 300):
        for one, other in zip(result(count), expected, strict=True):
            assert (one.status, one.rounds) == (other.status, other.rounds)
            np.testing.assert_array_equal(one.x, other.x)
            for name in ("gap", "loss", "grad_norm", "distance"):
                np.testing.assert_array_equal(one.columns[name], other.columns[name], err_msg=f"{name} {count}")


def test_a_callback_that_ends_the_run_before_it_diverges_has_stopped_it() -> None:
    whole = run(fedlin.fedavg(), WILD, rounds=500)
    end = whole.rounds  # the next round, already computed, is the one that diverges
    result = run(fedlin.fedavg(), WILD, rounds=500, callbacks=[lambda t, _: t == end])
    assert (result.status, result.rounds, result.diverged_at) == ("stopped", end, None)
    assert_prefix(result, whole)


def test_progress_is_shown_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = run()
    assert capsys.readouterr().out == ""
    shown = run(progress=True)
    out = capsys.readouterr().out
    assert "fedlin" in out
    assert "40/40" in out
    assert "gap" in out
    assert_prefix(shown, quiet)
    simulate_many(fedlin.fedlin(), PROBLEM, [PLAN, PLAN], 40, x0=X0, progress=True)
    assert "2 runs" in capsys.readouterr().out


# Ctrl-C.


def interrupt_at(round_: int, times: int = 1) -> Callable[[int, dict[str, float]], None]:
    def callback(t: int, measures: dict[str, float]) -> None:
        if t == round_:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    return callback


def test_an_interrupted_run_keeps_what_was_done() -> None:
    before = signal.getsignal(signal.SIGINT)
    result = run(rounds=5000, callbacks=[interrupt_at(3)])
    assert signal.getsignal(signal.SIGINT) is before
    assert result.status == "interrupted"
    assert 3 <= result.rounds < 5000
    assert_prefix(result, run(rounds=result.rounds))


def test_an_interrupt_in_the_last_round_finds_the_run_done() -> None:
    assert run(rounds=3, callbacks=[interrupt_at(3)]).status == "done"


def test_a_second_interrupt_acts_as_usual() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(rounds=5000, callbacks=[interrupt_at(3, times=2)])
    assert signal.getsignal(signal.SIGINT) is before


# Compiled once.


@pytest.mark.parametrize(
    "algorithm",
    [fedlin.fedlin(uplink=fedlin.top_k(2)), fedlin.fedprox(0.5), fedlin.scaffold()],
    ids=lambda a: a.name,
)
def test_a_second_run_of_the_same_shape_compiles_nothing(algorithm: Algorithm[Any, Any]) -> None:
    run(algorithm)
    with compilations() as seen:
        run(algorithm, problem=quadratic(1))
        run(algorithm, seed=7)
        run(algorithm, plan=Plan(TAU + 3, 1e-3))
        run(algorithm, rounds=77)
        run(algorithm, stop=Stop(gap=1e-3), weights=[1, 2, 3, 4])
        if algorithm.name == "fedprox":
            run(fedlin.fedprox(0.75))
    assert seen == []


def test_global_precision_is_left_alone() -> None:
    assert not jax.config.jax_enable_x64  # type: ignore[attr-defined]
    result = run()
    assert result.x.dtype == np.float64
    assert not jax.config.jax_enable_x64  # type: ignore[attr-defined]
    assert jnp.ones(1).dtype == jnp.float32
    with pytest.raises(RuntimeError, match="midway"):
        run(callbacks=[_fail])
    assert jnp.ones(1).dtype == jnp.float32


def _fail(t: int, measures: dict[str, float]) -> None:
    raise RuntimeError("midway")


def test_a_float32_model_stays_float32() -> None:
    def loss(x: jax.Array, batch: jax.Array) -> jax.Array:
        return jnp.mean((x[None] - batch) ** 2)

    data = np.random.default_rng(0).standard_normal((M, 6, D))  # float64
    f = problems.from_loss(loss, np.zeros(D, np.float32), data)
    result = simulate(fedlin.fedlin(uplink=fedlin.top_k(1)), f, Plan(TAU, 0.02), 5)
    assert result.x.dtype == np.float32
    assert result.iterates.dtype == np.float32
    assert result.loss.dtype == np.float32
    assert result.bytes_up[1] == M * 2 * 4 * D
    assert result.loss[-1] < result.loss[0]


# Many runs.


def assert_same(one: Result, other: Result) -> None:
    """Equal up to the rounding of a batched product."""
    assert (one.status, one.rounds, one.diverged_at, one.algorithm, one.seed) == (
        other.status,
        other.rounds,
        other.diverged_at,
        other.algorithm,
        other.seed,
    )
    for name, array in curves(one).items():
        np.testing.assert_allclose(array, curves(other)[name], rtol=1e-7, atol=1e-12, err_msg=name)


def test_members_end_each_on_their_own_and_equal_their_single_runs() -> None:
    plans = [PLAN, WILD, Plan.scaled(TAU, 0.05 / PROBLEM.smoothness), Plan.scaled(TAU, 0.2 / PROBLEM.smoothness)]
    stop = Stop(gap=1.001 * float(run().gap[-1]))  # between two rounds: on one, rounding would decide
    together = simulate_many(fedlin.fedlin(), PROBLEM, plans, 150, x0=X0, stop=stop)
    assert [r.status for r in together] == ["stopped", "diverged", "done", "stopped"]
    without = simulate_many(fedlin.fedlin(), PROBLEM, plans, 150, x0=X0, stop=stop, iterates=False)
    for plan, result, other in zip(plans, together, without, strict=True):
        assert_same(result, run(plan=plan, rounds=150, stop=stop))
        np.testing.assert_array_equal(other.x, result.x)  # whoever ends first waits, and keeps its own


def test_members_may_differ_in_everything_that_is_a_number() -> None:
    kinds = [problems.noisy(quadratic(seed), 0.1) for seed in (0, 1, 2)]
    algorithms = [fedlin.fedprox(beta) for beta in (0.0, 0.5, 2.0)]
    seeds = [4, 5, 6]
    with_all = simulate_many(algorithms, kinds, PLAN, 20, x0=X0, seeds=seeds, participation=0.5)
    for algorithm, problem, seed, result in zip(algorithms, kinds, seeds, with_all, strict=True):
        assert_same(result, run(algorithm, rounds=20, problem=problem, seed=seed, participation=0.5))


def test_one_program_a_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def noted(shape: ProgramKey) -> Any:
        shapes.append(shape)
        return program(shape)

    monkeypatch.setattr("fedlin.engines.simulation.resident.program", noted)
    algorithms = [fedlin.fedavg(), fedlin.fedprox(0.1), fedlin.fedavg(), fedlin.fedprox(0.9)]
    results = simulate_many(algorithms, PROBLEM, PLAN, 15, x0=X0)
    assert len(set(shapes)) == 2
    assert [r.algorithm for r in results] == ["fedavg", "fedprox", "fedavg", "fedprox"]
    np.testing.assert_array_equal(results[0].iterates, results[2].iterates)
    assert not np.allclose(results[1].x, results[3].x)
    assert_same(results[3], run(fedlin.fedprox(0.9), rounds=15))


def test_weights_and_an_array_of_seeds_reach_every_member() -> None:
    results = simulate_many(fedlin.fedlin(), PROBLEM, PLAN, 15, seeds=np.arange(2), weights=[1, 2, 3, 4], x0=X0)
    assert [result.seed for result in results] == [0, 1]
    for result in results:
        assert_same(result, run(rounds=15, weights=[1, 2, 3, 4], seed=result.seed))


def test_one_member_is_a_single_run() -> None:
    (only,) = simulate_many(fedlin.fedlin(), PROBLEM, PLAN, 40, x0=X0)
    assert_prefix(only, run())


# An algorithm of the user's own.


class Heavy(NamedTuple):
    x: jax.Array
    v: jax.Array


def heavy_fedavg(beta: float) -> Algorithm[Heavy, None]:
    """FedAvg whose server keeps a momentum."""

    def move(state: None, x: jax.Array, local: fedlin.Local) -> tuple[None, jax.Array]:
        return None, local.descend(x) - x

    def push(state: Heavy, mean: jax.Array, central: fedlin.Central) -> Heavy:
        v = beta * state.v + mean
        return Heavy(state.x + v, v)

    return Algorithm(
        "heavy fedavg",
        lambda x: Heavy(x, 0 * x),
        lambda x: None,
        (Phase("model", lambda state: state.x, move, push),),
    )


def test_an_algorithm_of_the_users_own() -> None:
    mine = heavy_fedavg(0.5)
    result = run(mine, rounds=10)
    x, v = X0, np.zeros(D)
    for _ in range(10):
        moves = []
        for A, b, tau, eta in zip(PROBLEM.data.A, PROBLEM.data.b, PLAN.tau, PLAN.eta, strict=True):
            y = x
            for _ in range(tau):
                y = y - eta * (A @ y - b)
            moves.append(y - x)
        v = 0.5 * v + np.mean(moves, axis=0)
        x = x + v
    np.testing.assert_allclose(result.x, x, rtol=1e-11)
    assert result.algorithm == "heavy fedavg"
    np.testing.assert_array_equal(result.bytes_up, M * 8 * D * np.arange(11))
    np.testing.assert_array_equal(result.gradients, sum(TAU) * np.arange(11))
    with compilations() as seen:
        run(mine, rounds=20, problem=quadratic(3), seed=2)
    assert seen == []


# Checkpoints.


def long_run(rounds: int = 60, **rest: Any) -> Result:
    """A run with memory at both ends, noise and absent clients: all that must survive a restart."""
    algorithm = fedlin.fedlin(uplink=fedlin.error_feedback(fedlin.rand_k(1)))
    noisy = problems.noisy(PROBLEM, 1e-4)
    return simulate(algorithm, noisy, PLAN, rounds, x0=X0, seed=11, participation=0.75, **rest)


def main(path: str, kill_at: int) -> None:
    """What the child process does: run, and be killed in the middle."""

    def kill(t: int, measures: dict[str, float]) -> None:
        if t == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    long_run(checkpoint=Checkpoint(path, every=10), callbacks=[kill])


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    folders = [str(Path(file).parent) for file in (__file__, compilation.__file__)]
    code = f"import sys; sys.path[:0] = {folders}; import test_simulate; test_simulate.main({str(path)!r}, 37)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["run.ckpt"]
    rounds: list[int] = []
    resumed = long_run(checkpoint=Checkpoint(path, every=10), callbacks=[lambda t, _: rounds.append(t)])
    assert rounds == list(range(31, 61))
    assert resumed.status == "done"
    assert_prefix(resumed, long_run())
    assert resumed.rounds == 60
    assert np.all(np.diff(resumed.seconds) > 0)


def test_a_finished_run_is_read_back_whole(tmp_path: Path) -> None:
    whole = run(checkpoint=tmp_path / "run.ckpt")
    rounds: list[int] = []
    again = run(checkpoint=tmp_path / "run.ckpt", callbacks=[lambda t, _: rounds.append(t)])
    assert rounds == []
    assert again.status == "done"
    assert_prefix(again, whole)
    longer = run(rounds=60, checkpoint=tmp_path / "run.ckpt")
    assert_prefix(longer, run(rounds=60))
    assert longer.rounds == 60


def test_an_interrupted_run_is_saved_at_once(tmp_path: Path) -> None:
    place = Checkpoint(tmp_path / "run.ckpt", every=1000)
    done = run(rounds=5000, checkpoint=place, callbacks=[interrupt_at(3)])
    assert done.status == "interrupted"
    rounds: list[int] = []
    run(rounds=done.rounds + 5, checkpoint=place, callbacks=[lambda t, _: rounds.append(t)])
    assert rounds == list(range(done.rounds + 1, done.rounds + 6))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The checkpoint of a run of ten rounds of SCAFFOLD."""
    path = tmp_path / "run.ckpt"
    run(fedlin.scaffold(), rounds=10, checkpoint=path)
    return path


def reread(path: Path, **changed: Any) -> Result:
    return run(**{"algorithm": fedlin.scaffold(), "rounds": 20, "checkpoint": path, **changed})


def test_a_truncated_checkpoint_is_refused(saved: Path) -> None:
    content = saved.read_bytes()
    for length in (len(content) - 1, len(content) // 2, 30):
        saved.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match="truncated or damaged"):
            reread(saved)


def test_a_checkpoint_with_a_flipped_bit_is_refused(saved: Path) -> None:
    content = saved.read_bytes()
    for place in (25, 60, len(content) // 2, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 4
        saved.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="damaged"):
            reread(saved)


def test_a_file_that_is_no_checkpoint_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    for content in (b"", b"my notes", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="not a checkpoint"):
            reread(path)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 1}, "seed"),
        ({"plan": Plan(TAU, 1e-3)}, "plan"),
        ({"algorithm": fedlin.fedavg()}, "algorithm"),
        ({"algorithm": fedlin.scaffold(option=1)}, "algorithm"),
        ({"algorithm": fedlin.scaffold(server_step=0.5)}, "algorithm"),
        ({"problem": quadratic(1)}, "problem"),
        ({"problem": problems.noisy(PROBLEM, 0.1)}, "problem"),
        ({"weights": [1, 2, 3, 4]}, "problem"),
        ({"participation": 0.5}, "participation"),
        ({"layout": "client"}, "layout"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_a_checkpoint_of_another_run_is_refused(saved: Path, changed: dict[str, Any], named: str) -> None:
    before = saved.read_bytes()
    with pytest.raises(CheckpointError, match=f"another run, one with another .*{named}"):
        reread(saved, **changed)
    assert saved.read_bytes() == before


def test_a_checkpoint_from_another_start_is_refused(saved: Path) -> None:
    with pytest.raises(CheckpointError, match="starting point"):
        simulate(fedlin.scaffold(), PROBLEM, PLAN, 20, x0=-X0, checkpoint=saved)


def test_a_checkpoint_of_other_minibatches_is_refused(tmp_path: Path) -> None:
    rows = problems.least_squares(M, D, 6)
    path = tmp_path / "run.ckpt"
    simulate(fedlin.fedavg(), problems.minibatch(rows, 2), PLAN, 5, checkpoint=path)
    with pytest.raises(CheckpointError, match="problem"):
        simulate(fedlin.fedavg(), problems.minibatch(rows, 3), PLAN, 10, checkpoint=path)


def test_a_checkpoint_beyond_the_rounds_asked_for_is_refused(saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"round 10, beyond rounds = 9"):
        reread(saved, rounds=9)


def test_iterates_that_were_not_kept_cannot_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    run(rounds=10, checkpoint=path, iterates=False)
    with pytest.raises(CheckpointError, match="iterates=False"):
        run(rounds=20, checkpoint=path)
    resumed = run(rounds=20, checkpoint=path, iterates=False)
    np.testing.assert_array_equal(resumed.gap, run(rounds=20).gap)


def test_a_checkpoint_of_another_loss_is_refused(tmp_path: Path) -> None:
    """The same data under another function is another problem, though nothing in it has another shape."""

    def near(x: Any, batch: Any) -> Any:
        return jnp.mean((x[None] - batch) ** 2)

    def far(x: Any, batch: Any) -> Any:
        return jnp.mean((x[None] + batch) ** 2)

    data = np.random.default_rng(0).standard_normal((4, 6, D))
    path = tmp_path / "run.ckpt"
    for loss, refused in ((near, False), (near, False), (far, True)):
        problem = problems.from_loss(loss, np.zeros(D), data)
        if refused:
            with pytest.raises(CheckpointError, match="another problem"):
                simulate(fedlin.fedavg(), problem, Plan(2, 0.1), 4, checkpoint=path)
        else:
            simulate(fedlin.fedavg(), problem, Plan(2, 0.1), 4, checkpoint=path)


def test_a_place_that_cannot_be_written_is_refused_before_any_round(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    calls: list[int] = []
    for path in (tmp_path / "none" / "run.ckpt", tmp_path / "file" / "run.ckpt", tmp_path):
        with pytest.raises(CheckpointError, match="cannot be written"):
            run(checkpoint=path, callbacks=[lambda t, _: calls.append(t)])
    assert calls == []


def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The superuser may write anywhere, so the answer of the system is stood in for.
    monkeypatch.setattr("fedlin.engines.checkpoint.os.access", lambda path, mode: False)
    with pytest.raises(CheckpointError, match="cannot be written"):
        run(checkpoint=tmp_path / "run.ckpt")


def test_a_checkpoint_is_replaced_whole_or_not_at_all(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("fedlin.engines.checkpoint.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        reread(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]
