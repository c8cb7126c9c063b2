"""The wire format: exact, compact, and impossible to crash."""

import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedlin import cast, natural, nearest, per_layer, quantize, rand_k, sign, top_k
from fedlin.compressors import identity
from fedlin.engines.federation import wire
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader, Task
from fedlin.errors import NotFiniteError, WireError
from fedlin.layers import Layers
from fedlin.payloads import Narrow, Packed, Sparse, is_payload
from fedlin.precision import precision
from fedlin.transports.transport import PREFIX, digest

RUN = b"a run id"
HEADER = Header(Kind.TASK, RUN, round=7, phase=1, opening=True)
TASK = Task(b"a base..", client=2, seed=5, tau=3, eta=0.125, place=1)
MUTATIONS = 10_000


def encoded(compressor: Any, dim: int, dtype: Any = np.float64) -> Any:
    with precision(dtype):
        vector = jnp.asarray(np.random.default_rng(dim).standard_normal(dim).astype(dtype))
        return jax.tree.map(np.asarray, jax.jit(compressor.encode)(jax.random.key(0), vector))


MESSAGES: dict[str, Callable[[], Any]] = {
    "vector": lambda: np.array([1.5, -0.0, 1e-310]),
    "vector and number": lambda: (np.arange(4.0), np.asarray(3.0)),
    "single precision": lambda: np.array([1, 2], np.float32),
    "dense": lambda: encoded(identity(), 6),
    "top_k of few": lambda: encoded(top_k(3), 40),
    "top_k of many": lambda: encoded(top_k(50), 70_000),
    "rand_k": lambda: encoded(rand_k(4), 300, np.float32),
    "quantize": lambda: encoded(quantize(4), 11),
    "quantize to powers": lambda: encoded(quantize(8), 5),
    "nearest": lambda: encoded(nearest(7), 11),
    "sign": lambda: encoded(sign(), 13),
    "natural": lambda: encoded(natural(), 7),
    "natural, single precision": lambda: encoded(natural(), 9, np.float32),
    "half precision": lambda: encoded(cast("float16"), 6),
    "half precision of some": lambda: encoded(cast("float16", top_k(3)), 40),
    "layers": lambda: encoded(
        per_layer([np.zeros(30), np.zeros(9)], lambda size: top_k(3) if size > 9 else sign()), 39
    ),
    "nothing": lambda: (),
    "both": lambda: {"a": encoded(top_k(2), 5), "b": (encoded(sign(), 9), np.ones((2, 3)))},
}


@cache
def message_of(name: str) -> Any:
    return MESSAGES[name]()


SMALL = [name for name in MESSAGES if name != "top_k of many"]
every_message = pytest.mark.parametrize("name", MESSAGES)


def same(left: Any, right: Any) -> bool:
    """Equal to the bit, structure and types included."""
    if str(jax.tree.structure(left)) != str(jax.tree.structure(right)):
        return False
    pairs = list(zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True))
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def well_formed(message: Any, like: Any) -> bool:
    """What a decoder may let through: the structure, finite numbers, indices and codes that exist."""
    nodes = jax.tree.leaves(message, is_leaf=is_payload)
    for found in [part for node in nodes for part in (node.parts if isinstance(node, Layers) else [node])]:
        with precision(np.float64):
            if is_payload(found) and not np.all(np.isfinite(found.decode())):
                return False
        node = found.payload if isinstance(found, Narrow) else found
        if isinstance(node, Sparse) and (len(set(node.indices.tolist())) < node.indices.size):
            return False
        if isinstance(node, Sparse) and not all(0 <= i < node.dim for i in node.indices.tolist()):
            return False
        if isinstance(node, Packed):
            text, bits = "".join(f"{byte:08b}" for byte in node.codes.tolist()), node.bits
            codes = [int(text[i * bits : (i + 1) * bits], 2) for i in range(node.dim)]
            if max(codes) > 2 * node.levels or "1" in text[node.dim * bits :]:
                return False
    given, expected = ([(a.shape, a.dtype) for a in jax.tree.leaves(tree)] for tree in (message, like))
    finite = all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(message))
    return given == expected and finite and str(jax.tree.structure(message)) == str(jax.tree.structure(like))


@every_message
def test_what_is_sent_arrives_to_the_bit(name: str) -> None:
    message = message_of(name)
    sent = wire.write_task(HEADER, TASK, wire.pack(message))
    header, rest = wire.read_message(sent)
    task, body = wire.read_task(rest)
    assert (header, task) == (HEADER, TASK)
    assert same(wire.unpack(body, message), message)
    answer = wire.write_reply(HEADER._replace(kind=Kind.UPLOAD), ReplyHeader(b"request.", 9), wire.pack(message))
    reply, body = wire.read_reply(wire.read_message(answer)[1])
    assert reply == ReplyHeader(b"request.", 9)
    assert same(wire.unpack(body, message), message)
    payload = sum(leaf.nbytes for leaf in jax.tree.leaves(message))
    assert (len(sent) - payload, len(answer) - payload) == (60, 36)  # as the page on federations says


def mutated(rng: np.random.Generator, message: bytes) -> bytes:
    """Bits flipped, bytes cut, added, moved, or a number made huge."""
    data, kind = bytearray(message), rng.integers(6)
    place = int(rng.integers(len(data)))
    if kind == 0:
        for _ in range(rng.integers(1, 4)):
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        data[place:place] = rng.bytes(int(rng.integers(1, 64)))
    elif kind == 3:
        del data[place : place + int(rng.integers(1, 9))]
    elif kind == 4:
        data[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), struct.pack("<d", np.inf), b"\x7f" * 8])
    else:
        data[place : place + 16] = data[: len(data[place : place + 16])]
    return bytes(data)


