"""One round of any algorithm on all clients at once, as traced code."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from fedlin.core import Central, Key, Phase, Scalar
from fedlin.engines.keys import phase_keys
from fedlin.engines.local import make_local
from fedlin.layout import each_client
from fedlin.payloads import decode
from fedlin.problems.objective import Objective, Sampling


class Clients(NamedTuple):
    """Everything with a leading client axis."""

    index: Any  # who it is
    data: Any
    noise: Any
    weight: Any
    tau: Any
    eta: Any
    state: Any


class Cohort(NamedTuple):
    """Who takes part: `index` picks clients (None: all of them), `present` says which of those answer."""

    index: Any = None
    present: Any = None


def play_round(
    phases: tuple[Phase[Any, Any], ...],
    objective: Objective,
    sampling: Sampling | None,
    block: int | None,
    server: Any,
    clients: Clients,
    cohort: Cohort,
    seed: Key,
    round_index: Scalar,
    mesh: Mesh | None = None,
) -> tuple[Any, Any, Scalar]:
    """The server's state and the clients' states after the round, and the gradients it took."""
    everyone, total = clients, jnp.sum(clients.weight)
    if cohort.index is not None:
        clients = jax.tree.map(lambda leaf: leaf[cohort.index], clients)
    weight = clients.weight
    if cohort.present is not None:
        weight = weight * cohort.present.astype(weight.dtype)
    share = jnp.sum(weight) / total
    weight = weight / jnp.sum(weight)
    eta = everyone.weight @ everyone.eta / total
    states = clients.state
    calls = jnp.zeros(weight.shape, jnp.int32)

    for number, phase in enumerate(phases):
        keys = phase_keys(seed, round_index, number)
        broadcast = decode(phase.down(server))

        def work(client: Clients, phase: Any = phase, keys: Any = keys, broadcast: Any = broadcast) -> Any:
            local, counter = make_local(
                objective,
                sampling,
                client.data,
                client.noise,
                client.tau,
                client.eta,
                keys.client(client.index),
                keys.shared,
            )
            state, message = phase.client(client.state, broadcast, local)
            return state, decode(message), jnp.asarray(counter.calls, jnp.int32)

        states, uploads, counts = each_client(work, block, mesh)(clients._replace(state=states))
        mean = jax.tree.map(lambda leaf, w=weight: jnp.tensordot(w, leaf, 1), uploads)
        server = phase.server(server, mean, Central(share, keys.server, keys.shared, eta, jnp.max(weight)))
        calls = calls + counts

    if cohort.present is not None:
        calls = jnp.where(cohort.present, calls, 0)
        states = jax.tree.map(
            lambda new, old: jnp.where(cohort.present.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            states,
            clients.state,
        )
    if cohort.index is not None:
        states = jax.tree.map(lambda old, new: old.at[cohort.index].set(new), everyone.state, states)
    return server, states, jnp.sum(calls, dtype=jnp.int32)
