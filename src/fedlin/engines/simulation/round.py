"""One round of any algorithm on all clients at once, as traced code."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from fedlin.core import Central, Key, Phase, Scalar
from fedlin.engines.keys import PhaseKeys, phase_keys
from fedlin.engines.local import make_local
from fedlin.engines.simulation.wide_sum import wide_sum
from fedlin.layout import each_client, sum_over_clients
from fedlin.payloads import decode
from fedlin.problems.objective import Objective, Sampling

# A cohort's numbers are distinct, in order and in range, so nothing needs to be checked.
_DRAWN: Any = {"mode": "promise_in_bounds", "unique_indices": True, "indices_are_sorted": True}


class Clients(NamedTuple):
    """Everything with a leading client axis."""

    index: Any  # who it is
    data: Any
    noise: Any
    weight: Any
    tau: Any
    eta: Any
    state: Any


class Totals(NamedTuple):
    """What the server knows of all clients together, whoever takes part."""

    weight: Any  # Σ w_i
    eta: Any  # Σ w_i η_i / Σ w_i


class Cohort(NamedTuple):
    """Who takes part: `index` picks clients (None: all of them), `present` says which of those answer."""

    index: Any = None
    present: Any = None


class ClientProgram(NamedTuple):
    """What the clients compute and how they are laid out, all of it fixed before anything is traced."""

    objective: Objective
    sampling: Sampling | None
    block: int | None  # clients at a time
    mesh: Mesh | None = None  # the devices that share them


def play_round(
    phases: tuple[Phase[Any, Any], ...],
    client_program: ClientProgram,
    server: Any,
    clients: Clients,
    totals: Totals,
    cohort: Cohort,
    seed: Key,
    round_index: Scalar,
    *also: tuple[Any, Any],
) -> tuple[Any, Any, Scalar, list[Any]]:
    """The server's state and the clients' states after the round, its gradients as a `wide_sum`, and other sums.

    Those are of the pairs in `also`, which `sum_over_clients` takes along with the first phase's uploads.
    """
    everyone = clients.state
    if cohort.index is not None:
        others = clients._replace(index=None)
        clients = jax.tree.map(lambda leaf: leaf.at[cohort.index].get(**_DRAWN), others)._replace(index=cohort.index)
    weight = clients.weight
    if cohort.present is not None:
        weight = weight * cohort.present.astype(weight.dtype)
    share = jnp.sum(weight) / totals.weight
    weight = weight / jnp.sum(weight)
    states = clients.state
    calls = jnp.zeros(weight.shape, jnp.int32)
    sums: list[Any] = []

    for number, phase in enumerate(phases):
        keys = phase_keys(seed, round_index, number)
        states, (mean, *rest), counts = answer(
            phase, keys, client_program, server, clients._replace(state=states, weight=weight), *() if number else also
        )
        server = phase.server(server, mean, Central(share, keys.server, keys.shared, totals.eta, jnp.max(weight)))
        calls, sums = calls + counts, sums + rest

    if cohort.present is not None:
        calls = jnp.where(cohort.present, calls, 0)
        states = jax.tree.map(
            lambda new, old: jnp.where(cohort.present.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            states,
            clients.state,
        )
    if cohort.index is not None:
        states = jax.tree.map(lambda old, new: old.at[cohort.index].set(new, **_DRAWN), everyone, states)
    return server, states, wide_sum(calls), sums


def answer(
    phase: Phase[Any, Any],
    keys: PhaseKeys,
    client_program: ClientProgram,
    server: Any,
    clients: Clients,
    *also: tuple[Any, Any],
) -> tuple[Any, list[Any], Any]:
    """The clients' part of a phase: their states, the weighted sums of their uploads and `also`, their gradients."""
    broadcast = decode(phase.down(server))

    def work(client: Clients) -> Any:
        local, counter = make_local(
            client_program.objective,
            client_program.sampling,
            client.data,
            client.noise,
            client.tau,
            client.eta,
            keys.client(client.index),
            keys.shared,
        )
        state, message = phase.client(client.state, broadcast, local)
        return state, decode(message), jnp.asarray(counter.calls, jnp.int32)

    states, uploads, counts = each_client(work, client_program.block, client_program.mesh)(clients)
    return states, sum_over_clients([(clients.weight, uploads), *also], client_program.mesh), counts
