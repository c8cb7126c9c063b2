"""Any method with its vectors sent as changes in fewer bits, so that methods can be compared at equal number formats.

Vectors are rounded to float32 or float16. Of a VALUE, such as a model, the difference to what the receiver knows
travels (`fedlin.innovation` of `fedlin.cast`); a CHANGE, which its receiver adds up, travels with what rounding took
from the ones before (`fedlin.error_feedback`). Both vanish as a method converges, and with them what rounding takes.
What a method compresses itself, matrices and single numbers, travel as they are.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.compressors import cast
from fedlin.core import Central, Local, Message, Method, MethodPhase, Phase, PyTree, Requirement, Vector
from fedlin.payloads import Dense, is_payload

VALUE, CHANGE, OWN = "value", "change", "own"  # OWN: compressed by the method itself
Kinds = tuple[str, ...]  # of the vectors of a message
Known = tuple[
    Vector | None, ...
]  # of each, what the receiver knows (VALUE), what is yet to be sent (CHANGE), or nothing


class NarrowServer(NamedTuple):
    """The method's own state, and by phase what clients know of its broadcasts and it knows of their mean upload."""

    x: Vector
    own: PyTree
    sent: tuple[Known, ...]
    heard: tuple[Known, ...]


class NarrowClient(NamedTuple):
    """The same of a client."""

    own: PyTree
    heard: tuple[Known, ...]
    sent: tuple[Known, ...]


@factory()
def narrow(method: Method, dtype: str, vectors: tuple[tuple[Kinds, Kinds], ...]) -> Method:
    """`method` with the vectors of its messages as changes in `dtype`; an opening round is sent in full.

    Args:
        method: The method.
        dtype: "float32" or "float16".
        vectors: For each phase the kinds of the vectors that go down and up.

    Returns:
        The method as it is but for rounding.
    """
    rounded = cast(dtype)

    def encode(message: Message, known: Known, kinds: Kinds) -> tuple[Message, Known]:
        """The message with its vectors rounded, and what is known afterwards."""
        nodes, shape = jax.tree.flatten(message, is_leaf=is_payload)
        memory = iter(zip(known, kinds, strict=True))
        fresh, sent = [], []
        for node in nodes:
            before, kind = next(memory) if _is_vector(node) else (None, OWN)
            if before is None:
                payload, after = node, None
            else:
                value = node.decode() if isinstance(node, Dense) else node
                total = value - before if kind == VALUE else value + before
                payload = rounded.encode(None, total)  # type: ignore[arg-type]  # a cast draws nothing
                after = before + payload.decode() if kind == VALUE else total - payload.decode()
            sent.append(payload)
            fresh += [after] * _is_vector(node)
        return jax.tree.unflatten(shape, sent), tuple(fresh)

    def decode(message: Message, known: Known, kinds: Kinds) -> tuple[Message, Known]:
        """The message as the method knows it, and what its receiver knows now, which is news for a VALUE only."""
        nodes, shape = jax.tree.flatten(message)
        memory = iter(zip(known, kinds, strict=True))
        fresh, heard = [], []
        for node in nodes:
            before, kind = next(memory) if _is_vector(node) else (None, OWN)
            heard.append(before + node if before is not None and kind == VALUE else node)
            fresh += [heard[-1] if kind == VALUE else before] * _is_vector(node)
        return jax.tree.unflatten(shape, heard), tuple(fresh)

    def narrowed(number: int, phase: MethodPhase) -> Phase[NarrowServer, NarrowClient]:
        below, above = vectors[number]

        def down(state: NarrowServer) -> Message:
            return encode(phase.down(state.own), state.sent[number], below)[0]

        def client(state: NarrowClient, message: Message, local: Local) -> tuple[NarrowClient, Message]:
            broadcast, heard = decode(message, state.heard[number], below)
            own, upload = phase.client(state.own, broadcast, local)
            payload, sent = encode(upload, state.sent[number], above)
            return NarrowClient(own, _put(state.heard, number, heard), _put(state.sent, number, sent)), payload

        def server(state: NarrowServer, message: Message, central: Central) -> NarrowServer:
            _, sent = encode(phase.down(state.own), state.sent[number], below)  # as `down` did
            mean, heard = decode(message, state.heard[number], above)
            own = phase.server(state.own, mean, central)
            return NarrowServer(own.x, own, _put(state.sent, number, sent), _put(state.heard, number, heard))

        return Phase(phase.name, down, client, server)

    def whole(phase: MethodPhase) -> Phase[NarrowServer, NarrowClient]:
        def client(state: NarrowClient, message: Message, local: Local) -> tuple[NarrowClient, Message]:
            own, upload = phase.client(state.own, message, local)
            return state._replace(own=own), upload

        def server(state: NarrowServer, message: Message, central: Central) -> NarrowServer:
            own = phase.server(state.own, message, central)
            return state._replace(x=own.x, own=own)

        return Phase(phase.name, lambda state: phase.down(state.own), client, server)

    def blank(x: Vector, side: int) -> tuple[Known, ...]:
        return tuple(tuple(None if kind == OWN else jnp.zeros_like(x) for kind in kinds[side]) for kinds in vectors)

    return replace(
        method,
        name=f"{method.name} in {dtype}",
        init_server=lambda x: NarrowServer(x, method.init_server(x), blank(x, 0), blank(x, 1)),
        init_client=lambda x: NarrowClient(method.init_client(x), blank(x, 0), blank(x, 1)),
        phases=tuple(narrowed(number, phase) for number, phase in enumerate(method.phases)),
        opening=None if method.opening is None else tuple(whole(phase) for phase in method.opening),
        requires=method.requires | {Requirement.EVERY_CLIENT},
        recipe=None,
    )


def _is_vector(node: PyTree) -> bool:
    return len(jax.eval_shape(node.decode).shape if is_payload(node) else jnp.shape(node)) == 1


def _put(known: tuple[Known, ...], number: int, value: Known) -> tuple[Known, ...]:
    return (*known[:number], value, *known[number + 1 :])
