"""Runs with all clients in one process: `simulate` for one, `simulate_many` for those of equal structure together."""

import inspect
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from os import PathLike
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.aggregation import Aggregator
from fedlin.checks import positive_integer
from fedlin.columns import TRAINING, headline
from fedlin.core import Algorithm, Array, Method, Requirement, structure
from fedlin.devices import Devices, choose_mesh, make_mesh
from fedlin.engines import checkpoint as saved
from fedlin.engines.checkpoint import Checkpoint
from fedlin.engines.evaluation_rounds import plan_evaluations
from fedlin.engines.interrupt import Interrupt
from fedlin.engines.simulation.chunked import Chunked, chunk_that_fits
from fedlin.engines.simulation.evaluator import Evaluator, next_multiple
from fedlin.engines.simulation.progress_bar import bar
from fedlin.engines.simulation.records import NAMES, RunRecords
from fedlin.engines.simulation.resident import Resident
from fedlin.engines.simulation.run import Participation, Run, prepare_run
from fedlin.engines.simulation.stop import RUNNING, Stop
from fedlin.errors import ArgumentError
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.problems.metrics import Metric
from fedlin.problems.objective import Data
from fedlin.problems.problem import Problem
from fedlin.result import Result, Status

Callback = Callable[..., object]  # (round, columns), or (round, columns, model)
# What factorises matrices: on a CPU that waits for threads which all-reduces between cores hold, and a run can stop.
_FACTORISES = frozenset([Requirement.HESSIAN, Requirement.PROX])


def simulate(
    algorithm: Method,
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
    metrics: Mapping[str, Metric] | None = None,
    test: Data = None,
    every: int = 1,
    aggregate: Aggregator | None = None,
) -> Result:
    """Run an algorithm on a problem, with all clients in one process, and measure the model after every round.

    Args:
        algorithm: The method, such as `fedlin.fedlin()`.
        problem: What is minimised, f = Σ w_i f_i.
        plan: Every client's number of local steps τ_i and step size η_i.
        rounds: How many rounds to run.
        seed: A whole number below 2³² that decides every draw.
        x0: The model to start from, (d,); the problem's own start unless given.
        participation: The share of clients drawn in each round, or an array (rounds, clients) of who answers.
        weights: w_i, (clients,), scaled to sum to one; the problem's own unless given.
        stop: When to end early. It looks at the rounds that are measured, or evaluated.
        progress: Whether to show a progress bar.
        callbacks: Functions (round, columns) of a round's number and its columns by name, or (round, columns, model)
            with the model as `problem.model` gives it; one that returns True ends the run there.
        layout: "client" computes the clients one after the other, "step" all at once step by step; "auto" chooses.
        checkpoint: A file, or a `Checkpoint`, to save to as the run goes, and to go on from if it is there.
        iterates: Whether to keep every round's model; by default up to ten million numbers.
        devices: How many JAX devices, or which, share the clients equally; left open, a CPU's cores do where it pays.
        measure_every: Rounds from one measure to the next, NaN between; the last round is always measured; 0 for none.
            To measure is to ask every client. By default 1, unless a round draws one client in a hundred or fewer of
            a problem that needs asking: then clients / drawn, rounded up. Where a round draws clients or mini-batches
            and x* is not known, as with a network, nothing is measured unless a number or a stop asks for it.
        chunk: How many clients visit the device at a time, while the data and states of all stay on the host, where
            NumPy's memory-mapped arrays may hold them: for what exceeds the device's memory. The result is the same to
            rounding. Such a run does not search for x*: it has gap and distance if `problem.minimizer` was asked for.
            Left open, that is done where data and states do not fit the device.
        metrics: Functions (model, batch), each a mean over the batch's rows, by the name of their column; the model
            is what `problem.model` gives, a pytree of parameters or a torch module. The model with the highest first
            metric is kept.
        test: What metrics are taken on: arrays with a leading axis of rows, or a torch Dataset for a torch problem.
        every: Rounds from one evaluation to the next, NaN between; the start and the last round are always evaluated.
        aggregate: What the server makes of the uploads, such as `fedlin.aggregation.trimmed_mean(2)`, where some may be
            false; their mean unless given. Another needs equal weights, and all uploads at once: no chunks.

    Returns:
        The model and everything that was measured. Its seconds count neither compilation nor evaluation.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=4, dim=5, samples=20)
    >>> plan = fedlin.theory.strongly_convex(problem, tau=[1, 2, 3, 4])
    >>> result = fedlin.simulate(fedlin.fedlin(), problem, plan, rounds=2000, stop=fedlin.Stop(gap=1e-12))
    >>> result.status, bool(result.gap[-1] <= 1e-12)
    ('stopped', True)
    """
    rounds = positive_integer("rounds", rounds)
    evaluations = plan_evaluations(metrics, test, every)
    names = () if evaluations is None else evaluations.names
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
        metrics=names,
        search=chunk is None,
        aggregate=aggregate,
    )
    if chunk is not None:
        _check_chunks(run, f"chunk = {chunk}")
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise ArgumentError(f"callbacks = {callbacks!r} is not allowed: give a list of functions (round, columns).")
    if chunk is not None and positive_integer("chunk", chunk) and devices is not None:
        raise ArgumentError(f"chunk = {chunk} and devices = {devices!r}: chunks go to one device, so leave one out.")
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    if checkpoint is not None:
        saved.check_folder(checkpoint.path)
    with precision(run.problem.dtype):
        look = Evaluator(evaluations, [run]) if evaluations is not None else None
        batch = _lay_out(run, layout, iterates, devices, chunk, followed=bool(callbacks), metrics=names)
        log = batch.logs[0]
        identity = run.identity(batch.layout) if checkpoint is not None else {}
        if checkpoint is not None:
            batch.resume(saved.read(checkpoint.path, identity))
        if look is not None:
            look(batch)
        status: Status = "done"
        with Interrupt() as interrupt, bar(progress, rounds, run.algorithm.name) as progress_bar:
            while batch.done < rounds and batch.running:
                until = rounds if checkpoint is None else next_multiple(batch.done, checkpoint.every, rounds)
                before = batch.done
                records = batch.advance((until if look is None else min(until, look.next(before))) - before)
                if look is not None:
                    look(batch)
                stopping = _call(callbacks, log, before, run.problem, records.x)
                if stopping is not None:
                    log.cut(stopping, records.x[stopping - before - 1])
                    return batch.result(0, "stopped")
                if checkpoint is not None and batch.running and (batch.done == until or interrupt.asked):
                    saved.write(checkpoint.path, identity, batch.arrays())
                progress_bar.update(batch.done, headline(log.latest))
                if interrupt.asked and batch.done < rounds and batch.running:
                    status = "interrupted"
                    break
        if look is not None:
            look(batch, last=True)
    return batch.result(0, status if batch.running else NAMES[int(batch.status[0])])


