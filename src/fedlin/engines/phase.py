"""One phase of a round, the same in every engine: what a client does, how uploads are weighed, what the server does.

An engine decides where the clients run and how their uploads reach the server; what is computed is here. `client_step`
is one client's part, `clients_step` that of many in one program. `weigh` scales the weights of those who answer to sum
to one, so that `combine` gives their mean upload, and partial sums over chunks of clients add up to it: a server that
learns nothing but the sum can do its part, `server_step`. A robust mean in its place needs every upload.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from fedlin.aggregation import Aggregator, mean
from fedlin.core import Array, Central, Message, MethodPhase, PyTree, Scalar, Vector
from fedlin.engines.keys import PhaseKeys
from fedlin.engines.local import make_local
from fedlin.layout import EVERYWHERE, each_client, sum_over_clients
from fedlin.payloads import decode
from fedlin.problems.objective import Data, Objective, Sampling

State = PyTree  # a method's own, of the server or of a client
Leaf = Any  # an array of NumPy or JAX, concrete, traced or abstract
A = TypeVar("A", jax.Array, Array)
_AGGREGATE, _TAMPER = 0x7FFFFFFD, 0x7FFFFFFC  # keep these draws apart from those a method makes with the server's key


class ClientProgram(NamedTuple):
    """What the clients compute and how they are laid out, all of it fixed before anything is traced."""

    objective: Objective
    sampling: Sampling | None
    block: int | None = None  # clients at a time
    mesh: Mesh | None = None  # the devices that share them
    in_step: bool = False  # whether all clients take as many local steps, so that none waits for another's last


class ClientArrays(NamedTuple):
    """One client's part of a run, or that of many along a leading axis."""

    number: Leaf  # i
    data: Data
    noise: Data
    tau: Leaf  # τ_i
    eta: Leaf  # η_i
    state: State
    place: Leaf = None  # among those who take part; None where all do, and it is i


class Answer(NamedTuple):
    """The result of a client's part of a phase."""

    state: State
    upload: Message
    calls: Leaf  # gradients taken
    losses: Leaf  # sum of the losses that came with them, NaN where one came without; None where all is known to be so
    seen: Leaf  # how many those are


class Totals(NamedTuple):
    """What the server knows of all clients together, whoever takes part."""

    weight: Leaf  # Σ w_i
    eta: Leaf  # Σ w_i η_i / Σ w_i


class Weighting(NamedTuple):
    """How the clients of a round count."""

    each: Leaf  # weights that sum to one over those who answer, zero for the others
    share: Leaf  # of all clients' weight that answered
    largest: Leaf  # of the weights


def total(weights: A, eta: A) -> Totals:
    """The sum of the weights and the mean step size; in NumPy or JAX, for one round or for each row of `eta`."""
    weight = weights.sum()
    return Totals(weight, eta @ weights / weight)


def weigh(weights: A, totals: Totals, present: A | None = None) -> Weighting:
    """The weights of a mean over those who answer: all of these clients, or those that are `present`.

    In NumPy or JAX; `totals` are of all clients, whether they are among these or not.
    """
    if present is not None:
        weights = weights * present.astype(weights.dtype)
    answered = weights.sum()
    each = weights / answered
    return Weighting(each, answered / totals.weight, each.max())


def client_step(
    phase: MethodPhase, program: ClientProgram, keys: PhaseKeys, message: Message, client: ClientArrays
) -> Answer:
    """One client's part: its next state and its upload as it is sent, from the broadcast as it was sent."""
    local, counter = make_local(
        program.objective,
        program.sampling,
        client.data,
        client.noise,
        client.tau,
        client.eta,
        keys.client(client.number),
        keys.shared,
        client.number,
        client.place,
    )
    state, upload = phase.client(client.state, decode(message), local)
    counts, whole = counter.counts, jnp.int32
    none = isinstance(counts.losses, float) and np.isnan(counts.losses)
    losses = None if none else jnp.asarray(counts.losses, client.eta.dtype)
    return Answer(state, upload, jnp.asarray(counts.calls, whole), losses, jnp.asarray(counts.seen, whole))


