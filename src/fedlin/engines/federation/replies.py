"""What replies say: uploads that count, uploads that do not, and refusals."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedlin.checks import printable
from fedlin.core import Message
from fedlin.engines.federation import wire
from fedlin.engines.federation.exchange import Reply
from fedlin.engines.federation.wire import Kind
from fedlin.errors import NotFiniteError, WireError
from fedlin.payloads import Sparse, decode, is_payload, size


class Refusal(NamedTuple):
    """Why a client gave no answer of the kind it was asked for."""

    why: str
    reference: str = ""  # under which the client's own log tells more: its owner can help, and then it may answer

    def __str__(self) -> str:
        return f"{self.why} [reference {self.reference} in its log]" if self.reference else self.why


def refusal(reply: Reply) -> Refusal:
    """What a reply says that is no answer."""
    if reply.kind != Kind.REFUSED:
        return Refusal(f"a {reply.kind.name} message is no answer here.")
    try:
        facts = wire.read_facts(reply.body)
    except WireError as cause:
        return Refusal(str(cause))
    reason, reference = str(facts.get("reason", "no reason given")), str(facts.get("reference", ""))
    return Refusal(printable(reason, wire.REASON_LIMIT), printable(reference[:32], 32))


class SortedReplies(NamedTuple):
    """The replies of one phase."""

    uploads: dict[str, Message]
    norms: dict[str, float]  # ‖·‖ of each upload
    calls: int
    lost: list[str]  # clients without the state they were to go on from
    rejected: dict[str, str]  # why an upload was not accepted
    refused: dict[str, Refusal]  # why a client did not accept the request
    diverged: bool  # all that came was not finite
    upload_bytes: int  # of one
    mean: Message = None  # of the uploads, where it alone is known
    states: Mapping[str, bytes] | None = None  # where each left its client, if not by what was asked just now


def sort_uploads(replies: Mapping[str, Reply], like: Message, norm_bound: float | None) -> SortedReplies:
    """Check every upload: structure, indices, finite numbers, and the norm if it is bounded."""
    uploads: dict[str, Message] = {}
    norms: dict[str, float] = {}
    rejected, refused, lost, calls, infinite = {}, {}, [], 0, 0
    for name, reply in replies.items():
        if reply.kind == Kind.LOST:
            lost.append(name)
            continue
        if reply.kind != Kind.UPLOAD:
            refused[name] = refusal(reply)
            continue
        try:
            upload = wire.unpack(reply.body, like)
            norm = _norm(upload)
            if norm_bound is not None and not norm <= norm_bound:
                raise WireError(f"the upload has norm {norm:.3g}, and {norm_bound:.3g} is allowed.")
        except WireError as cause:
            rejected[name] = str(cause)
            infinite += isinstance(cause, NotFiniteError)
            continue
        uploads[name], norms[name] = upload, norm
        calls += reply.header.calls
    diverged = infinite > 0 and infinite == len(replies)
    return SortedReplies(uploads, norms, calls, lost, rejected, refused, diverged, size(like).total)


def _norm(upload: Message) -> float:
    # The entries that a sparse payload leaves out are zero, so that its values have the norm of the whole vector.
    nodes = [node.values if isinstance(node, Sparse) else node for node in jax.tree.leaves(upload, is_leaf=is_payload)]
    return norm(jax.tree.leaves(decode(nodes)))


def norm(arrays: Iterable[Any]) -> float:
    """The norm of all entries of some arrays, in double precision; infinite where it is beyond all numbers.

    Not by BLAS, whose threads wait for one another where other processes use the cores.

    >>> norm([np.array([3.0, 0.0]), np.array([[4.0]])])
    5.0
    """
    flat = [np.asarray(array).ravel() for array in arrays]
    with np.errstate(over="ignore"):
        return float(np.sqrt(sum(np.einsum("i,i", array, array, dtype=np.float64) for array in flat)))
