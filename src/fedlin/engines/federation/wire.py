"""The messages of a federation as bytes: compact, checked, and never pickled.

    magic 4 | version 1 | kind 1 | phase 1 | opening 1 | run 8 | round 4 | checksum 4 | fields of the kind | body

All numbers are little-endian. A body is the bytes of the message's arrays one after the other, with no length and no
name: both sides know the structure from the algorithm (`jax.eval_shape`), so a body has one right size and a decoder
never allocates on a stranger's word. The checksum is a CRC-32 of the first 64 bytes and of the CRC-32 of the rest: it
finds accidents; against forgery the transport needs TLS.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum
from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np

from fedlin.core import Array, Message
from fedlin.errors import NotFiniteError, WireError
from fedlin.payloads import validate
from fedlin.transports.transport import PREFIX, Digested, combined_digest, digest, part_digest

Buffer = bytes | memoryview

MAGIC = b"FdLn"
VERSION = 3
TEXT_LIMIT = 1 << 14  # bytes of a hello, a greeting or a refusal
REASON_LIMIT = 1000  # characters of a refusal; as JSON writes them they stay within the limit
_HEAD = struct.Struct("<4sBBBB8sI")
_SUM = struct.Struct("<I")
_TASK = struct.Struct("<8sIIidII")
_REPLY = struct.Struct("<8sI")
HEADER = _HEAD.size + _SUM.size
REPLY = HEADER + _REPLY.size  # bytes of a reply that stand before its body
_FIRST = PREFIX - HEADER  # bytes after the header that stand in the prefix


class Kind(IntEnum):
    """What a message is for; those that say so go down, the others up."""

    HELLO = 1  # down: who are you, and do we speak of the same run
    BEGIN = 2  # down: go on from this model and from no memory
    TASK = 3  # down: one phase
    GREETING = 4
    BEGUN = 5
    UPLOAD = 6
    LOST = 7  # the state this task goes on from is not here
    REFUSED = 8
    EVALUATE = 9  # down: measure this model on data of your own
    METRICS = 10
    FINAL = 11  # down: the run is over, and this is its model
    RECEIVED = 12
    SUMMARISE = 13  # down: tell of the columns of a table
    PREPARE = 14  # down: what becomes of the columns
    SUMMARY = 15
    PREPARED = 16
    KEYS = 17  # down: offer keys for an attempt at a round
    SHARES = 18  # down: the keys of all; deal shares of your secrets
    MASK = 19  # down: one phase, whose upload is to be masked
    CONFIRM = 20  # down: sign whose uploads arrived
    UNMASK = 21  # down: give your shares of what is to be taken off the sum
    OFFERED = 22
    DEALT = 23
    MASKED = 24
    CONFIRMED = 25
    UNMASKED = 26
    UNFIT = 27  # the upload is not finite or beyond the bound, and was not sent


_KINDS = frozenset(Kind)


class Header(NamedTuple):
    """Where in which run a message belongs."""

    kind: Kind
    run: bytes
    round: int = 0
    phase: int = 0
    opening: bool = False


class Task(NamedTuple):
    """What the server tells one client in one phase."""

    base: bytes  # names the client's state to go on from: the identifier of the message that led to it
    client: int  # i
    seed: int
    tau: int  # τ_i
    eta: float  # η_i
    attempt: int = 0  # how many answers to this were not acceptable: another number asks for a new answer
    place: int = 0  # among those who take part in the round


class ReplyHeader(NamedTuple):
    """What a client answers."""

    request: bytes  # the identifier of the message it answers
    calls: int  # gradients taken


def identify(message: bytes) -> bytes:
    """Eight bytes that name a message by its content."""
    return digest(message)[:8]


def write_message(header: Header, rest: Buffer = b"", fields: bytes = b"") -> bytes:
    """A whole message; `fields` stand before the `rest`."""
    head, view = _head(header), memoryview(rest)
    cut = _FIRST - len(fields)  # how much of the rest stands in the prefix
    checksum = _checksum(head, fields + view[:cut], zlib.crc32(view[cut:]))
    return b"".join((head, _SUM.pack(checksum), fields, rest))


def _head(header: Header) -> bytes:
    kind, run, number, phase, opening = header
    return _HEAD.pack(MAGIC, VERSION, kind, phase, opening, run, number)


def _checksum(head: Buffer, first: Buffer, rest: int) -> int:
    """Of a message, from what stands in its prefix and the CRC of the rest."""
    return zlib.crc32(_SUM.pack(rest), zlib.crc32(first, zlib.crc32(head)))


def read_message(message: bytes, *, own: bool = False) -> tuple[Header, memoryview]:
    """The header of a message and what follows it, if the message is whole and of this version.

    One's `own` message is whole, and its checksum is not looked at.

    >>> header, rest = read_message(write_message(Header(Kind.BEGUN, b"12345678", round=3), b"body"))
    >>> header.round, bytes(rest)
    (3, b'body')
    """
    if len(message) < HEADER:
        raise WireError(f"a message of {len(message)} bytes is too short: every message has at least {HEADER}.")
    view = memoryview(message)
    magic, version, kind, phase, opening, run, number = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise WireError(f"the message begins with {magic!r}, and fedlin's begin with {MAGIC!r}.")
    if version != VERSION:
        raise WireError(f"the message is of version {version} and this side speaks {VERSION}: install the same fedlin.")
    (checksum,) = _SUM.unpack_from(view, _HEAD.size)
    if not own and checksum != _checksum(view[: _HEAD.size], view[HEADER:PREFIX], zlib.crc32(view[PREFIX:])):
        raise WireError("the message was damaged on the way: its checksum does not match.")
    if kind not in _KINDS or opening > 1 or number >= 2**31:
        raise WireError(f"the header says kind {kind}, opening {opening}, round {number}: one is out of range.")
    return Header(Kind(kind), run, number, phase, bool(opening)), view[HEADER:]


class Sums(NamedTuple):
    """What a body adds to the checksum and the digest of the messages it is part of."""

    checksum: int
    digest: bytes


_latest: tuple[bytes, Sums] = (b"", Sums(0, b""))  # a body, and its sums


def write_task(header: Header, task: Task, body: bytes) -> bytes:
    """A phase's message to one client; the sums of a body that goes to many are found once."""
    global _latest
    cut = _FIRST - _TASK.size  # how much of the body stands in the prefix
    known = _latest
    if body is not known[0]:
        rest = memoryview(body)[cut:]
        known = body, Sums(zlib.crc32(rest), hashlib.sha256(rest).digest())
        _latest = known
    head, fields, sums = _head(header), _TASK.pack(*task), known[1]
    checksum = _checksum(head, fields + body[:cut], sums.checksum)
    message = Digested(b"".join((head, _SUM.pack(checksum), fields, body)))
    message.digest = combined_digest(message, sums.digest)
    return message