def clients_step(
    phase: MethodPhase, program: ClientProgram, keys: PhaseKeys, server: State, clients: ClientArrays
) -> Answer:
    """The part of many clients, whose uploads come decoded and stacked."""
    message = decode(phase.down(server))  # once for all of them
    tau = clients.tau[0] if program.in_step else None

    def step(client: ClientArrays) -> Answer:
        if tau is not None:  # the end of a loop is then one number, and no client's model is held back by a mask
            client = client._replace(tau=tau)
        answer = client_step(phase, program, keys, message, client)
        return answer._replace(upload=decode(answer.upload))

    answers: Answer = each_client(step, program.block, program.mesh)(clients)
    return answers


def tampered(
    phase: MethodPhase, keys: PhaseKeys, numbers: Vector, weights: Vector, uploads: Message, mesh: Mesh | None
) -> Message:
    """The decoded, stacked uploads of the clients of these numbers as they arrive."""
    if phase.tamper is None:
        return uploads
    return phase.tamper(_gathered(uploads, mesh), numbers, weights > 0, jax.random.fold_in(keys.server, _TAMPER))


def combine(
    weights: Vector,
    uploads: Message,
    *also: tuple[Vector, Message],
    mesh: Mesh | None = None,
    aggregate: Aggregator = mean(),  # noqa: B008 - one object for all
    keys: PhaseKeys | None = None,
) -> tuple[Message, list[Message]]:
    """Σ w_i u_i of decoded, stacked uploads u, and the like sums of the pairs in `also`, in one all-reduce.

    Another aggregator than the mean has all uploads gathered, and takes those whose weight is not zero.
    """
    if aggregate.is_mean:
        average, *others = sum_over_clients([(weights, uploads), *also], mesh)
        return average, others
    assert keys is not None
    row = aggregate(_gathered(uploads, mesh), weights > 0, jax.random.fold_in(keys.server, _AGGREGATE))
    return row, sum_over_clients(also, mesh) if also else []


def _gathered(uploads: Message, mesh: Mesh | None) -> Message:
    """The uploads whole on every device that shares the clients."""
    if mesh is None:
        return uploads
    return jax.lax.with_sharding_constraint(uploads, NamedSharding(mesh, EVERYWHERE))  # type: ignore[no-untyped-call]


def mean_loss(each: A, losses: A, seen: A) -> A:
    """Σ w_i ℓ_i, where ℓ_i is the mean of the losses that came with client i's gradients; in NumPy or JAX."""
    where: Any = np.where if isinstance(seen, np.ndarray) else jnp.where
    losses_taken = where(seen > 0, seen.astype(losses.dtype), np.nan)  # NaN where no loss came, without NumPy's warning
    average: A = (each * losses / losses_taken).sum()
    return average


def server_step(
    phase: MethodPhase, keys: PhaseKeys, server: State, upload: Message, weighting: Weighting, eta: Scalar
) -> State:
    """The server's part: its next state from the mean upload; `eta` is the mean of all clients' η_i."""
    central = Central(weighting.share, keys.server, keys.shared, eta, weighting.largest)
    return phase.server(server, upload, central)


def phase_alone(
    phase: MethodPhase, program: ClientProgram, keys: PhaseKeys, server: State, client: ClientArrays
) -> tuple[Message, Answer, State]:
    """The whole phase as if there were this client only: the broadcast, its answer, the server's next state."""
    message = phase.down(server)
    answer = client_step(phase, program, keys, message, client)
    one = jnp.ones(1, client.eta.dtype)
    totals = total(one, client.eta[None])
    server = server_step(phase, keys, server, decode(answer.upload), weigh(one, totals), totals.eta)
    return message, answer, server
