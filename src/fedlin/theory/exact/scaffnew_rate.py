"""Scaffnew's rate in expectation, the best that quadratic Lyapunov functions prove for rounds of random length.

A round ends when a coin of probability p falls. V is a quadratic form of the model and the control variates when a
round begins. W is one of the clients' models and control variates within a round, and bounds what V is expected to be
when the round ends. That E V falls by ρ a round follows from three inequalities, linear in V and W for each ρ: before
each step W is at least p V + (1 - p) W after it, ρV is at least W where all models are equal, and V ≥ ‖x - x*‖².
"""

from fractions import Fraction
from typing import NamedTuple

from fedlin.errors import PlanError
from fedlin.plan import Plan
from fedlin.theory.exact.functions import FunctionClass
from fedlin.theory.exact.rate_search import ProvedRate, StoredRate, best_rate
from fedlin.theory.exact.semidefinite import SemidefiniteProgram
from fedlin.theory.exact.symbols import SHARED, GramForm, SymbolicVector, exact, inner, squared
from fedlin.theory.exact.trace import Group, Trace


class ScaffnewStep(NamedTuple):
    """One step of all clients, and what the round's end would make of it."""

    y: SymbolicVector  # x_i after the step
    x: SymbolicVector  # their mean
    h: SymbolicVector  # h_i if the round ends here


def scaffnew_step(trace: Trace, y: SymbolicVector, h: SymbolicVector, gamma: Fraction, p: Fraction) -> ScaffnewStep:
    """y ← y - γ(∇f_i(y) - h_i); at a round's end x is the mean of y, and h_i ← h_i + (p/γ)(x - y)."""
    moved = y - gamma * (trace.gradient(0, y) - h)
    mean = trace.space.mean([moved])
    return ScaffnewStep(moved, mean, h + p / gamma * (mean - moved))


def scaffnew_rate(plan: Plan, functions: FunctionClass, stored: StoredRate | None = None) -> ProvedRate:
    """The rate of Scaffnew a round, in expectation over the rounds' lengths, for any number of clients.

    Args:
        plan: γ as its η, and 1/p as its τ, one of each for all clients.
        functions: the class of the clients' functions.
        stored: `ProvedRate.stored` of an earlier run, which is then checked, without a solver, and nothing is sought.

    Returns:
        The rate, the constant in front, and the certificate of both.
    """
    if plan.tau.size != 1 or plan.eta.size != 1:
        raise PlanError("Scaffnew takes one number of steps and one step size for all clients: give two numbers.")
    gamma, p = exact(float(plan.eta.item())), Fraction(1, int(plan.tau.item()))
    # Linear terms of the f_i only shift the h_i, so that x* may be every client's minimiser.
    mu = max(functions.curvature[1], Fraction(0))
    trace = Trace([Group(1, gamma, Fraction(1), 2)], mu, True, functions.smoothness)
    y, h = trace.space.of_group(0), trace.space.apart(0)
    step = scaffnew_step(trace, y, h, gamma, p)
    known = functions.conditions(trace, [])
    within, ahead = _within(y, h), _within(step.y, h)
    at_start, at_end, outset = _between(trace.x, h), _between(step.x, step.h), _within(trace.x, h)
    first = squared(trace.x) + 1 / exact(functions.smoothness) ** 2 * squared(h)

    def search(rate: Fraction, constant: Fraction | None) -> SemidefiniteProgram:
        program = SemidefiniteProgram()
        limit = [] if constant is not None else [(program.unknown(cost=1.0), first)]
        v, w = [program.unknown() for _ in at_start], [program.unknown() for _ in within]
        expected = [(count, old - (1 - p) * new) for count, old, new in zip(w, within, ahead, strict=True)]
        expected += [(count, -p * form) for count, form in zip(v, at_end, strict=True)]
        program.require(trace.space, GramForm(), expected + known.multipliers(program))
        whole = list(zip(v, at_start, strict=True))
        fall = [(count, rate * form) for count, form in whole]
        program.require(trace.space, GramForm(), fall + [(c, -1 * form) for c, form in zip(w, outset, strict=True)])
        program.require(trace.space, -1 * squared(trace.x), whole)
        initial = GramForm() if constant is None else constant * first
        program.require(trace.space, initial, limit + [(count, -1 * form) for count, form in whole])
        return program

    return best_rate(search, "scaffnew", stored)


def _between(x: SymbolicVector, h: SymbolicVector) -> list[GramForm]:
    """What V is a combination of; the h_i have mean zero."""
    return [squared(x), squared(h)]


def _within(y: SymbolicVector, h: SymbolicVector) -> list[GramForm]:
    """What W is a combination of."""
    apart = y.part(1)
    return [squared(y.part(SHARED)), squared(apart), inner(apart, h), squared(h)]