def task_digest(header: Header, task: Task, body: bytes) -> bytes:
    """32 bytes that tell a task from any other, also from one that was sought to be taken for it.

    Its body is given by its digest.
    """
    return hashlib.sha256(_head(header) + _TASK.pack(*task) + body).digest()


def name_state(header: Header, task: Task, body: bytes) -> bytes:
    """Eight bytes that name the state a task leads to, whatever else is said in the message that brings it."""
    return task_digest(header, task, body)[:8]


def name_upload(header: Header, task: Task, body: bytes) -> bytes:
    """Eight bytes that name what a task computes, also where it is asked for as a new answer."""
    return name_state(header, task._replace(attempt=0), body)


def body_digest(body: bytes) -> bytes:
    """SHA-256 of the beginning of a task's body, which stands in the prefix, and of the SHA-256 of the rest."""
    cut = _FIRST - _TASK.size
    return hashlib.sha256(body[:cut] + hashlib.sha256(memoryview(body)[cut:]).digest()).digest()


def read_body_digest(rest: memoryview, end: int) -> bytes:
    """`body_digest` of the task that a message has in its `rest` up to `end`; what `identify` hashed is used again."""
    message = rest.obj
    assert isinstance(message, bytes)
    first = bytes(rest[_TASK.size : min(_FIRST, end)])
    return hashlib.sha256(first + part_digest(message, HEADER + end)).digest()


