"""Wrong methods that a claim about FedLin must notice when they stand in for it.

All are FedLin with one fault, and all faults are numbers of one program: a method is wrong where a number differs from
the right one. So that a fault of the mathematics is all there is, messages travel as whole vectors; what a link would
have left out of them is zero.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import NamedTuple, SupportsFloat

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from fedlin.algorithms.factory import factory
from fedlin.compressors import Compressor, identity
from fedlin.core import Algorithm, Central, Local, Message, Method, Phase, Scalar, Vector
from fedlin.links import Link, as_link

MethodFactory = Callable[..., Method]  # takes the links that `fedlin.fedlin` takes


@dataclass(frozen=True)
class Fault:
    """What is wrong: the default of every field is right."""

    direction: float = 1.0  # a local move is multiplied by this
    length: float = 1.0  # and every local step η_i
    correction: float = 1.0  # and g - ∇f_i(x̄)
    stale: float = 0.0  # the share of the round before in g
    skew: float = 0.0  # client i weighs as τ_i to this power
    right_until: float = 0.0  # the fault shows from this round on
    largest: float = 1.0  # -1 keeps the smallest entries
    dense: bool = False  # sends all entries whatever the link says
    swapped: bool = False  # error feedback where there is to be none, and none where there is
    emptied: float = 1.0  # the share of what was sent that leaves the memory


STILL, ASCENDS = "stands still", "ascends"
THIRD, TRIPLE = "steps a third as long", "steps three times as long"
FEDAVG, LATE_FEDAVG, SIGN = "FedAvg", "FedAvg from round 20 on", "correction of the wrong sign"
STALE = "mean gradient of the round before"
BY_STEPS, FORGETS = "clients weighed by their steps", "forgets the fast clients"
SWAPPED, SMALLEST = "swaps feedback and plain", "keeps the smallest entries"
HOARDS, WHOLE = "never empties its memory", "ignores the links"
WRONG: dict[str, Fault] = {
    STILL: Fault(direction=0.0),
    ASCENDS: Fault(direction=-1.0),
    THIRD: Fault(length=1 / 3),
    TRIPLE: Fault(length=3.0),
    FEDAVG: Fault(correction=0.0),
    LATE_FEDAVG: Fault(correction=0.0, right_until=20.0),
    SIGN: Fault(correction=-1.0),
    STALE: Fault(stale=1.0),
    BY_STEPS: Fault(skew=1.0),
    FORGETS: Fault(skew=-8.0),
    SWAPPED: Fault(swapped=True),
    SMALLEST: Fault(largest=-1.0),
    HOARDS: Fault(emptied=0.0),
    WHOLE: Fault(dense=True),
}
OF_LINKS = (SWAPPED, SMALLEST, HOARDS, WHOLE)  # wrong only where a link compresses
EXCLUDED = "excluded by the statement"
# Why a statement lets a wrong method pass, where several do for the same reason.
LONGER = "A step three times as long is still stable here and only faster; the bound is an upper one."
DELAYED = "At this step a delay of one round costs nothing: the slowest mode contracts even a little faster."
RESEMBLING = {TRIPLE: LONGER, STALE: DELAYED}  # what passes where a rate without compression is claimed


def must_notice(passes: Mapping[str, str], links: bool = False, without: tuple[str, ...] = ()) -> dict[str, str]:
    """The wrong methods that a claim must notice.

    Args:
        passes: Those that satisfy the statement, each with the reason.
        links: Whether the claim is about compressed messages, where there are more ways to be wrong.
        without: Those that are not wrong there.

    Returns:
        Every name with the reason why the statement lets it pass, or EXCLUDED.
    """
    names = [name for name in WRONG if (links or name not in OF_LINKS) and name not in without]
    return {name: passes.get(name, EXCLUDED) for name in names}


def wrong_method(name: str) -> MethodFactory:
    """The wrong method of that name, to be called as `fedlin.fedlin` is."""
    return stand_in(WRONG[name])


def stand_in(fault: Fault) -> MethodFactory:
    """A method with this fault, to be called as `fedlin.fedlin` is; links on models are not for claims with faults."""

    def method(
        *,
        uplink: Link | Compressor = identity(),  # noqa: B008 - cached, and immutable
        downlink: Link | Compressor = identity(),  # noqa: B008
    ) -> Method:
        up, down = (
            _sparsity(as_link(link, name), fault) for name, link in (("uplink", uplink), ("downlink", downlink))
        )
        return faulty(
            direction=fault.direction,
            length=fault.length,
            correction=fault.correction,
            stale=fault.stale,
            skew=fault.skew,
            right_until=fault.right_until,
            largest=fault.largest,
            emptied=fault.emptied,
            up_entries=up[0],
            up_memory=up[1],
            down_entries=down[0],
            down_memory=down[1],
        )

    return method


def _sparsity(link: Link, fault: Fault) -> tuple[float, float]:
    """k, and the share of the memory that is added to what is sent."""
    if link.lossless or fault.dense:
        return inf, 0.0
    entries, remembers = _probed(link)
    return float(entries), float(remembers != fault.swapped)


@cache
def _probed(link: Link) -> tuple[int, bool]:
    """How many entries a link sends of a vector, and whether it remembers the others."""
    probe = jnp.arange(1.0, 1025.0)
    memory = link.sender(probe)
    payload, _ = link.send(jax.random.key(0), memory, probe)
    return int(jnp.count_nonzero(payload.decode())), memory is not None


class WrongServer(NamedTuple):
    """As FedLin's."""

    x: Vector  # x̄_t
    t: Scalar  # rounds played
    g: Vector  # g_t
    before: Vector  # g_{t-1}
    e: Vector  # e_t


