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
NeurIPS 2021); shifted is DIANA (Mishchenko et al., 2019).
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import jax
import jax.numpy as jnp

from fedlin.checks import real
from fedlin.compressors import Compressor
from fedlin.core import Central, Key, Mechanism, Vector
from fedlin.errors import ArgumentError
from fedlin.payloads import Payload

Memory = Vector | None  # None where nothing is remembered
Rule = Literal["plain", "error_feedback", "innovation", "shifted"]
_NOISE = 0x7FFFFFFE  # keeps the draw of a mechanism apart from those an algorithm makes with the server's key


@dataclass(frozen=True)
class Link:
    """A compressor and the rule by which both ends remember."""

    compressor: Compressor
    rule: Rule
    alpha: float

    def __repr__(self) -> str:
        alpha = f", alpha={self.alpha}" if self.rule == "shifted" else ""
        return f"{self.rule}({self.compressor}{alpha})"

    @property
    def lossless(self) -> bool:
        """Whether every value arrives exactly, whatever came before."""
        return self.compressor.lossless and self.rule != "shifted"

    @property
    def tracks(self) -> bool:
        """Whether the receiver must remember, and so must not miss a message."""
        return self.rule in ("innovation", "shifted")

    @property
    def dense(self) -> "Link":
        """The same memories with nothing left out of the message: how a link starts or recovers."""
        return replace(self, compressor=self.compressor.dense)

    def check(self, dim: int) -> None:
        """Refuse a dimension the compressor cannot serve."""
        self.compressor.check(dim)

    def sender(self, like: Vector) -> Memory:
        """The sender's memory before the first message."""
        return None if self.rule == "plain" else jnp.zeros_like(like)

    def receiver(self, like: Vector) -> Memory:
        """The receiver's memory before the first message."""
        return jnp.zeros_like(like) if self.tracks else None

    def send(self, key: Key, memory: Memory, value: Vector) -> tuple[Payload, Memory]:
        """Encode `value` against the sender's memory."""
        if memory is None:
            return self.compressor.encode(key, value), None
        if self.rule == "error_feedback":
            total = value + memory
            payload = self.compressor.encode(key, total)
            return payload, total - payload.decode()
        payload = self.compressor.encode(key, value - memory)
        return payload, memory + self.alpha * payload.decode()

    def receive(self, memory: Memory, message: Vector, central: Central | None = None) -> tuple[Vector, Memory]:
        """The estimate of the value sent, from the decoded message, or from the mean of many at the server.

        Where some clients are absent the mean is over those who answered, and the memory is the mean over
        all: the absent ones' memories have not moved.
        """
        if memory is None:
            return self._hide(message, central), None
        participation = 1.0 if central is None else central.participation
        moved = memory + self.alpha * participation * message
        return (moved if self.rule == "innovation" else memory + message), moved

    def _hide(self, mean: Vector, central: Central | None) -> Vector:
        mechanism = self.compressor.mechanism
        if mechanism is None or not mechanism.central:
            return mean
        if central is None:
            raise ArgumentError(f"{self} adds its noise to the mean of many uploads: use it on an uplink.")
        draw = jax.random.normal(jax.random.fold_in(central.key, _NOISE), mean.shape, mean.dtype)
        return mean + 2 * mechanism.clip * mechanism.noise * central.largest * draw


def plain(compressor: Compressor) -> Link:
    """Forget what was not sent: C(v).

    >>> from fedlin.compressors import top_k
    >>> plain(top_k(1))
    plain(top_k(1))
    """
    return _link(_known(compressor), "plain")


def error_feedback(compressor: Compressor) -> Link:
    """Add what was not sent to the next value: C(v + ρ).

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
    return _link(compressor, "error_feedback")


def innovation(compressor: Compressor) -> Link:
    """Send what changed since the receiver's last estimate: C(v - h).

    >>> import numpy as np
    >>> from fedlin.compressors import top_k
    >>> link = innovation(top_k(1))
    >>> _, memory = link.send(None, link.sender(np.zeros(2)), np.array([3.0, 2.0]))
    >>> memory.tolist()  # what the receiver knows by now
    [3.0, 0.0]
    """
    return _link(_own_noise(_known(compressor), "innovation"), "innovation")


def shifted(compressor: Compressor, alpha: float) -> Link:
    """Send the difference to a shift that follows slowly: C(v - h), h ← h + α C(v - h).

    >>> from fedlin.compressors import top_k
    >>> shifted(top_k(1), 0.5)
    shifted(top_k(1), alpha=0.5)
    """
    return _link(
        _own_noise(_known(compressor), "shifted"),
        "shifted",
        real("alpha", alpha, lambda a: 0 < a <= 1, "a number in (0, 1]"),
    )


@cache
def _link(compressor: Compressor, rule: Rule, alpha: float = 1.0) -> Link:
    return Link(compressor, rule, alpha)


def _own_noise(compressor: Compressor, rule: str) -> Compressor:
    if compressor.mechanism is not None and compressor.mechanism.central:
        raise ArgumentError(
            f"{rule}({compressor}) would add up the server's noise round after round: use plain, or where='local'."
        )
    return compressor


def _known(compressor: Compressor) -> Compressor:
    if not isinstance(compressor, Compressor):
        raise ArgumentError(f"compressor = {compressor!r} is not allowed: give a compressor such as top_k(10).")
    return compressor


def as_link(value: Link | Compressor, name: str) -> Link:
    """A link as it is; a bare compressor as its error feedback, or plain where nothing is lost or all is noised.

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


def private(*uplinks: Link) -> tuple[Mechanism | None, ...]:
    """The mechanism of each uplink, or nothing where none of them is private."""
    mechanisms = tuple(link.compressor.mechanism for link in uplinks)
    return mechanisms if any(mechanisms) else ()
