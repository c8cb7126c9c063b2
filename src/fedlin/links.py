"""A link is a compressor with memory at both ends.

The sender turns a value v into a payload p and updates its memory; the receiver turns the decoded message
into its estimate of v and updates its own. Decoding and averaging are linear, so a server that receives
from many clients keeps one memory, the mean of theirs, and takes the mean message.

| link | sender | receiver |
|---|---|---|
| plain | p = C(v) | v̂ = p |
| error_feedback | p = C(v + ρ), ρ ← v + ρ - p | v̂ = p |
| innovation | p = C(v - h), h ← h + p | v̂ = h ← h + p |
| shifted | p = C(v - h), h ← h + α p | v̂ = h + p, h ← h + α p |

Error feedback is the paper's ρ_i and e (Algorithm 1, lines 11-15); innovation is EF21 (Richtárik et al.,
NeurIPS 2021); shifted is DIANA (Mishchenko et al., 2019). A new link is one function that returns a `Link`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import jax
import jax.numpy as jnp

from fedlin.checks import fraction
from fedlin.compressors import Compressor
from fedlin.core import Central, Key, Local, Mechanism, PyTree, Vector
from fedlin.errors import ArgumentError
from fedlin.payloads import Payload

Memory = PyTree  # None where nothing is remembered
_NOISE = 0x7FFFFFFE  # keeps the draw of a mechanism apart from those an algorithm makes with the server's key
_ENCODING = 0x7FFFFFFD  # and that of shared places apart from the coins that all clients toss together


class Receive(Protocol):
    """The receiver's part: its estimate of the value sent and its next memory, from the decoded message.

    At the server the message is the mean of many, and `central` says whose: where some clients are absent the mean is
    over those who answered and the memory is the mean over all, since the absent ones' memories have not moved.
    """

    def __call__(self, memory: Memory, message: Vector, central: Central | None = None, /) -> tuple[Vector, Memory]: ...


def _nothing(like: Vector) -> Memory:
    """No memory."""


@dataclass(frozen=True)
class Link:
    """What both ends of a message do and remember, as functions, and the facts that methods ask for.

    Attributes:
        name: How it is written; two links of equal names are taken for the same by a federation and by checkpoints.
        send: (key, the sender's memory, value) to the payload and the sender's next memory, as traced code.
        receive: (the receiver's memory, the decoded message, central) to the estimate and the receiver's next memory.
        sender: The sender's memory before the first message, from a vector of the value's shape.
        receiver: The same of the receiver. At a server with many clients it has to follow the mean of theirs.
        check: Refuses a dimension it cannot serve.
        lossless: Whether every value arrives exactly, whatever came before.
        tracks: Whether the receiver remembers. It then must not miss a message, and its memory is the sender's.
        full: The same memories with nothing left out of the message, which is how a link starts; None if it is itself.
        mechanism: What makes the value private, where something does.
        shared: Whether it encodes with a key that all clients have: see `encoding_key`.
    """

    name: str
    send: Callable[[Key, Memory, Vector], tuple[Payload, Memory]]
    receive: Receive
    sender: Callable[[Vector], Memory] = _nothing
    receiver: Callable[[Vector], Memory] = _nothing
    check: Callable[[int], None] = lambda dim: None
    lossless: bool = False
    tracks: bool = False
    full: "Link | None" = None
    mechanism: Mechanism | None = None
    shared: bool = False

    def __repr__(self) -> str:
        return self.name

    @property
    def remembers(self) -> bool:
        """Whether either end remembers: what is sent then adds up over rounds, and at a server in the mean alone."""
        return self.sender is not _nothing or self.receiver is not _nothing

    @property
    def dense(self) -> "Link":
        """The same memories with nothing left out of the message: how a link starts or recovers."""
        return self if self.full is None else self.full


def plain(compressor: Compressor) -> Link:
    """Forget what was not sent: C(v).

    Args:
        compressor: C.

    Returns:
        The link.

    >>> from fedlin.compressors import top_k
    >>> plain(top_k(1))
    plain(top_k(1))
    """
    return _plain(_known(compressor))


@cache
def _plain(compressor: Compressor) -> Link:
    mechanism = compressor.mechanism

    def send(key: Key, memory: Memory, value: Vector) -> tuple[Payload, Memory]:
        return compressor.encode(key, value), None

    def receive(memory: Memory, message: Vector, central: Central | None = None) -> tuple[Vector, Memory]:
        if mechanism is None or not mechanism.central:
            return message, None
        if central is None:
            raise ArgumentError(f"plain({compressor}) adds its noise to the mean of many uploads: use it on an uplink.")
        draw = jax.random.normal(jax.random.fold_in(central.key, _NOISE), message.shape, message.dtype)
        return message + 2 * mechanism.clip * mechanism.noise * central.largest * draw, None

    return Link(
        f"plain({compressor})",
        send,
        receive,
        check=compressor.check,
        lossless=compressor.lossless,
        full=None if compressor.dense == compressor else _plain(compressor.dense),
        mechanism=mechanism,
        shared=compressor.shared,
    )


def error_feedback(compressor: Compressor) -> Link:
    """Add what was not sent to the next value: C(v + ρ).

    Args:
        compressor: C, without noise of its own.

    Returns:
        The link.

    >>> import numpy as np
    >>> from fedlin.compressors import top_k
    >>> link = error_feedback(top_k(1))
    >>> _, memory = link.send(None, link.sender(np.zeros(2)), np.array([3.0, 2.0]))
    >>> memory.tolist()  # what was not sent
    [0.0, 2.0]
    """
    if _known(compressor).mechanism is not None:
        raise ArgumentError(
            f"error_feedback({compressor}) would send its noise again to take it back: use plain or innovation."
        )
    return _error_feedback(compressor)


@cache
def _error_feedback(compressor: Compressor) -> Link:
    def send(key: Key, memory: Memory, value: Vector) -> tuple[Payload, Memory]:
        total = value + memory
        payload = compressor.encode(key, total)
        return payload, total - payload.decode()

    def receive(memory: Memory, message: Vector, central: Central | None = None) -> tuple[Vector, Memory]:
        return message, None

    return Link(
        f"error_feedback({compressor})",
        send,
        receive,
        sender=jnp.zeros_like,
        check=compressor.check,
        lossless=compressor.lossless,
        full=None if compressor.dense == compressor else _error_feedback(compressor.dense),
        shared=compressor.shared,
    )


def innovation(compressor: Compressor) -> Link:
    """Send what changed since the receiver's last estimate: C(v - h).

    Args:
        compressor: C; noise of its own has to come from the client.

    Returns:
        The link.

    >>> import numpy as np
    >>> from fedlin.compressors import top_k
    >>> link = innovation(top_k(1))
    >>> _, memory = link.send(None, link.sender(np.zeros(2)), np.array([3.0, 2.0]))
    >>> memory.tolist()  # what the receiver knows by now
    [3.0, 0.0]
    """
    return _difference(_own_noise(_known(compressor), "innovation"), None)


def shifted(compressor: Compressor, alpha: float) -> Link:
    """Send the difference to a shift that follows slowly: C(v - h), h ← h + α C(v - h).

    Args:
        compressor: C; noise of its own has to come from the client.
        alpha: α in (0, 1], how fast the shift follows.

    Returns:
        The link.

    >>> from fedlin.compressors import top_k
    >>> shifted(top_k(1), 0.5)
    shifted(top_k(1), alpha=0.5)
    """
    pace = fraction("alpha", alpha)
    return _difference(_own_noise(_known(compressor), "shifted"), pace)


@cache
def _difference(compressor: Compressor, alpha: float | None) -> Link:
    """Both links that send differences: to the last estimate, or to a shift that follows at the pace α."""
    pace = 1.0 if alpha is None else alpha

    def send(key: Key, memory: Memory, value: Vector) -> tuple[Payload, Memory]:
        payload = compressor.encode(key, value - memory)
        return payload, memory + pace * payload.decode()

    def receive(memory: Memory, message: Vector, central: Central | None = None) -> tuple[Vector, Memory]:
        participation = 1.0 if central is None else central.participation
        moved = memory + pace * participation * message
        return (moved if alpha is None else memory + message), moved

    return Link(
        f"innovation({compressor})" if alpha is None else f"shifted({compressor}, alpha={alpha})",
        send,
        receive,
        sender=jnp.zeros_like,
        receiver=jnp.zeros_like,
        check=compressor.check,
        lossless=compressor.lossless and alpha is None,
        tracks=True,
        full=None if compressor.dense == compressor else _difference(compressor.dense, alpha),
        mechanism=compressor.mechanism,
        shared=compressor.shared,
    )


def _own_noise(compressor: Compressor, link: str) -> Compressor:
    if compressor.mechanism is not None and compressor.mechanism.central:
        raise ArgumentError(
            f"{link}({compressor}) would add up the server's noise round after round: use plain, or where='local'."
        )
    return compressor


def _known(compressor: Compressor) -> Compressor:
    if not isinstance(compressor, Compressor):
        raise ArgumentError(f"compressor = {compressor!r} is not allowed: give a compressor such as top_k(10).")
    return compressor


def as_link(value: Link | Compressor, name: str) -> Link:
    """A link as it is; a bare compressor as its error feedback, or plain where nothing is lost or all is noised.

    Args:
        value: A link or a compressor.
        name: The argument's name, for the error.

    Returns:
        The link.

    >>> from fedlin.compressors import top_k
    >>> as_link(top_k(3), "uplink")
    error_feedback(top_k(3))
    """
    if isinstance(value, Link):
        return value
    if isinstance(value, Compressor):
        return plain(value) if value.lossless or value.mechanism is not None else error_feedback(value)
    raise ArgumentError(
        f"{name} = {value!r} is neither a link nor a compressor: give one such as top_k(10) or innovation(top_k(10))."
    )


def encoding_key(encoder: Link | Compressor, local: Local, own: Key) -> Key:
    """What a client's upload is encoded with: its `own` key, or the same for all clients where they draw together.

    Args:
        encoder: The link or compressor of the upload.
        local: The client's.
        own: The client's own key.

    Returns:
        The key to encode with.
    """
    return jax.random.fold_in(local.shared_key, _ENCODING) if encoder.shared else own


def private(*uplinks: Link) -> tuple[Mechanism | None, ...]:
    """The mechanism of each uplink, or nothing where none of them is private.

    Args:
        uplinks: The link of each phase's upload, in order.

    Returns:
        A mechanism or None for each, for `Algorithm.mechanisms`; empty where all are None.
    """
    mechanisms = tuple(link.mechanism for link in uplinks)
    return mechanisms if any(mechanisms) else ()
