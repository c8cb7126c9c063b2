"""The worst that given rounds of a method can do, over all functions of a class: exact, and proved.

The largest ratio of what is measured after the rounds to what was measured before is a semidefinite program in the Gram
matrices of the vectors that the method computes (Drori and Teboulle, Mathematical Programming, 2014; Taylor, Hendrickx
and Glineur, 2017). Its dual gives multipliers of the inequalities that describe the class; their weighted sum proves
the ratio, and that proof is checked in exact arithmetic.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import finite, nonnegative, one_of, positive_integer
from fedlin.core import Method
from fedlin.errors import ArgumentError, PlanError
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from fedlin.theory.exact.certificate import Certificate, certify, verified
from fedlin.theory.exact.functions import Conditions, FunctionClass, PolyakLojasiewicz, Quadratics
from fedlin.theory.exact.memories import ignores_linear_terms, remembers
from fedlin.theory.exact.semidefinite import SemidefiniteProgram, Solution, SolverError, UnboundedError
from fedlin.theory.exact.symbols import Array, GramForm, SymbolicVector, exact, squared
from fedlin.theory.exact.trace import Group, Trace, play_round, start
from fedlin.theory.exact.worst_function import Embedding, client_data, piecewise_quadratic, quadratic_functions

MEASURES = ("distance", "gap", "gradient")
MOST_POINTS = 42  # of one client; beyond them a program takes minutes
_SLACKS = (1e-7, 1e-6, 1e-5, 5e-5, 9e-5)  # how much more than the solver's factor is proved, as a part of it


@dataclass(frozen=True)
class WorstFunctions:
    """Functions on which a method does as badly as it can, ready to be run.

    `plan` and `x0` belong to `problem`, whose clients stand for those of the analysis.
    """

    problem: Problem
    plan: Plan
    x0: Array


class WorstCase:
    """The largest ratio of a measure after some rounds to a measure before them, over a class of functions."""

    def __init__(
        self, trace: Trace, functions: FunctionClass, before: GramForm, after: GramForm, known: Conditions
    ) -> None:
        self.functions = functions
        self._trace, self._before, self._after, self._known = trace, before, after, known

    def __repr__(self) -> str:
        return f"WorstCase(solved={self.solved:.6g}, {self.functions!r})"

    @property
    def solved(self) -> float:
        """The ratio as the solver found it, right to its tolerance but not proved."""
        return float(self._solution.numbers[0])

    @property
    def factor(self) -> float:
        """The ratio as proved: an upper bound, checked in exact arithmetic."""
        return self._proof[0]

    @property
    def certificate(self) -> Certificate:
        """The multipliers that prove `factor`."""
        return self._proof[1]

    def prove(self, factor: float, multipliers: Sequence[float]) -> Certificate:
        """Check in exact arithmetic that these multipliers prove a factor; needs no solver.

        Args:
            factor: the factor.
            multipliers: `certificate.rounded` of an earlier run.

        Returns:
            The certificate; an error is raised where they prove nothing.
        """
        return verified(self._program(exact(factor)), multipliers)

    @cached_property
    def worst_functions(self) -> WorstFunctions:
        """Functions of the class that attain the ratio, up to rounding."""
        if self._trace.space.at_most_zero or isinstance(self.functions, PolyakLojasiewicz):
            raise ArgumentError(
                "worst functions are built for methods without compressors, on smooth functions or quadratics."
            )
        solution = self._solution
        embedding = Embedding(self._trace.space, solution.grams[0])
        data = client_data(self._trace, embedding, solution.values[0])
        build = quadratic_functions if isinstance(self.functions, Quadratics) else piecewise_quadratic
        problem = build(data, self.functions.smoothness, self.functions.strong_convexity)
        groups = [self._trace.groups[each.group] for each in data]
        weights = [float(g.weight) / len(embedding.signs(each.group)) for g, each in zip(groups, data, strict=True)]
        if np.ptp(weights) > 0:
            problem = problem.weighted(weights)
        plan = Plan([group.tau for group in groups], [float(group.eta) for group in groups])
        return WorstFunctions(problem, plan, embedding.array(self._trace.x))

    def _program(self, factor: Fraction | None) -> SemidefiniteProgram:
        """The dual: factor · before - after + Σ multiplier · inequality is nonnegative."""
        program = SemidefiniteProgram()
        sought = [(program.unknown(cost=1.0), self._before)] if factor is None else []
        before = GramForm() if factor is None else factor * self._before
        program.require(self._trace.space, before - self._after, sought + self._known.multipliers(program))
        return program

    @cached_property
    def _solution(self) -> Solution:
        try:
            return self._program(None).solve()
        except UnboundedError as cause:
            raise UnboundedError(
                "no factor holds for all functions of the class. A method that leaves x* where clients differ, as "
                "FedAvg does, has one only with shared_minimizer=True or some dissimilarity; one that remembers more "
                "than the model may need exact.lyapunov."
            ) from cause

    @cached_property
    def _proof(self) -> tuple[float, Certificate]:
        failure: SolverError | None = None
        for slack in _SLACKS:
            claimed = self.solved * (1 + slack) + slack / 1000
            try:
                return claimed, certify(self._program(exact(claimed)))
            except SolverError as cause:
                failure = cause
        raise SolverError(f"the factor {self.solved:.6g} could not be proved: {failure}") from failure


def worst_case(
    algorithm: Method,
    plan: Plan,
    functions: FunctionClass,
    *,
    measure: str = "distance",
    before: str | None = None,
    rounds: int = 1,
    model: str = "last",
    weights: ArrayLike | None = None,
    shared_minimizer: bool = False,
    dissimilarity: float = 0.0,
) -> WorstCase:
    """The largest ratio of a measure after some rounds to a measure before them, over all functions of a class.

    The rounds are played by the method's own phases. A method that remembers nothing but the model is taken in the
    middle of a run, so that the factor of one round is its rate; one that remembers more is taken from its start.

    Args:
        algorithm: the method; compressors in it are given as `contraction(delta)`.
        plan: τ_i and η_i. Two numbers mean any number of equal clients from two upwards, arrays one client each.
        functions: `Smooth`, `Quadratics`, `Dissimilar` or `PolyakLojasiewicz`.
        measure: what is bounded: "distance" ‖x - x*‖², "gap" f(x) - f*, or "gradient" ‖∇f(x)‖².
        before: what it is compared with at the start; the same measure unless given.
        rounds: how many rounds.
        model: "last", or "mean" for the mean of the models before each round.
        weights: the clients' weights in f, equal unless given.
        shared_minimizer: whether x* minimises every f_i.
        dissimilarity: s of s Σ w_i ‖∇f_i(x*)‖²/L², which is added to what is measured before.

    Returns:
        The worst case, with its `factor`, its `certificate` and the `worst_functions`.

    >>> import fedlin
    >>> from fedlin.theory import exact
    >>> case = exact.worst_case(fedlin.gradient_descent(), fedlin.Plan(1, 1.0), exact.Smooth(1.0, 0.1))
    >>> round(case.factor, 5)  # (1 - ημ)²
    0.81
    """
    one_of("measure", measure, MEASURES)
    one_of("before", before or measure, MEASURES)
    one_of("model", model, ("last", "mean"))
    positive_integer("rounds", rounds)
    extra = exact(nonnegative("dissimilarity", dissimilarity))
    groups = group_clients(plan, weights)
    algorithm = with_constants(algorithm, functions)
    with analysable(algorithm):
        memory = remembers(algorithm)
        # Where a method ignores linear terms of the f_i, these may be such that x* minimises each of them.
        shared = shared_minimizer or (not memory and not extra and ignores_linear_terms(algorithm))
        trace = Trace(groups, max(functions.curvature[1], Fraction(0)), shared, functions.smoothness)
        states = start(trace, algorithm)
        models = [trace.x]
        for number in range(rounds):
            states = play_round(trace, algorithm.phases_in(number == 0 and memory), states)
            models.append(states.server.x)
    mean = trace.space.combine(*((Fraction(1, rounds), x) for x in models[:-1]))
    after = _measured(trace, measure, models[-1] if model == "last" else mean)
    first = _measured(trace, before or measure, trace.x) + extra / exact(functions.smoothness) ** 2 * trace.at_star()
    _check_size(trace)
    return WorstCase(trace, functions, first, after, functions.conditions(trace, models))


def group_clients(plan: Plan, weights: ArrayLike | None = None) -> list[Group]:
    """The plan's clients, those of equal τ_i, η_i and weight together."""
    if plan.rounds is not None:
        raise PlanError("the plan changes every round: give one whose numbers of steps and step sizes stay the same.")
    if plan.tau.ndim == 0 and plan.eta.ndim == 0:
        if weights is not None:
            raise ArgumentError(
                "weights were given with a plan of two numbers: give tau or eta as an array (clients,)."
            )
        return [Group(int(plan.tau), exact(float(plan.eta)), Fraction(1), 2)]
    clients = max(plan.tau.size, plan.eta.size)
    tau, eta = plan.rows(clients, 1)
    share = np.ones(clients) if weights is None else finite("weights", weights, ArgumentError)
    if share.shape != (clients,) or np.any(share <= 0):
        raise ArgumentError(f"weights = {weights!r} is not allowed: give {clients} numbers above 0.")
    total = sum(exact(float(weight)) for weight in share)
    counts: dict[tuple[int, Fraction, Fraction], int] = {}
    for steps, size, weight in zip(tau, eta, share, strict=True):
        kind = (int(steps), exact(float(size)), exact(float(weight)) / total)
        counts[kind] = counts.get(kind, 0) + 1
    return [Group(steps, size, count * weight, count) for (steps, size, weight), count in counts.items()]