def simulate_many(
    algorithms: Method | Sequence[Method],
    problems: Problem | Sequence[Problem],
    plans: Plan | Sequence[Plan],
    rounds: int,
    *,
    seeds: int | Sequence[int] | NDArray[np.integer] = 0,
    x0: ArrayLike | None = None,
    participation: Participation = 1.0,
    weights: ArrayLike | None = None,
    stop: Stop | None = None,
    progress: bool = False,
    layout: str = "auto",
    iterates: bool | None = None,
    measure_every: int | None = None,
    metrics: Mapping[str, Metric] | None = None,
    test: Data = None,
    every: int = 1,
    aggregate: Aggregator | None = None,
) -> list[Result]:
    """Run many runs, those of equal structure together in one compiled program.

    Runs that differ in numbers only (step sizes, β, seeds, data of one shape) share a program; those that differ in
    structure (another method, another k) form one program a structure.

    Args:
        algorithms: One method for all runs, or a list with one each.
        problems: One problem for all runs, or a list with one each.
        plans: One plan for all runs, or a list with one each.
        rounds: How many rounds each run has.
        seeds: One seed for all runs, or a list with one each.
        x0: The model all start from, (d,); each problem's own start unless given.
        participation: The share of clients drawn in each round, or an array (rounds, clients) of who answers.
        weights: w_i of every problem, (clients,), scaled to sum to one; its own unless given.
        stop: When a run ends early; the others go on.
        progress: Whether to show a progress bar.
        layout: "client" computes the clients one after the other, "step" all at once step by step; "auto" chooses.
        iterates: Whether to keep every round's models; by default up to ten million numbers a run.
        measure_every: Rounds from one measure to the next, as in `simulate`.
        metrics: Functions (model, batch) by the name of their column, as in `simulate`.
        test: What metrics are taken on.
        every: Rounds from one evaluation to the next.
        aggregate: What the server makes of the uploads, as in `simulate`.

    Returns:
        The result of each run, in the order of the lists.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=4, dim=5, samples=20)
    >>> plans = [fedlin.Plan.scaled(3, eta_bar) for eta_bar in (0.001, 0.01, 1.0)]
    >>> [r.status for r in fedlin.simulate_many(fedlin.fedlin(), problem, plans, rounds=200)]
    ['done', 'done', 'diverged']
    """
    rounds = positive_integer("rounds", rounds)
    lists = {
        "algorithms": _listed(algorithms, Algorithm),
        "problems": _listed(problems, Problem),
        "plans": _listed(plans, Plan),
        "seeds": _listed(seeds, int),
    }
    lengths = {name: len(items) for name, items in lists.items() if len(items) != 1}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        counts = ", ".join(f"{n} {name}" for name, n in lengths.items())
        raise ArgumentError(f"the lists differ in length ({counts}): give one for all, or one for each run.")
    total = max(lengths.values(), default=1)
    if weights is not None:  # once for each problem, so that its runs go on sharing it
        weighted = {id(p): p.weighted(weights) if isinstance(p, Problem) else p for p in lists["problems"]}
        lists["problems"] = [weighted[id(p)] for p in lists["problems"]]
    evaluations = plan_evaluations(metrics, test, every)
    names = () if evaluations is None else evaluations.names
    rows = [items * total if len(items) == 1 else items for items in lists.values()]
    runs = [
        prepare_run(
            algorithm,
            problem,
            plan,
            rounds,
            seed=seed,
            x0=x0,
            participation=participation,
            weights=None,
            stop=stop,
            measure_every=measure_every,
            metrics=names,
            aggregate=aggregate,
        )
        for algorithm, problem, plan, seed in zip(*rows, strict=True)
    ]
    groups: dict[Hashable, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(_kind(run), []).append(number)
    results: dict[int, Result] = {}
    with Interrupt() as interrupt, bar(progress, rounds * len(groups), f"{total} runs") as progress_bar:
        for position, numbers in enumerate(groups.values()):
            group = [runs[n] for n in numbers]
            with precision(group[0].problem.dtype):
                look = Evaluator(evaluations, group) if evaluations is not None else None
                batch = Resident(group, layout, iterates, metrics=names)
                if look is not None:
                    look(batch)
                while batch.done < rounds and batch.running and not interrupt.asked:
                    batch.advance((rounds if look is None else look.next(batch.done)) - batch.done)
                    if look is not None:
                        look(batch)
                    progress_bar.update(position * rounds + batch.done, "")
                if look is not None:
                    look(batch, last=True)
            ended: Status = "done" if batch.done >= rounds or not batch.running else "interrupted"
            for place, number in enumerate(numbers):
                status = int(batch.status[place])
                results[number] = batch.result(place, ended if status == RUNNING else NAMES[status])
    return [results[number] for number in range(total)]


def _lay_out(
    run: Run,
    layout: str,
    iterates: bool | None,
    devices: Devices,
    chunk: int | None,
    *,
    followed: bool,
    metrics: Collection[str],
) -> Resident | Chunked:
    """The run with its clients in memory, shared out over devices where asked to or where it pays, or in chunks."""
    problem, mesh = run.problem, None
    if chunk is None and devices is None and not problem.objective.outside:
        chunk = chunk_that_fits(run)
        if chunk is not None:
            _check_chunks(run, f"data and states do not fit the device, which would take chunks of {chunk} clients")
    if chunk is not None:
        return Chunked(run, layout, iterates, chunk, metrics)
    if devices is not None:
        mesh = make_mesh(devices, problem.clients)
    elif run.cohort is None and not problem.objective.outside and not _FACTORISES & run.algorithm.requires:
        mesh = choose_mesh(run.packed(1) or problem.data, problem.clients, run.passes)
    return Resident([run], layout, iterates, mesh, followed, metrics)


def _check_chunks(run: Run, why: str) -> None:
    """Refuse chunks, whose uploads are summed as they come, where all uploads are needed at once."""
    if not run.aggregate.is_mean:
        raise ArgumentError(
            f"{why}, and aggregate = {run.aggregate} needs all uploads at once, not their sum: use the mean, or "
            "fewer or smaller clients."
        )
    if any(phase.tamper is not None for phase in run.algorithm.phases):
        raise ArgumentError(
            f"{why}, and the attackers of {run.algorithm.name} see all uploads at once: leave chunks out."
        )


def _call(callbacks: Sequence[Callback], log: RunRecords, before: int, problem: Problem, models: Array) -> int | None:
    """Call back for every round since `before`; the round a callback asked to end at, if any."""
    if not callbacks or log.rounds == before:
        return None
    # A training loss that no gradient came with is no column of the result either.
    unknown = {TRAINING} if np.all(np.isnan(log.columns[TRAINING][-1])) else set()
    rows = {name: chunks[-1] for name, chunks in log.columns.items() if name not in unknown}
    wants_model = [_takes_three(callback) for callback in callbacks]
    for offset in range(log.rounds - before):
        arguments: list[object] = [before + offset + 1, {name: values[offset].item() for name, values in rows.items()}]
        if any(wants_model):
            arguments.append(problem.model(models[offset]))
        answers = [callback(*arguments[: 2 + wants]) for callback, wants in zip(callbacks, wants_model, strict=True)]
        if any(answer is True for answer in answers):
            return before + offset + 1
    return None


def _takes_three(callback: Callback) -> bool:
    """Whether a callback takes the model too: from its third argument without a default."""
    try:
        parameters = inspect.signature(callback).parameters.values()
    except (TypeError, ValueError):  # of some callables nothing is known
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) == 3


def _listed(value: Any, kind: type) -> list[Any]:
    # Anything that is no list counts as one for all; `prepare_run` says what is wrong with it.
    listed = (
        isinstance(value, Sequence | np.ndarray)
        and np.ndim(value[:0] if isinstance(value, Sequence) else value) > 0
        and not isinstance(value, str | kind)
    )
    return list(value) if listed else [value]


def _kind(run: Run) -> Hashable:
    """Runs of equal kind can share a program."""
    problem = run.problem
    leaves, shape = jax.tree.flatten((problem.data, problem.noise, problem.known_optimum))
    return (
        structure(run.algorithm),
        problem.objective,
        problem.sampling,
        shape,
        tuple((leaf.shape, leaf.dtype) for leaf in leaves),
        run.tau.shape,
        run.cohort,
        run.every,
        run.present is None,
        run.aggregate,
    )
