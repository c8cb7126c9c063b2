"""What a method remembers between rounds, read off its phases: whether anything, and what stays true of it."""

from fractions import Fraction
from itertools import product

import jax
from jax.tree_util import PyTreeDef

from fedlin.core import Method, PyTree
from fedlin.theory.exact.symbols import Place, SymbolicVector
from fedlin.theory.exact.trace import Group, Trace, TracedStates, play_round, start

_EQUAL_CLIENTS = (Group(2, Fraction(1, 2), Fraction(1), 2),)


def remembers(algorithm: Method) -> bool:
    """Whether more than the model is kept from one round to the next.

    >>> import fedlin
    >>> remembers(fedlin.fedlin()), remembers(fedlin.scaffold())
    (False, True)
    """
    trace = Trace(_EQUAL_CLIENTS, Fraction(0))
    states = play_round(trace, algorithm.phases, start(trace, algorithm))
    return any(leaf != states.server.x for leaf in jax.tree.leaves(states))


def ignores_linear_terms(algorithm: Method) -> bool:
    """Whether f_i + ⟨s_i, x⟩ with Σ w_i s_i = 0 changes nothing but memories, by s_i: then s_i = -∇f_i(x*) is no loss.

    >>> import fedlin
    >>> ignores_linear_terms(fedlin.fedlin()), ignores_linear_terms(fedlin.fedavg())
    (True, False)
    """
    trace = Trace(_EQUAL_CLIENTS, Fraction(0))
    states = any_states(trace, algorithm)
    memories = [leaf for leaf in jax.tree.leaves(states.clients[0]) if leaf != trace.x]
    later = play_round(trace, algorithm.phases, states)
    after = [leaf for leaf in jax.tree.leaves(later.clients[0]) if leaf != later.server.x]
    for shifts in product((0, 1), repeat=len(memories)):
        # Clients' own parts are what a shift of mean zero moves; each basis vector among them moves by so much.
        moved = dict.fromkeys((place for point in trace.points[0] for place in point.gradient.coefficients), 1)
        for memory, shift in zip(memories, shifts, strict=True):
            moved |= dict.fromkeys(memory.coefficients, shift)

        def change(vector: SymbolicVector, moved: dict[Place, int] = moved) -> Fraction:
            return sum(
                (value * moved.get(place, 0) for place, value in vector.coefficients.items() if place[0]), Fraction(0)
            )

        still = [point.x for point in trace.points[0]] + trace.space.encoded
        if not any(change(vector) for vector in still) and [change(vector) for vector in after] == list(shifts):
            return True
    return False


def any_states(trace: Trace, algorithm: Method) -> TracedStates:
    """The states of some round of a run: memories may be anything that what stays true of them allows."""
    fresh = start(trace, algorithm)
    flat = [jax.tree.flatten(state) for state in fresh.clients]
    leaves = [list(each) for each, _ in flat]
    for position, leaf in enumerate(leaves[0]):
        if leaf != trace.x:
            centred = _stays_centred(algorithm, position)
            new = trace.space.of_mean_zero() if centred else [trace.space.of_group(g) for g in range(len(leaves))]
            for each, vector in zip(leaves, new, strict=True):
                each[position] = vector
    clients = [jax.tree.unflatten(tree, each) for (_, tree), each in zip(flat, leaves, strict=True)]
    kept, tree = jax.tree.flatten(fresh.server)
    for position, leaf in enumerate(kept):
        if leaf != trace.x:
            source = _mean_it_stays(algorithm, position)
            same = None if source is None else trace.space.mean([each[source] for each in leaves])
            kept[position] = trace.space.shared() if same is None else same
    return TracedStates(jax.tree.unflatten(tree, kept), clients)


def memory_places(algorithm: Method) -> tuple[list[int], list[int]]:
    """Which leaves of the server's state and of a client's are memories: those that a round does not leave the model.

    >>> import fedlin
    >>> memory_places(fedlin.momentum(fedlin.fedlin(), 0.5))  # the model, the same in FedLin's own state, and v
    ([2], [])
    """
    trace = Trace(_EQUAL_CLIENTS, Fraction(0))
    later = play_round(trace, algorithm.phases, any_states(trace, algorithm))
    server, client = (
        [place for place, leaf in enumerate(jax.tree.leaves(state)) if leaf is not later.server.x]
        for state in (later.server, later.clients[0])
    )
    return server, client


def _stays_centred(algorithm: Method, position: int) -> bool:
    """Whether a client memory of mean zero has mean zero after a round, whatever else is remembered."""
    trace, server, (leaves, tree) = _scratch(algorithm)
    leaves[position] = trace.space.apart(0)
    after = play_round(trace, algorithm.phases, TracedStates(server, [jax.tree.unflatten(tree, leaves)]))
    return trace.space.mean([jax.tree.leaves(after.clients[0])[position]]) == trace.space.origin


def _mean_it_stays(algorithm: Method, position: int) -> int | None:
    """The client memory whose mean a memory of the server stays equal to, where there is one."""
    for source in range(len(_scratch(algorithm)[2][0])):
        trace, server, (leaves, tree) = _scratch(algorithm)
        kept, server_tree = jax.tree.flatten(server)
        kept[position] = trace.space.mean([leaves[source]])
        states = TracedStates(jax.tree.unflatten(server_tree, kept), [jax.tree.unflatten(tree, leaves)])
        after = play_round(trace, algorithm.phases, states)
        if jax.tree.leaves(after.server)[position] == trace.space.mean([jax.tree.leaves(after.clients[0])[source]]):
            return source
    return None


def _scratch(algorithm: Method) -> tuple[Trace, PyTree, tuple[list[SymbolicVector], PyTreeDef]]:
    """A trace of equal clients, with any memories of server and clients; the clients' as leaves and their tree."""
    trace = Trace(_EQUAL_CLIENTS, Fraction(0))
    fresh = start(trace, algorithm)
    server = jax.tree.map(lambda leaf: leaf if leaf == trace.x else trace.space.shared(), fresh.server)
    leaves, tree = jax.tree.flatten(fresh.clients[0])
    return trace, server, ([leaf if leaf == trace.x else trace.space.of_group(0) for leaf in leaves], tree)