def with_constants(algorithm: Method, functions: FunctionClass) -> Method:
    """The method with L and μ of the class where it would take them from a problem."""
    if algorithm.recipe is None or all(value is not None for _, value in algorithm.recipe.numbers):
        return algorithm
    numbers = {
        name: getattr(functions, name.rpartition(".")[2]) if value is None else value
        for name, value in algorithm.recipe.numbers
    }
    return algorithm.recipe.with_numbers(numbers)


@contextmanager
def analysable(algorithm: Method) -> Iterator[None]:
    """Turns what goes wrong when a method meets symbolic vectors into an error that says why."""
    try:
        with precision(np.dtype(float)):
            yield
    except (AttributeError, IndexError, TypeError) as cause:
        raise ArgumentError(
            f"{algorithm.name} has no exact answer here: its rounds do more than add and scale vectors ({cause}). "
            "Give compressors as contraction(delta); methods that draw at random are not analysed."
        ) from cause


def _measured(trace: Trace, measure: str, x: SymbolicVector) -> GramForm:
    if measure == "distance":
        return squared(x)
    return trace.gap(x) if measure == "gap" else squared(trace.mean_gradient(x))


def _check_size(trace: Trace) -> None:
    points = max(len(each) for each in trace.points)
    if points > MOST_POINTS:
        raise ArgumentError(
            f"these rounds ask a client for gradients at {points - 1} points, and at most {MOST_POINTS - 1} are "
            "analysed: take fewer rounds or local steps (theory.certified has steps for τ up to 100)."
        )