def read_task(rest: memoryview) -> tuple[Task, memoryview]:
    """The numbers and the body of a phase's message."""
    task = Task(*_fields(_TASK, rest))
    if task.tau < 1 or not (np.isfinite(task.eta) and task.eta > 0):
        raise WireError(f"the task says tau = {task.tau}, eta = {task.eta}: both must be finite and above 0.")
    return task, rest[_TASK.size :]


def write_reply(header: Header, reply: ReplyHeader, body: bytes = b"") -> bytes:
    """A client's answer."""
    return write_message(header, body, _REPLY.pack(*reply))


def write_refusal(header: Header, request: bytes, reason: str, reference: str = "") -> bytes:
    """A client's reply to a request it will not meet; a `reference` stands for what only the client's own log tells."""
    facts = write_facts({"reason": reason[:REASON_LIMIT], "reference": reference})
    return write_reply(header._replace(kind=Kind.REFUSED), ReplyHeader(request, 0), facts)


def read_reply(rest: memoryview) -> tuple[ReplyHeader, memoryview]:
    """Which request an answer belongs to, and its body."""
    return ReplyHeader(*_fields(_REPLY, rest)), rest[_REPLY.size :]


def _fields(layout: struct.Struct, rest: memoryview) -> tuple[Any, ...]:
    if len(rest) < layout.size:
        raise WireError(f"the message ends after {len(rest)} bytes of its {layout.size} bytes of fields.")
    return layout.unpack_from(rest)


def write_facts(facts: Mapping[str, Any]) -> bytes:
    """Names and plain values, for a hello, a greeting or a refusal."""
    return json.dumps(facts).encode()


def read_facts(body: Buffer) -> dict[str, Any]:
    """What `write_facts` wrote."""
    if len(body) > TEXT_LIMIT:
        raise WireError(f"the message has {len(body)} bytes of text: at most {TEXT_LIMIT} are read.")
    try:
        facts = json.loads(bytes(body))
    except (ValueError, RecursionError) as cause:
        raise WireError("the message's text cannot be read.") from cause
    if not isinstance(facts, dict):
        raise WireError("the message's text does not hold names and values.")
    return facts


def is_finite(value: Any) -> bool:
    """Whether what stands in a message's text is a number that can be counted with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def pack(message: Message) -> bytes:
    """The arrays of a message, one after the other."""
    return b"".join(_little(np.asarray(leaf)).tobytes() for leaf in jax.tree.leaves(message))


def unpack(body: Buffer, like: Message) -> Message:
    """The message of this structure, with every array checked: its size, its numbers, its indices and codes.

    >>> structure = np.zeros(2)
    >>> unpack(pack(np.array([1.0, 2.0])), structure)
    array([1., 2.])
    """
    leaves, tree = jax.tree.flatten(like)
    sizes = [prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in leaves]
    if len(body) != sum(sizes):
        raise WireError(f"the message has a body of {len(body)} bytes and this phase's has {sum(sizes)}.")
    arrays, first = [], 0
    for leaf, length in zip(leaves, sizes, strict=True):
        stored = np.frombuffer(body[first : first + length], np.dtype(leaf.dtype).newbyteorder("<"))
        array = stored.astype(leaf.dtype, copy=False).reshape(leaf.shape)
        if not np.all(np.isfinite(array)):
            raise NotFiniteError("the message holds NaN or infinite numbers.")
        arrays.append(array)
        first += length
    message = jax.tree.unflatten(tree, arrays)
    validate(message)
    return message


def _little(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)