class WrongClient(NamedTuple):
    """As FedLin's."""

    x: Vector  # x̄_t
    grad: Vector  # ∇f_i(x̄_t)
    rho: Vector  # ρ_{i,t}


def number(name: str, value: SupportsFloat) -> float:
    """A number as it is, to be named as one of a method's."""
    return float(value)


@factory(
    direction=number,
    length=number,
    correction=number,
    stale=number,
    skew=number,
    right_until=number,
    largest=number,
    emptied=number,
    up_entries=number,
    up_memory=number,
    down_entries=number,
    down_memory=number,
)
def faulty(
    *,
    direction: float,
    length: float,
    correction: float,
    stale: float,
    skew: float,
    right_until: float,
    largest: float,
    emptied: float,
    up_entries: float,
    up_memory: float,
    down_entries: float,
    down_memory: float,
) -> Algorithm[WrongServer, WrongClient]:
    """FedLin with these numbers in place of the right ones, which are those of `Fault()`."""

    def choose(total: Vector, entries: float, t: Scalar) -> Vector:
        """The entries that are sent: in the first round all, later the largest, or the smallest if so at fault."""
        size = largest * jnp.abs(total)
        ahead = (size[None, :] > size[:, None]) | (
            (size[None, :] == size[:, None]) & jnp.tri(size.size, k=-1, dtype=bool)
        )
        rank = jnp.sum(ahead, axis=1).astype(total.dtype)
        return jnp.where((t == 0) | (rank < entries), total, 0)

    def weight(local: Local, t: Scalar, dtype: DTypeLike) -> Scalar:
        return local.tau.astype(dtype) ** jnp.where(t < right_until, 0.0, skew)

    def send_gradient(state: WrongClient, message: tuple[Vector, Scalar], local: Local) -> tuple[WrongClient, Message]:
        x, t = message
        grad = local.oracle.grad(x, local.key)
        total = grad + up_memory * state.rho
        sent = choose(total, up_entries, t)
        w = weight(local, t, x.dtype)
        return WrongClient(x, grad, total - emptied * sent), (w * sent, w)

    def average_gradients(state: WrongServer, message: tuple[Vector, Scalar], central: Central) -> WrongServer:
        sum_, w = message
        total = sum_ / w + down_memory * state.e
        g = choose(total, down_entries, state.t)
        before = jnp.where(state.t == 0, g, state.g)
        return state._replace(g=g, before=before, e=total - emptied * g)

    def broadcast_gradient(state: WrongServer) -> tuple[Vector, Scalar]:
        share = jnp.where(state.t < right_until, 0.0, stale)
        return (1 - share) * state.g + share * state.before, state.t

    def move_locally(state: WrongClient, message: tuple[Vector, Scalar], local: Local) -> tuple[WrongClient, Message]:
        g, t = message
        corrected = jnp.where(t < right_until, 1.0, correction)
        y = local.descend(state.x, shift=corrected * (g - state.grad), eta=length * local.eta)
        w = weight(local, t, y.dtype)
        return state, (w * direction * (y - state.x), w)

    def average_models(state: WrongServer, message: tuple[Vector, Scalar], central: Central) -> WrongServer:
        move, w = message
        return state._replace(x=state.x + move / w, t=state.t + 1)

    def init_server(x: Vector) -> WrongServer:
        return WrongServer(x, jnp.zeros((), x.dtype), 0 * x, 0 * x, 0 * x)

    return Algorithm(
        "fedlin with a fault",
        init_server,
        lambda x: WrongClient(0 * x, 0 * x, 0 * x),
        (
            Phase("gradient", lambda state: (state.x, state.t), send_gradient, average_gradients),
            Phase("model", broadcast_gradient, move_locally, average_models),
        ),
    )
