"""The workloads, each with the gradient that a plain NumPy loop takes."""

import copy
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import fedlin
from benchmarks import reference
from benchmarks.reference import Array, Gradient
from fedlin.problems import Problem


@dataclass(frozen=True)
class Workload:
    """A problem, a plan, and the gradient a plain loop would take."""

    name: str
    problem: Problem
    plan: fedlin.Plan
    gradient: Gradient


def w1(closed_form: bool) -> Workload:
    """The paper's least squares: 20 clients of 500×100, τ_i uniform on {2..100}."""
    problem = fedlin.problems.least_squares(seed=0, closed_form=closed_form)
    sheet: Any = problem.rows().data
    plan = fedlin.Plan.scaled(fedlin.draw_steps(20, 2, 100, seed=0), 5e-4)
    name = "W1 closed form" if closed_form else "W1 by gradients"
    return Workload(name, problem, plan, reference.least_squares(np.asarray(sheet.X), np.asarray(sheet.y)))


def w2() -> Workload:
    """Logistic regression: 100 clients of 100×60, ten steps each."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((100, 100, 60))
    y = np.where(draw.random((100, 100)) < 0.5, -1.0, 1.0)
    problem = fedlin.problems.logistic(X, y, l2=1e-3)
    return Workload("W2 logistic", problem, fedlin.Plan(tau=10, eta=0.1), reference.logistic(X, y, 1e-3))


def crowd(work: Workload, times: int) -> Workload:
    """Every client `times` times over, so that many clients need no long making."""
    problem, few = copy.copy(work.problem), work.problem.clients
    problem.clients = few * times
    problem.data = jax.tree.map(lambda leaf: np.tile(leaf, (times, *[1] * (leaf.ndim - 1))), problem.data)
    problem.weights = np.full(problem.clients, 1 / problem.clients)
    tau, eta = work.plan.rows(few, 1)
    plan = fedlin.Plan(np.tile(tau, times), np.tile(eta, times))
    return Workload(f"{work.name} × {times}", problem, plan, lambda i, x: work.gradient(i % few, x))


def numpy_round(work: Workload, x: Array) -> Array:
    """One FedLin round, a loop over clients and a loop over steps."""
    clients = work.problem.clients
    tau, eta = (np.broadcast_to(row, clients) for row in work.plan.rows(clients, 1))
    return next(reference.fedlin(reference.Work(work.gradient, tau, eta), x))
