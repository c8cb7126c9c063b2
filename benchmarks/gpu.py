"""The figures of a GPU, each with what bounds it: `python -m benchmarks.gpu [FILE]` writes them as JSON too."""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

import fedlin
from benchmarks import batches, recording
from benchmarks.workloads import Workload, crowd, numpy_round, w1, w2
from fedlin.precision import precision
from fedlin.problems.logistic import CONVEX, Logistic
from fedlin.problems.objective import Descent, Objective, descend_by_gradients
from fedlin.problems.rows import Sheet

REPEATS = 5


def median_seconds(play: Callable[[], Any]) -> float:
    """The median time of a call, after one that compiles."""
    times = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        jax.block_until_ready(play())  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - began)
    return float(np.median(times[1:]))


def ceilings() -> dict[str, float]:
    """What the device gives at best: bytes a second of a copy, and float32 operations a second of a product."""
    array = jnp.ones(2**30, jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    bandwidth = 2 * array.nbytes / median_seconds(lambda: copy(array))
    side = 8192
    factor = jax.random.normal(jax.random.key(0), (side, side), jnp.float32)
    product = jax.jit(partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST))
    return {"copy bytes/s": bandwidth, "float32 flop/s": 2 * side**3 / median_seconds(lambda: product(factor, factor))}


def local_work(clients: int, samples: int, features: int, dtype: Any) -> tuple[Sheet, Descent]:
    """Logistic clients made on the device, τ_i uniform on {2..100}."""
    keys = jax.random.split(jax.random.key(0), 4)
    X = jax.random.normal(keys[0], (clients, samples, features), dtype)
    y = jnp.where(jax.random.bernoulli(keys[1], shape=(clients, samples)), 1, -1).astype(dtype)
    ones = jnp.ones(clients, dtype)
    sheet = Sheet(X, y, jnp.full_like(y, 1 / samples), ones.astype(jnp.int32) * samples, 1e-3 * ones)
    shift = 1e-3 * jax.random.normal(keys[2], (clients, features), dtype)
    start = jnp.zeros((clients, features), dtype)
    tau = jax.random.randint(keys[3], (clients,), 2, 101)
    return sheet, Descent(start, shift, 0 * ones, start, tau, 0.1 * ones)


def by_loop(objective: Objective, data: Any, work: Descent) -> Any:
    """Every client's local work step by step."""
    return descend_by_gradients(lambda x: objective.grad(data, x), work)


def kernel(top: dict[str, float], dtype: Any, clients: int = 100_000) -> dict[str, Any]:
    """The local work of one round: the loop over gradients against the fused kernel."""
    samples, features = 100, 60
    with precision(dtype):
        data, work = local_work(clients, samples, features, dtype)
        ways = {"loop": partial(by_loop, CONVEX), "fused": CONVEX.fused}
        compiled = {name: jax.jit(jax.vmap(way)) for name, way in ways.items() if way is not None}
        seconds = {name: median_seconds(partial(way, data, work)) for name, way in compiled.items()}
        loop, fused = (np.asarray(way(data, work), np.float64) for way in compiled.values())
    tau = np.asarray(work.steps)
    traffic, operations = 2 * data.X.nbytes * int(tau.max()), 4 * samples * features * int(tau.sum())
    return {
        "figure": f"local work, {clients:,} logistic clients of {samples}×{features}, {np.dtype(dtype).name}",
        "loop seconds": seconds["loop"],
        "loop share of copy bandwidth": traffic / seconds["loop"] / top["copy bytes/s"],
        "fused seconds": seconds["fused"],
        "times faster": seconds["loop"] / seconds["fused"],
        "fused flop/s": operations / seconds["fused"],
        "difference": float(np.linalg.norm(loop - fused) / np.linalg.norm(loop)),
    }


def rounds_of(work: Workload, rounds: int, algorithm: Any = None) -> float:
    """Seconds a round of a whole run, measures and all."""

    def play() -> Any:
        return fedlin.simulate(algorithm or fedlin.fedlin(), work.problem, work.plan, rounds, iterates=False).x

    return median_seconds(play) / rounds


def difference(work: Workload, rounds: int = 3) -> float:
    """The largest difference to the NumPy loop over a few rounds, relative to the model."""
    x = work.problem.start
    for _ in range(rounds):
        x = numpy_round(work, x)
    model = fedlin.simulate(fedlin.fedlin(), work.problem, work.plan, rounds).x
    return float(np.max(np.abs(model - x)) / np.max(np.abs(x)))


def crowds(cohort: int = 1000) -> list[dict[str, Any]]:
    """Logistic clients of 20×20, ten steps: all of them every round, and a cohort drawn from the most."""

    def run(clients: int, participation: float) -> float:
        draw = np.random.default_rng(0)
        X = draw.standard_normal((clients, 20, 20), np.float32)
        y = np.where(draw.random((clients, 20)) < 0.5, np.float32(-1), np.float32(1))
        each = np.ones(clients, np.float32)
        problem = Logistic(Sheet(*cast(Any, (X, y, np.full_like(y, 1 / 20), (20 * each).astype(np.int32), each))), 0.0)
        problem.known_optimum = None  # not asked for, since solving for it takes minutes
        plan, rounds = fedlin.Plan(10, 0.01), 50 if clients > 10**5 else 1000
        runs = [
            fedlin.simulate(fedlin.fedlin(), problem, plan, rounds, participation=participation, iterates=False)
            for _ in range(REPEATS + 1)
        ]
        return float(np.median([r.seconds[-1] for r in runs[1:]])) / rounds

    most = 10**6
    rows = [{"figure": f"{m:,} clients of 20×20", "seconds a round": run(m, 1.0)} for m in (10**3, 10**4, 10**5, most)]
    drawn = {"figure": f"{cohort:,} drawn of {most:,} clients", "seconds a round": run(most, cohort / most)}
    return [*rows, drawn]


def figures() -> list[dict[str, Any]]:
    """Everything, in the order of the page on performance."""
    top = ceilings()
    measured: list[dict[str, Any]] = [{"figure": "ceilings", **top}]

    def add(row: dict[str, Any]) -> None:
        measured.append(row)
        print(row, flush=True)

    print(measured[0], flush=True)
    add(kernel(top, np.float32))
    add(kernel(top, np.float64, 20_000))
    for work, rounds in ((w1(True), 2000), (w1(False), 500), (w2(), 1000)):
        seconds = rounds_of(work, rounds)
        add({"figure": work.name, "seconds a round": seconds, "difference to NumPy": difference(work)})
    many = crowd(w1(True), 500)
    read = 3 * np.asarray(many.problem.data.A).nbytes  # A for the gradient, V for each of two products
    seconds = rounds_of(many, 300)
    share = read / seconds / top["copy bytes/s"]
    add({"figure": "W1 × 500, 10,000 clients", "seconds a round": seconds, "share of copy bandwidth": share})
    for row in crowds():
        add(row)
    add(batches.measure())
    for work, rounds in ((w1(True), 2000), (w2(), 1000)):
        add(recording.cost(work, rounds))
    return measured


def main() -> None:
    """Print, and write the file that was named."""
    print(f"JAX {jax.__version__} on {jax.devices()[0].device_kind}", flush=True)
    measured = figures()
    if len(sys.argv) > 1:
        about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "repeats": REPEATS}
        Path(sys.argv[1]).write_text(json.dumps({**about, "figures": measured}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