def resealed(message: bytes) -> bytes:
    """With the checksum a clever sender would give it."""
    head, first, rest = message[: wire.HEADER - 4], message[wire.HEADER : PREFIX], message[PREFIX:]
    checksum = zlib.crc32(struct.pack("<I", zlib.crc32(rest)), zlib.crc32(head + first))
    return head + struct.pack("<I", checksum) + first + rest


def read(message: bytes, like: Any) -> tuple[Header, Task, Any] | None:
    """Everything a client reads; None if it is refused."""
    try:
        header, rest = wire.read_message(message)
        task, body = wire.read_task(rest)
        return header, task, wire.unpack(body, like)
    except WireError:
        return None


def test_a_damaged_message_is_refused() -> None:
    """With its checksum, no mutation gets through."""
    rng, changed = np.random.default_rng(1), 0
    for turn in range(MUTATIONS):
        like = message_of(SMALL[turn % len(SMALL)])
        message = wire.write_task(HEADER, TASK, wire.pack(like))
        other = mutated(rng, message)
        if other != message:
            changed += 1
            assert read(other, like) is None
    assert changed > 0.95 * MUTATIONS


def test_a_forged_message_is_refused_or_well_formed() -> None:
    """With the checksum made right again, the structure alone protects the reader."""
    rng, refused = np.random.default_rng(2), 0
    for turn in range(MUTATIONS):
        like = message_of(SMALL[turn % len(SMALL)])
        message = resealed(mutated(rng, wire.write_task(HEADER, TASK, wire.pack(like))))
        found = read(message, like)
        if found is None:
            refused += 1
            continue
        header, task, arrived = found
        assert well_formed(arrived, like)
        assert wire.write_task(header, task, wire.pack(arrived)) == message  # nothing was read that is not there
    assert 0.3 * MUTATIONS < refused < 0.95 * MUTATIONS


def test_replies_and_facts_survive_mutation() -> None:
    rng = np.random.default_rng(3)
    reply = wire.write_reply(HEADER, ReplyHeader(b"request.", 1), wire.write_facts({"weight": 2.0, "reason": "é"}))
    for _ in range(2000):
        try:
            _, body = wire.read_reply(wire.read_message(resealed(mutated(rng, reply)))[1])
            assert isinstance(wire.read_facts(body), dict)
        except WireError:
            continue


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda: wire.unpack(b"12345678", np.broadcast_to(0.0, 10**12)), "8 bytes and this phase"),
        (lambda: wire.unpack(bytes(16), np.zeros(1)), "16 bytes"),
        (lambda: wire.read_facts(b"[" * 10_000), "cannot be read"),
        (lambda: wire.read_facts(b'"' + b"a" * 2**20 + b'"'), "at most 16384"),
        (lambda: wire.read_facts(b"[1]"), "names and values"),
        (lambda: wire.read_message(b"FdLn"), "too short"),
        (lambda: wire.read_message(resealed(b"XXXX" + wire.write_message(HEADER)[4:])), "begins with"),
        (
            lambda: wire.read_message(
                resealed(wire.write_message(HEADER)[:4] + b"\x09" + wire.write_message(HEADER)[5:])
            ),
            "version 9",
        ),
        (lambda: wire.read_task(memoryview(b"short")), "ends after 5 bytes"),
    ],
)
def test_the_reason_is_told(bad: Callable[[], object], words: str) -> None:
    with pytest.raises(WireError, match=words):
        bad()


def test_wrong_numbers_in_a_right_structure() -> None:
    sparse = Sparse(np.ones(2), np.array([1, 1], np.uint8), 5)  # type: ignore[arg-type]
    beyond = Sparse(np.ones(2), np.array([1, 5], np.uint8), 5)  # type: ignore[arg-type]
    packed = Packed(np.ones(()), np.array([255, 255], np.uint8), 3, 4, 4)  # type: ignore[arg-type]
    for message in (sparse, beyond, packed):
        with pytest.raises(WireError, match="payload has"):
            wire.unpack(wire.pack(message), message)
    with pytest.raises(NotFiniteError, match="NaN"):
        wire.unpack(wire.pack(np.array([1.0, np.nan])), np.zeros(2))
    for task in (TASK._replace(tau=0), TASK._replace(eta=float("nan")), TASK._replace(eta=-1.0)):
        with pytest.raises(WireError, match="tau = "):
            wire.read_task(wire.read_message(wire.write_task(HEADER, task, b""))[1])


def test_an_identifier_tells_messages_apart() -> None:
    first, second = (wire.write_task(HEADER, TASK._replace(client=i), b"") for i in (1, 2))
    assert wire.identify(first) != wire.identify(second)
    assert wire.identify(first) == wire.identify(bytes(first))


@pytest.mark.parametrize("length", [0, 5, 8, 9, 1000])
def test_what_is_known_of_a_broadcast_is_what_its_receiver_finds(length: int) -> None:
    """The sums that are found once for all clients are those of each whole message; every byte changes the digest."""
    body = bytes(range(256)) * 4
    for client in range(3):
        sent = wire.write_task(HEADER, TASK._replace(client=client), body[:length])
        plain = bytes(sent)
        assert digest(sent) == digest(plain)
        assert wire.read_task(wire.read_message(plain)[1])[0].client == client
        assert resealed(plain) == plain
    for place in range(0, len(plain), 7):
        other = plain[:place] + bytes([plain[place] ^ 1]) + plain[place + 1 :]
        assert digest(other) != digest(plain)
