"""Runs in chunks of clients: the run in memory to rounding, on a device that holds two chunks of it."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import fedlin
from fedlin import Plan, Result, Stop, problems, simulate
from fedlin.engines.simulation import chunked
from fedlin.errors import CheckpointError

M, N, D = 23, 6, 4  # 23 is prime, so that every chunk but the whole leaves a remainder
ROUNDS = 8
DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((M, N, D))
Y = np.sign(DRAW.standard_normal((M, N)))
TAU = DRAW.integers(1, 6, M)
CHANGING = Plan(DRAW.integers(1, 6, (ROUNDS, M)), DRAW.uniform(0.05, 0.2, (ROUNDS, M)))
PRESENT = DRAW.random((ROUNDS, M)) < 0.6
LOGISTIC = problems.logistic(X, Y, l2=0.1)
LOGISTIC.minimizer  # noqa: B018 - known from here on, so that runs in chunks have a gap too
SQUARES = problems.regression(X, Y, reduction="mean", l2=0.1)
CUSTOM = problems.from_loss(lambda w, rows: jnp.mean((rows @ w - 1) ** 2), np.zeros(D), X)
NOISY = problems.minibatch(LOGISTIC, 3)

RUNS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "everyone": (fedlin.fedlin(uplink=fedlin.top_k(2), downlink=fedlin.top_k(3)), LOGISTIC, {}),
    "a cohort": (fedlin.scaffold(), LOGISTIC, {"participation": 0.2}),
    "a larger cohort, weights": (fedlin.fedlin(), SQUARES, {"participation": 0.7, "weights": np.arange(1, M + 1)}),
    "a schedule, seldom measured": (
        fedlin.ef21(fedlin.top_k(1)),
        CUSTOM,
        {"participation": PRESENT, "measure_every": 3},
    ),
    "mini-batches, a changing plan": (fedlin.fedavg(), NOISY, {"plan": CHANGING, "participation": 0.5}),
}


def play(name: str, **rest: Any) -> Result:
    algorithm, problem, options = RUNS[name]
    plan = options.get("plan", Plan(TAU, 0.1))
    given = {key: value for key, value in options.items() if key != "plan"}
    return simulate(algorithm, problem, plan, ROUNDS, **{"seed": 5, **given, **rest})


def assert_same(found: Result, expected: Result) -> None:
    assert found.status == expected.status
    for name, column in expected.curves().items():
        if name != "seconds":
            np.testing.assert_allclose(found.curves()[name], column, rtol=1e-10, atol=1e-13, err_msg=name)
    np.testing.assert_allclose(found.iterates, expected.iterates, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_in_chunks_is_the_run_in_memory(name: str) -> None:
    whole = play(name)
    # In one chunk, a cohort's states that the host lacks yet are those of whoever took part in the round before too.
    for chunk in (4, 100) if name in ("everyone", "a cohort") else (4,):
        assert_same(play(name, chunk=chunk), whole)


def test_it_stops_and_diverges_alike() -> None:
    near = {"stop": Stop(gap=0.01)}
    assert_same(play("everyone", chunk=5, **near), play("everyone", **near))
    assert play("everyone", chunk=5, **near).status == "stopped"
    wild = [simulate(fedlin.fedavg(), SQUARES, Plan(9, 1e4), 30, chunk=chunk) for chunk in (None, 5)]
    assert [run.status for run in wild] == ["diverged", "diverged"]
    assert wild[0].diverged_at == wild[1].diverged_at


def files(folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    for name, array in (("X", X), ("y", Y)):
        np.save(folder / f"{name}.npy", array)
    found = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "y"))
    return next(found), next(found)


def is_mapped(array: Any) -> bool:
    return isinstance(array, np.memmap) or (array is not None and is_mapped(getattr(array, "base", None)))


def test_mapped_files_are_read_where_they_lie(tmp_path: Path) -> None:
    features, labels = files(tmp_path)
    mapped = problems.logistic(features, labels, l2=0.1)
    custom = problems.from_loss(lambda w, rows: jnp.mean((rows @ w) ** 2), np.zeros(D), features)
    assert all(map(is_mapped, (mapped.data.X, mapped.data.y, custom.data)))
    run = simulate(fedlin.fedlin(), mapped, Plan(TAU, 0.1), ROUNDS, chunk=4)
    assert_same(run, simulate(fedlin.fedlin(), problems.logistic(X, Y, l2=0.1), Plan(TAU, 0.1), ROUNDS, chunk=M))
    with pytest.raises(fedlin.FedLinError, match="minimiser"):
        run.gap  # noqa: B018 - nobody has searched for it


class Watched(np.ndarray[Any, Any]):
    """An array that notes which clients were asked for."""

    asked: set[int]

    def __getitem__(self, key: Any) -> Any:
        self.asked.update(np.arange(len(self))[key].ravel().tolist())
        return np.asarray(self)[key]


def test_a_cohort_reads_only_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problems.logistic(X, Y, l2=0.1)
    watched = np.array(X).view(Watched)
    watched.asked = set()
    problem.data = problem.data._replace(X=watched)
    cohorts = []
    who = chunked.Chunked._who

    def noted(self: chunked.Chunked, number: int) -> Any:
        watched.asked.clear()
        cohorts.append(who(self, number).tolist())
        return who(self, number)

    seen: list[set[int]] = []
    monkeypatch.setattr(chunked.Chunked, "_who", noted)
    simulate(
        fedlin.fedlin(),
        problem,
        Plan(TAU, 0.1),
        ROUNDS,
        participation=0.2,
        measure_every=100,
        chunk=3,
        callbacks=[lambda t, _: seen.append(set(watched.asked))],
    )
    assert seen[:-1] == [set(cohort) for cohort in cohorts[:-1]]
    assert seen[-1] == set(range(M))  # the last round is measured


@pytest.mark.parametrize("chunk", [8, 32])
def test_the_device_holds_two_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, width = 256, 64
    data = np.random.default_rng(0).standard_normal((clients, 8, width))
    problem = problems.from_loss(lambda w, rows: jnp.mean((rows @ w - 1) ** 2), np.zeros(width), data)
    before = {id(array) for array in jax.live_arrays()}  # type: ignore[no-untyped-call]
    most, load = [0], chunked.Chunked._load

    def looked(self: chunked.Chunked, *asked: Any) -> Any:
        loaded = load(self, *asked)
        live = [a for a in jax.live_arrays() if id(a) not in before]  # type: ignore[no-untyped-call]
        most[0] = max(most[0], sum(array.nbytes for array in live))
        return loaded

    monkeypatch.setattr(chunked.Chunked, "_load", looked)
    run = simulate(fedlin.scaffold(), problem, Plan(2, 0.01), 2, chunk=chunk)
    rows = data[:chunk].nbytes
    assert 2 * rows <= most[0] < 3 * rows < data.nbytes
    assert run.loss[-1] < run.loss[0]


def test_a_run_in_chunks_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    algorithm, problem, options = RUNS["a cohort"]
    half = simulate(algorithm, problem, Plan(TAU, 0.1), 3, seed=5, chunk=100, checkpoint=path, **options)
    assert half.rounds == 3
    resumed = play("a cohort", chunk=100, checkpoint=path)
    np.testing.assert_array_equal(resumed.iterates, play("a cohort", chunk=100).iterates)
    with pytest.raises(CheckpointError, match="layout"):
        play("a cohort", checkpoint=path)
