"""All clients in one process: the rounds of one run in one compiled program."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import positive_integer
from fedlin.core import Algorithm
from fedlin.devices import Devices, choose_mesh, make_mesh
from fedlin.engines import checkpoint as saved
from fedlin.engines.checkpoint import Checkpoint
from fedlin.engines.interrupt import Interrupt
from fedlin.engines.simulation.chunked import Chunked
from fedlin.engines.simulation.progress_bar import bar
from fedlin.engines.simulation.records import NAMES, RunRecords
from fedlin.engines.simulation.resident import Resident
from fedlin.engines.simulation.run import Participation, Run, prepare_run
from fedlin.engines.simulation.stop import Stop
from fedlin.errors import ArgumentError
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from fedlin.result import Result, Status

Callback = Callable[[int, dict[str, float]], object]


def simulate(
    algorithm: Algorithm[Any, Any],
    problem: Problem,
    plan: Plan,
    rounds: int,
    *,
    seed: int = 0,
    x0: ArrayLike | None = None,
    participation: Participation = 1.0,
    weights: ArrayLike | None = None,
    stop: Stop | None = None,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
    layout: str = "auto",
    checkpoint: str | PathLike[str] | Checkpoint | None = None,
    iterates: bool | None = None,
    devices: Devices = None,
    measure_every: int | None = None,
    chunk: int | None = None,
) -> Result:
    """Run `rounds` rounds and measure the model after each.

    `participation` is the share of clients drawn in each round, or an array (rounds, clients) that says who
    answers. `weights` makes f = Σ w_i f_i. A callback gets the round and its measures; if it returns True the
    run ends there. `checkpoint` saves as the run goes, and goes on from what was saved. `devices`, how many or a
    list of JAX devices, share the clients equally; left open, a CPU's cores do where that pays. `seconds` in the
    result do not count compilation.

    To measure is to ask every client. With `measure_every=k` it happens after every k rounds and after the last; the
    rest of the rounds have NaN, and a `stop` looks at the measured ones only. By default k is 1, unless a round draws
    one client in a hundred or fewer of a problem that needs asking: then k is clients / drawn, rounded up.

    With `chunk=10_000` the clients' data and states stay on the host, where NumPy's memory-mapped arrays may hold them,
    and so many clients at a time visit the device: for what exceeds its memory. The result is the same to rounding.
    Such a run does not search for x*: gap and distance are there if `problem.minimizer` was asked for before.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=4, dim=5, samples=20)
    >>> plan = fedlin.theory.strongly_convex(problem, tau=[1, 2, 3, 4])
    >>> result = fedlin.simulate(fedlin.fedlin(), problem, plan, rounds=2000, stop=fedlin.Stop(gap=1e-12))
    >>> result.status, bool(result.gap[-1] <= 1e-12)
    ('stopped', True)
    """
    rounds = positive_integer("rounds", rounds)
    run = prepare_run(
        algorithm,
        problem,
        plan,
        rounds,
        seed=seed,
        x0=x0,
        participation=participation,
        weights=weights,
        stop=stop,
        measure_every=measure_every,
        search=chunk is None,
    )
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ArgumentError(f"callbacks = {callbacks!r} is not allowed: give a list of functions (round, measures).")
    if chunk is not None and positive_integer("chunk", chunk) and devices is not None:
        raise ArgumentError(f"chunk = {chunk} and devices = {devices!r}: chunks go to one device, so leave one out.")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    if checkpoint is not None:
        saved.check_folder(checkpoint.path)
    with precision(run.problem.dtype):
        batch = _laid_out(run, layout, iterates, devices, chunk, followed=bool(callbacks))
        log = batch.logs[0]
        identity = run.identity(batch.layout) if checkpoint is not None else {}
        if checkpoint is not None:
            batch.resume(saved.read(checkpoint.path, identity))
        status: Status = "done"
        with Interrupt() as interrupt, bar(progress, rounds, run.algorithm.name) as shown:
            while batch.done < rounds and batch.running:
                until = rounds if checkpoint is None else _next_multiple(batch.done, checkpoint.every, rounds)
                before = batch.done
                records = batch.advance(until - before)
                asked = _call(callbacks, log, before)
                if asked is not None:
                    log.cut(asked, records.x[asked - before - 1])
                    return batch.result(0, "stopped")
                if checkpoint is not None and batch.running and (batch.done == until or interrupt.asked):
                    saved.write(checkpoint.path, identity, batch.arrays())
                known = np.isfinite(log.seen.gap)
                shown.update(batch.done, f"gap {log.seen.gap:.2e}" if known else f"gradient {log.seen.grad_norm:.2e}")
                if interrupt.asked and batch.done < rounds and batch.running:
                    status = "interrupted"
                    break
    return batch.result(0, status if batch.running else NAMES[int(batch.status[0])])


def _laid_out(
    run: Run, layout: str, iterates: bool | None, devices: Devices, chunk: int | None, followed: bool
) -> Resident | Chunked:
    """The run with its clients in memory, shared out over devices where asked to or where it pays, or in chunks."""
    if chunk is not None:
        return Chunked(run, layout, iterates, chunk)
    problem, mesh = run.problem, None
    if devices is not None:
        mesh = make_mesh(devices, problem.clients)
    elif run.cohort is None and not problem.objective.outside:
        mesh = choose_mesh(problem.data, problem.clients, run.passes)
    return Resident([run], layout, iterates, mesh, followed)


def _call(callbacks: Sequence[Callback], log: RunRecords, before: int) -> int | None:
    """Call back for every round since `before`; the round a callback asked to end at, if any."""
    if not callbacks or log.rounds == before:
        return None
    names = ("loss", "grad_norm", "gap", "distance", "gradients", "bytes_up", "bytes_down", "seconds")
    rows = {name: log.columns[name][-1] for name in names}
    for offset in range(log.rounds - before):
        measures = {name: column[offset].item() for name, column in rows.items()}
        asked = [callback(before + offset + 1, measures) for callback in callbacks]
        if any(answer is True for answer in asked):
            return before + offset + 1
    return None


def _next_multiple(done: int, every: int, rounds: int) -> int:
    return min(rounds, (done // every + 1) * every)
