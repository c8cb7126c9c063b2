"""Gradient descent whose gradients go up through a link: what EF21 and DIANA are."""

from typing import NamedTuple

import jax

from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector
from fedlin.links import Link, Memory, encoding_key, private


class LinkedServer(NamedTuple):
    """The model and the receiving end of the link."""

    x: Vector  # x
    h: Memory  # mean of h_i


class LinkedClient(NamedTuple):
    """The sending end of the link."""

    h: Memory  # h_i


def linked_descent(name: str, link: Link, in_full: bool) -> Algorithm[LinkedServer, LinkedClient]:
    """x ← x - η ĝ, ĝ what the link makes of the mean gradient; the first round's are sent in full if asked to."""

    def phases(link: Link) -> tuple[Phase[LinkedServer, LinkedClient], ...]:
        def send_gradient(state: LinkedClient, x: Vector, local: Local) -> tuple[LinkedClient, Message]:
            draw, encode = jax.random.split(local.key)
            payload, memory = link.send(encoding_key(link, local, encode), state.h, local.oracle.grad(x, draw))
            return LinkedClient(memory), payload

        def step(state: LinkedServer, message: Vector, central: Central) -> LinkedServer:
            grad, memory = link.receive(state.h, message, central)
            return LinkedServer(state.x - central.eta * grad, memory)

        return (Phase("gradient", lambda state: state.x, send_gradient, step),)

    return Algorithm(
        name,
        lambda x: LinkedServer(x, link.receiver(x)),
        lambda x: LinkedClient(link.sender(x)),
        phases(link),
        opening=phases(link.dense) if in_full and link.full is not None else None,
        requires=frozenset([Requirement.MEAN_UPLOAD] if link.remembers else []),
        check=link.check,
        mechanisms=private(link),
    )
