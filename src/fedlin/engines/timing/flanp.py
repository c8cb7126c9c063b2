"""FLANP: begin with the fastest clients and double their number whenever their own data has nothing more to say.

A. Reisizadeh, I. Tziotis, H. Hassani, A. Mokhtari, R. Pedarsani, Straggler-Resilient Federated Learning: Leveraging the
Interplay Between Statistical Accuracy and System Heterogeneity, IEEE Journal on Selected Areas in Information Theory,
2022, Algorithm 1, with any method in place of FedGATE.
"""

import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import positive, positive_integer
from fedlin.columns import column
from fedlin.core import Algorithm, Array, Method, Requirement
from fedlin.engines.simulation.run import prepare_run
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.engines.timing.clock import Clock
from fedlin.errors import ArgumentError
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.result import Result, Status
from fedlin.theory.staged import stages


def flanp(
    algorithm: Method,
    problem: Problem,
    plan: Plan,
    clock: Clock,
    rounds: int,
    *,
    accuracy: float,
    first: int = 1,
    seed: int = 0,
    x0: ArrayLike | None = None,
    stop: Stop | None = None,
) -> Result:
    """Stages of n, 2n, 4n, ... of the fastest clients, each from the model of the last; n = `first`, then all.

    `accuracy` is V, the statistical accuracy of one client's data. A stage of n clients minimises their f_n and ends
    once ‖∇f_n(x)‖² ≤ 2μV/n. The last stage has all clients, and ends as `stop` says or with the rounds. Everything in
    the result is measured on f, with `simulated` seconds by the clock; `algorithm` starts afresh with every stage.
    `theory.flanp` has its steps, `theory.staged` the stages and how many rounds each can take.

    Args:
        algorithm: The method, which starts afresh with every stage.
        problem: The problem.
        plan: τ_i and η_i.
        clock: Who is how fast.
        rounds: The most rounds of all stages together.
        accuracy: V, the statistical accuracy of one client's data.
        first: n, the clients of the first stage.
        seed: What decides every draw.
        x0: The starting point; the problem's own unless given.
        stop: When the last stage ends; by the rounds alone unless given.

    Returns:
        The run, all of it measured on f, with `simulated` seconds by the clock.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=8, dim=5, samples=20)
    >>> plan, clock = fedlin.theory.flanp(problem, tau=3), fedlin.Clock(fedlin.draw_rates(8, 100.0))
    >>> method, end = fedlin.gradient_tracking(), fedlin.Stop(gap=1e-12)
    >>> run = fedlin.flanp(method, problem, plan, clock, 500, accuracy=1.0, stop=end)
    >>> run.status, bool(run.gap[-1] <= 1e-12)
    ('stopped', True)
    """
    rounds, accuracy = positive_integer("rounds", rounds), positive("accuracy", accuracy)
    if not isinstance(clock, Clock):
        raise ArgumentError(f"clock = {clock!r} is not allowed: give a fedlin Clock.")
    if isinstance(algorithm, Algorithm) and (algorithm.cohort or Requirement.EVERY_CLIENT in algorithm.requires):
        needs = f"rounds of {algorithm.cohort} clients" if algorithm.cohort else Requirement.EVERY_CLIENT
        raise ArgumentError(
            f"{algorithm.name} needs {needs}, and the first stages leave the slow ones out: use "
            "fedlin.gradient_tracking() or fedlin.fedlin()."
        )
    run = prepare_run(algorithm, problem, plan, rounds, seed=seed, x0=x0, participation=1.0, weights=None, stop=stop)
    counts = stages(problem.clients, first)
    clock.check(problem.clients)
    convexity, order = problem.polyak_lojasiewicz, np.argsort(clock.alone(run, rounds), kind="stable")
    played: list[Result] = []
    remaining, x = rounds, run.x0
    for count in counts:
        present = np.isin(np.arange(problem.clients), order[:count])
        everyone = count == problem.clients
        now, answering = _rest(plan, rounds - remaining), np.tile(present, (remaining, 1))
        stage = simulate(
            algorithm,
            problem,
            now,
            remaining,
            seed=(seed + len(played)) % 2**32,
            x0=x,
            weights=problem.weights * present,
            participation=answering,
            stop=stop if everyone else Stop(grad_norm=float(np.sqrt(2 * convexity * accuracy / count))),
            iterates=True,
        )
        played.append(clock.time(stage, algorithm, problem, now, participation=answering))
        remaining, x = remaining - stage.rounds, stage.x
        if not remaining or stage.status != "stopped":
            break
    # An earlier stage that reached its own end ended no run.
    status = "done" if stage.status == "stopped" and not everyone else stage.status
    return _joined(algorithm, problem, played, status, seed)


def _rest(plan: Plan, done: int) -> Plan:
    """The plan from round `done` on."""
    return Plan(*(values[done:] if values.ndim == 2 else values for values in (plan.tau, plan.eta)))


def _joined(algorithm: Method, problem: Problem, stages: list[Result], status: Status, seed: int) -> Result:
    """The stages one after the other, every model measured on the whole problem."""
    models = np.concatenate([stages[0].iterates[:1], *(stage.iterates[1:] for stage in stages)])
    measured = [problem.measure(x) for x in models]
    columns = {
        name: np.array([measures[name] for measures in measured])
        for name in measured[0]
        if problem.known_optimum is not None or not column(name).minimizer
    }
    sums = {name for name in stages[0].columns if column(name).sums}
    last, before = stages[-1], sum(stage.rounds for stage in stages[:-1])
    return Result(
        f"flanp({algorithm.name})",
        status,
        last.x,
        {**columns, **{name: _summed([stage.columns[name] for stage in stages]) for name in sums}},
        diverged_at=None if last.diverged_at is None else before + last.diverged_at,
        seed=seed,
        kept_iterates=models,
    )


def _summed(parts: list[Array]) -> Array:
    """Sums so far of every stage as sums since the first began."""
    return np.cumsum(np.concatenate([parts[0][:1], *map(np.diff, parts)]))
