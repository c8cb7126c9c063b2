"""FedLin: local steps corrected by remembered gradients, and links around every message.

A. Mitra, R. Jaafar, G. Pappas, H. Hassani, Linear Convergence in Federated Learning: Tackling Client
Heterogeneity and Sparse Gradients, NeurIPS 2021, Algorithm 1. Links on models go beyond the paper.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.checks import true_or_false
from fedlin.compressors import Compressor, identity
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector
from fedlin.links import Link, Memory, as_link, encoding_key, private
from fedlin.payloads import decode


class FedLinServer(NamedTuple):
    """Between rounds `g` and `move` are what will be broadcast next, or None."""

    x: Vector  # x̄_t
    g: Message  # g_t, encoded
    move: Message  # x̄_{t+1} - x̄_t, encoded, where models are compressed on the way down
    h: Memory  # of the gradient uplink
    e: Memory  # e_t, of the gradient downlink
    model_h: Memory  # of the model uplink
    model_e: Memory  # of the model downlink


class FedLinClient(NamedTuple):
    """Between rounds `grad` is None, and so is `x` unless models come as moves."""

    x: Vector | None  # x̄_t
    grad: Vector | None  # ∇f_i(x̄_t)
    rho: Memory  # ρ_{i,t}, of the gradient uplink
    g: Memory  # of the gradient downlink
    model_rho: Memory  # of the model uplink
    model_move: Memory  # of the model downlink


class Links(NamedTuple):
    """The four ways a message goes."""

    uplink: Link
    downlink: Link
    model_uplink: Link
    model_downlink: Link

    @property
    def as_moves(self) -> bool:
        """Whether models come down as moves that clients add up, rather than whole."""
        return not self.model_downlink.lossless


@factory()
def fedlin(
    *,
    uplink: Link | Compressor = identity(),  # noqa: B008 - cached, and immutable
    downlink: Link | Compressor = identity(),  # noqa: B008
    model_uplink: Link | Compressor = identity(),  # noqa: B008
    model_downlink: Link | Compressor = identity(),  # noqa: B008
    same_batch: bool = False,
) -> Algorithm[FedLinServer, FedLinClient]:
    """x ← x - η_i(∇f_i(x) - ∇f_i(x̄) + g), τ_i times from x̄; gradients and models travel through links.

    A bare compressor means its error feedback. The first round is sent in full, so that g_1 = ∇f(x̄_1).

    Args:
        uplink: For the gradients ∇f_i(x̄) that clients send.
        downlink: For the mean gradient g that the server broadcasts.
        model_uplink: For the moves of the clients' models.
        model_downlink: For the move of the server's model; where it loses anything clients add the moves up, and
            nobody may miss a round.
        same_batch: With a noisy oracle, take g from exact gradients and each local step's estimates at x and at x̄ from
            one draw, so that the noise vanishes with the distance (as in SVRG) and the rate stays linear.

    Returns:
        The method.

    >>> from fedlin.compressors import top_k
    >>> fedlin(uplink=top_k(10)).name
    'fedlin(uplink=error_feedback(top_k(10)))'
    """
    links = Links(
        as_link(uplink, "uplink"),
        as_link(downlink, "downlink"),
        as_link(model_uplink, "model_uplink"),
        as_link(model_downlink, "model_downlink"),
    )
    true_or_false("same_batch", same_batch)
    lossy = {name: link for name, link in links._asdict().items() if not link.lossless}

    arguments = [f"{name}={link}" for name, link in lossy.items()] + ["same_batch=True"] * same_batch

    def init_server(x: Vector) -> FedLinServer:
        return FedLinServer(
            x,
            None,
            _no_move(links.model_downlink, x) if links.as_moves else None,
            links.uplink.receiver(x),
            links.downlink.sender(x),
            links.model_uplink.receiver(x),
            links.model_downlink.sender(x),
        )

    def init_client(x: Vector) -> FedLinClient:
        return FedLinClient(
            x if links.as_moves else None,
            None,
            links.uplink.sender(x),
            links.downlink.receiver(x),
            links.model_uplink.sender(x),
            links.model_downlink.receiver(x),
        )

    def check(dim: int) -> None:
        for link in links:
            link.check(dim)

    return Algorithm(
        f"fedlin({', '.join(arguments)})" if arguments else "fedlin",
        init_server,
        init_client,
        _phases(links, same_batch, opening=False),
        opening=_phases(links, same_batch, opening=True) if any(link.full for link in lossy.values()) else None,
        requires=frozenset(_required(links)),
        check=check,
        mechanisms=private(links.uplink, links.model_uplink),
    )


def _required(links: Links) -> Iterator[Requirement]:
    if links.as_moves or links.downlink.tracks:  # who misses a move, or a message its memory follows, is lost for good
        yield Requirement.EVERY_CLIENT
    if links.as_moves:  # clients add up what the server's model moved by
        yield Requirement.OWN_MODEL
    if links.uplink.remembers or links.model_uplink.remembers:
        yield Requirement.MEAN_UPLOAD


def _no_move(link: Link, x: Vector) -> Message:
    """An encoded zero; by its shape alone, since to encode one outside a program compiles every operation by itself."""
    shapes, _ = jax.eval_shape(link.send, jax.random.key(0), link.sender(x), x)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _phases(links: Links, same_batch: bool, opening: bool) -> tuple[Phase[FedLinServer, FedLinClient], ...]:
    uplink, downlink, model_uplink, model_downlink = links
    if opening:
        uplink, downlink, model_uplink = uplink.dense, downlink.dense, model_uplink.dense
    adds_moves = links.as_moves  # whether clients keep a model that they add moves to
    as_moves = adds_moves and not opening

    def broadcast_model(state: FedLinServer) -> Message:
        return state.move if as_moves else state.x

    def send_gradient(state: FedLinClient, message: Vector, local: Local) -> tuple[FedLinClient, Message]:
        x, memory = message, state.model_move
        if as_moves:  # line 9, by its difference
            assert state.x is not None
            move, memory = model_downlink.receive(state.model_move, message)
            x = state.x + move
        draw, encode = jax.random.split(local.key)
        grad = local.oracle.full(x) if same_batch else local.oracle.grad(x, draw)
        h, rho = uplink.send(encoding_key(uplink, local, encode), state.rho, grad)  # lines 11-12
        return state._replace(x=x, grad=grad, rho=rho, model_move=memory), h

    def average_gradients(state: FedLinServer, message: Vector, central: Central) -> FedLinServer:
        mean, h = uplink.receive(state.h, message, central)
        g, e = downlink.send(central.key, state.e, mean)  # lines 14-15
        return state._replace(g=g, h=h, e=e)

    def move_locally(state: FedLinClient, message: Vector, local: Local) -> tuple[FedLinClient, Message]:
        assert state.x is not None
        assert state.grad is not None
        g, memory = downlink.receive(state.g, message)
        if same_batch:
            x = local.descend(state.x, shift=g, anchor=state.x)
        else:
            x = local.descend(state.x, shift=g - state.grad)  # line 5
        key = encoding_key(model_uplink, local, local.key)
        move, rho = model_uplink.send(key, state.model_rho, x - state.x)  # line 7
        kept = state.x if adds_moves else None
        return state._replace(x=kept, grad=None, g=memory, model_rho=rho), move

    def average_models(state: FedLinServer, message: Vector, central: Central) -> FedLinServer:
        mean, h = model_uplink.receive(state.model_h, message, central)  # line 9
        if not adds_moves:
            return state._replace(x=state.x + mean, g=None, model_h=h)
        move, e = model_downlink.send(central.key, state.model_e, mean)
        # The server's model is the one the clients hold: what the link left out stays in its memory.
        arrived, _ = model_downlink.receive(state.model_e if model_downlink.tracks else None, decode(move))
        return state._replace(x=state.x + arrived, g=None, move=move, model_h=h, model_e=e)

    # A downlink that tracks sends changes of g, and the server keeps no more than it sends.
    estimate = None if downlink.tracks else lambda state: decode(state.g)
    return (
        Phase("gradient", broadcast_model, send_gradient, average_gradients, estimate),
        Phase("model", lambda state: state.g, move_locally, average_models),
    )
