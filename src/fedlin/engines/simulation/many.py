"""Many runs as one: runs that share a structure advance together in one compiled program."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.checks import positive_integer
from fedlin.core import Algorithm
from fedlin.engines.interrupt import Interrupt
from fedlin.engines.simulation.program import RUNNING, structure
from fedlin.engines.simulation.progress_bar import bar
from fedlin.engines.simulation.records import NAMES
from fedlin.engines.simulation.resident import Resident
from fedlin.engines.simulation.run import Participation, Run, prepare_run
from fedlin.engines.simulation.stop import Stop
from fedlin.errors import ArgumentError
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from fedlin.result import Result, Status


def simulate_many(
    algorithms: Algorithm[Any, Any] | Sequence[Algorithm[Any, Any]],
    problems: Problem | Sequence[Problem],
    plans: Plan | Sequence[Plan],
    rounds: int,
    *,
    seeds: int | Sequence[int] | NDArray[np.integer[Any]] = 0,
    x0: ArrayLike | None = None,
    participation: Participation = 1.0,
    weights: ArrayLike | None = None,
    stop: Stop | None = None,
    progress: bool = False,
    layout: str = "auto",
    iterates: bool | None = None,
    measure_every: int | None = None,
) -> list[Result]:
    """One Result for each run. Give one algorithm, problem, plan or seed for all, or a list with one each.

    Runs that differ in numbers only (step sizes, β, seeds, data of one shape) are one compiled program;
    those that differ in structure (another method, another k) form one program a structure.

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
        told = ", ".join(f"{n} {name}" for name, n in lengths.items())
        raise ArgumentError(f"the lists differ in length ({told}): give one for all, or one for each run.")
    total = max(lengths.values(), default=1)
    if weights is not None:  # once for each problem, so that its runs go on sharing it
        weighted = {id(p): p.weighted(weights) if isinstance(p, Problem) else p for p in lists["problems"]}
        lists["problems"] = [weighted[id(p)] for p in lists["problems"]]
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
        )
        for algorithm, problem, plan, seed in zip(*rows, strict=True)
    ]
    groups: dict[Any, list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault(_kind(run), []).append(number)
    results: dict[int, Result] = {}
    with Interrupt() as interrupt, bar(progress, rounds * len(groups), f"{total} runs") as shown:
        for position, numbers in enumerate(groups.values()):
            group = [runs[n] for n in numbers]
            with precision(group[0].problem.dtype):
                batch = Resident(group, layout, iterates)
                while batch.done < rounds and batch.running and not interrupt.asked:
                    batch.advance(rounds - batch.done)
                    shown.update(position * rounds + batch.done, "")
            ended: Status = "done" if batch.done >= rounds or not batch.running else "interrupted"
            for place, number in enumerate(numbers):
                status = int(batch.status[place])
                results[number] = batch.result(place, ended if status == RUNNING else NAMES[status])
    return [results[number] for number in range(total)]


def _listed(value: Any, kind: type) -> list[Any]:
    # Anything that is no list counts as one for all; `prepare_run` says what is wrong with it.
    listed = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | kind)
    return list(value) if listed else [value]


def _kind(run: Run) -> Any:
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
    )
