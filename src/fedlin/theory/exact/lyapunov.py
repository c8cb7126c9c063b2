"""The best rate that a quadratic Lyapunov function proves, for methods that remember something between rounds.

V is a quadratic form of the model, of what the server and the clients remember, and of the gradients at the model and
at x*, plus a multiple of the gap. That V falls by the factor ρ in every round, whatever the functions and the memories,
is for each ρ a linear matrix inequality in V and in multipliers (Taylor, Van Scoy and Lessard, ICML 2018).
"""

from fractions import Fraction
from itertools import combinations_with_replacement

import jax
from numpy.typing import ArrayLike

from fedlin.core import Method
from fedlin.plan import Plan
from fedlin.theory.exact.functions import FunctionClass
from fedlin.theory.exact.memories import any_states, ignores_linear_terms, memory_places
from fedlin.theory.exact.rate_search import ProvedRate, StoredRate, best_rate
from fedlin.theory.exact.semidefinite import SemidefiniteProgram
from fedlin.theory.exact.symbols import SHARED, GramForm, exact, inner, squared
from fedlin.theory.exact.trace import Trace, TracedStates, play_round
from fedlin.theory.exact.worst_case import analysable, group_clients, with_constants


def lyapunov(
    algorithm: Method,
    plan: Plan,
    functions: FunctionClass,
    *,
    weights: ArrayLike | None = None,
    shared_minimizer: bool = False,
    stored: StoredRate | None = None,
) -> ProvedRate:
    """The fastest rate of ‖x - x*‖² that a quadratic Lyapunov function proves for a method that remembers something.

    The rounds are played by the method's own phases, from any memories that its rounds can lead to.

    Args:
        algorithm: the method; compressors in it are given as `contraction(delta)`.
        plan: τ_i and η_i. Scalars mean any number of equal clients from two upwards, arrays one client each.
        functions: the class of the clients' functions.
        weights: the clients' weights in f, equal unless given.
        shared_minimizer: whether every f_i has its minimiser at x*.
        stored: `ProvedRate.stored` of an earlier run, which is then checked, without a solver, and nothing is sought.

    Returns:
        The rate, the constant in front, and the certificate of both.
    """
    groups = group_clients(plan, weights)
    algorithm = with_constants(algorithm, functions)
    with analysable(algorithm):
        shared = shared_minimizer or ignores_linear_terms(algorithm)
        trace = Trace(groups, max(functions.curvature[1], Fraction(0)), shared, functions.smoothness)
        states, places = any_states(trace, algorithm), memory_places(algorithm)
        before = _forms(trace, states, *places)
        at_start = functions.conditions(trace, [trace.x])
        later = play_round(trace, algorithm.phases, states)
    after = _forms(trace, later, *places)
    throughout = functions.conditions(trace, [trace.x, later.server.x])
    first = squared(trace.x) + 1 / exact(functions.smoothness) ** 2 * _memories(trace, states)

    def search(rate: Fraction, constant: Fraction | None) -> SemidefiniteProgram:
        """ρV - V⁺, V - ‖x - x*‖² and constant · first - V are nonnegative."""
        program = SemidefiniteProgram()
        limit = [] if constant is not None else [(program.unknown(cost=1.0), first)]
        counts = [program.unknown() for _ in before]
        fall = [(count, rate * old - new) for count, old, new in zip(counts, before, after, strict=True)]
        program.require(trace.space, GramForm(), fall + throughout.multipliers(program))
        whole = list(zip(counts, before, strict=True))
        program.require(trace.space, -1 * squared(trace.x), whole + at_start.multipliers(program))
        below = [(count, -1 * form) for count, form in whole]
        initial = GramForm() if constant is None else constant * first
        program.require(trace.space, initial, limit + below + at_start.multipliers(program))
        return program

    return best_rate(search, algorithm.name, stored)


def _forms(trace: Trace, states: TracedStates, at_server: list[int], at_client: list[int]) -> list[GramForm]:
    """What V is a combination of: products of shared vectors, products of each group's deviations, and the gap.

    The memories among the leaves of the states are those at these places.
    """
    x = states.server.x
    by_group = [
        [trace.gradient(number, x), points[0].gradient, *map(jax.tree.leaves(state).__getitem__, at_client)]
        for number, (points, state) in enumerate(zip(trace.points, states.clients, strict=True))
    ]
    of_server = map(jax.tree.leaves(states.server).__getitem__, at_server)
    shared = [x, *of_server, *(vector.part(SHARED) for vectors in by_group for vector in vectors)]
    apart = [[vector.part(1 + number) for vector in vectors] for number, vectors in enumerate(by_group)]
    products = [inner(u, v) for held in (shared, *apart) for u, v in combinations_with_replacement(held, 2)]
    return [*products, trace.gap(x)]


def _memories(trace: Trace, states: TracedStates) -> GramForm:
    """Σ ‖memory‖² of the server's memories, and the mean of the clients'."""
    total = sum((squared(leaf) for leaf in jax.tree.leaves(states.server) if leaf != trace.x), GramForm())
    for group, state in zip(trace.groups, states.clients, strict=True):
        norms = (squared(leaf) for leaf in jax.tree.leaves(state) if leaf != trace.x)
        total = total + group.weight * sum(norms, GramForm())
    return total
