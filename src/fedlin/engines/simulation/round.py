"""One round of any algorithm on all clients at once, as traced code."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedlin.aggregation import Aggregator, mean
from fedlin.core import Key, Message, MethodPhase, Scalar, Vector
from fedlin.engines.keys import phase_keys
from fedlin.engines.local import wide_sum
from fedlin.engines.phase import (
    ClientArrays,
    ClientProgram,
    State,
    Totals,
    clients_step,
    combine,
    mean_loss,
    server_step,
    tampered,
    weigh,
)

# A cohort's numbers are distinct, in order and in range, so nothing needs to be checked.
_DRAWN: Any = {"mode": "promise_in_bounds", "unique_indices": True, "indices_are_sorted": True}


class Cohort(NamedTuple):
    """Who takes part: `chosen` picks clients (None: all of them), `present` says which of those answer."""

    chosen: jax.Array | None = None
    present: jax.Array | None = None


class Played(NamedTuple):
    """What a round comes to."""

    server: State
    clients: State
    calls: jax.Array  # gradients, as a `wide_sum`
    training: Scalar  # the mean loss that came with them
    sums: list[Message]


def play_round(
    phases: tuple[MethodPhase, ...],
    client_program: ClientProgram,
    server: State,
    clients: ClientArrays,
    weights: Vector,
    totals: Totals,
    cohort: Cohort,
    seed: Key,
    round_index: Scalar,
    *also: tuple[Vector, Message],
    aggregate: Aggregator = mean(),  # noqa: B008 - one object for all
) -> Played:
    """The round; `sums` are of the pairs in `also`, which `combine` takes along with the first phase's uploads."""
    everyone = clients.state
    if cohort.chosen is not None:
        others = (clients._replace(number=None), weights)
        clients, weights = jax.tree.map(lambda leaf: leaf.at[cohort.chosen].get(**_DRAWN), others)
        clients = clients._replace(number=cohort.chosen, place=jnp.arange(len(cohort.chosen), dtype=jnp.int32))
    elif cohort.present is not None:
        clients = clients._replace(place=jnp.cumsum(cohort.present, dtype=jnp.int32) - 1)
    weighting = weigh(weights, totals, cohort.present)
    before = clients.state
    calls = seen = jnp.zeros(weights.shape, jnp.int32)
    losses: Vector | None = jnp.zeros_like(weights)
    sums: list[Message] = []

    for number, phase in enumerate(phases):
        keys = phase_keys(seed, round_index, number)
        answers = clients_step(phase, client_program, keys, server, clients)
        extra = also if number == 0 else ()
        mesh = client_program.mesh
        uploads = tampered(phase, keys, clients.number, weighting.each, answers.upload, mesh)
        average, more = combine(weighting.each, uploads, *extra, mesh=mesh, aggregate=aggregate, keys=keys)
        server = server_step(phase, keys, server, average, weighting, totals.eta)
        clients = clients._replace(state=answers.state)
        calls, seen = calls + answers.calls, seen + answers.seen
        losses = None if losses is None or answers.losses is None else losses + answers.losses
        sums = sums + more

    states, present = clients.state, cohort.present
    if present is not None:
        calls = jnp.where(present, calls, 0)
        states = jax.tree.map(
            lambda new, old: jnp.where(present.reshape(-1, *[1] * (new.ndim - 1)), new, old), states, before
        )
    if cohort.chosen is not None:
        states = jax.tree.map(lambda old, new: old.at[cohort.chosen].set(new, **_DRAWN), everyone, states)
    training = jnp.full((), jnp.nan, weights.dtype) if losses is None else mean_loss(weighting.each, losses, seen)
    return Played(server, states, wide_sum(calls), training, sums)
