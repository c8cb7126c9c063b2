"""Rounds of two exchanges, gradients and then models, through links: FedLin, whatever its local work.

Every client sends its gradient at the model, receives all clients' mean, works from the model with both, and sends how
far it moved.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector
from fedlin.links import Link, Memory, encoding_key, private
from fedlin.payloads import decode

# (what the client knows, x̄, g, ∇f_i(x̄)) to the model that its local work ends with
LocalWork = Callable[[Local, Vector, Vector, Vector], Vector]


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

    @property
    def lossy(self) -> dict[str, Link]:
        """Those that lose something, by name."""
        return {name: link for name, link in self._asdict().items() if not link.lossless}

    @property
    def dense(self) -> "Links":
        """The same with nothing left out on three of the ways; the model comes whole by itself."""
        return Links(self.uplink.dense, self.downlink.dense, self.model_uplink.dense, self.model_downlink)


def fedlin_rounds(
    method: str,
    links: Links,
    work: LocalWork,
    *,
    options: Iterable[str] = (),
    exact_gradients: bool = False,
    opens_in_full: bool = True,
    requires: Iterable[Requirement] = (),
) -> Algorithm[FedLinServer, FedLinClient]:
    """The method of this local work; where a link loses anything, the first round sends the model whole.

    `exact_gradients` asks for ∇f_i(x̄) even where the oracle is noisy. `opens_in_full` sends everything whole at first.
    """
    arguments = [f"{name}={link}" for name, link in links.lossy.items()] + list(options)

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

    opening = None
    if any(link.full for link in links.lossy.values()) if opens_in_full else links.as_moves:
        opening = _phases(links.dense if opens_in_full else links, work, exact_gradients, False, links.as_moves)
    return Algorithm(
        f"{method}({', '.join(arguments)})" if arguments else method,
        init_server,
        init_client,
        _phases(links, work, exact_gradients, links.as_moves, links.as_moves),
        opening=opening,
        requires=frozenset([*_required(links), *requires]),
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


def _phases(
    links: Links, work: LocalWork, exact_gradients: bool, comes_as_move: bool, goes_as_move: bool
) -> tuple[Phase[FedLinServer, FedLinClient], ...]:
    """The phases of a round whose model comes whole or as a move, and which ends with one or the other."""
    uplink, downlink, model_uplink, model_downlink = links

    def broadcast_model(state: FedLinServer) -> Message:
        return state.move if comes_as_move else state.x

    def send_gradient(state: FedLinClient, message: Vector, local: Local) -> tuple[FedLinClient, Message]:
        x, memory = message, state.model_move
        if comes_as_move:  # line 9, by its difference
            assert state.x is not None
            move, memory = model_downlink.receive(state.model_move, message)
            x = state.x + move
        draw, encode = jax.random.split(local.key)
        grad = local.oracle.full(x) if exact_gradients else local.oracle.grad(x, draw)
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
        x = work(local, state.x, g, state.grad)  # line 5
        key = encoding_key(model_uplink, local, local.key)
        move, rho = model_uplink.send(key, state.model_rho, x - state.x)  # line 7
        kept = state.x if goes_as_move else None
        return state._replace(x=kept, grad=None, g=memory, model_rho=rho), move

    def average_models(state: FedLinServer, message: Vector, central: Central) -> FedLinServer:
        mean, h = model_uplink.receive(state.model_h, message, central)  # line 9
        if not goes_as_move:
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
