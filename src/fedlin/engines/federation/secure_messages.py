"""What a server asks of sites in a secure sum, as bytes: the fields of each kind of message.

A masked phase is asked for by the phase's own task, with what is said about the sum after it. The task alone names the
state it leads to, so that a round that is asked again with fresh keys finds the upload that was computed before.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedlin.engines.federation import wire
from fedlin.engines.federation.secure_encoding import SumTerms
from fedlin.engines.federation.secure_keys import Attempt, read_fields, read_names, write_fields, write_names
from fedlin.engines.federation.wire import Header, Kind, Task
from fedlin.errors import WireError

_LENGTH = struct.Struct("<I")


class MaskRequest(NamedTuple):
    """What is said about the sum an upload is for."""

    attempt: Attempt
    members: list[str]
    terms: SumTerms

    def write(self) -> bytes:
        """To be put after the body of a task."""
        fields = write_fields([_number(self.attempt), write_names(self.members), self.terms.write()])
        return fields + _LENGTH.pack(len(fields))


class MaskedTask(NamedTuple):
    """A task whose upload is to be masked, taken apart."""

    header: Header  # of the task, as it is without a mask
    task: memoryview
    numbers: Task
    digest: bytes  # tells it from all others
    state: bytes  # names the state it leads to
    upload: bytes  # names the upload
    request: MaskRequest
    context: bytes  # all that every site must have been sent alike


def read_masked_task(header: Header, rest: memoryview) -> MaskedTask:
    """What a site was asked by `MaskRequest.write` after a task."""
    if len(rest) < _LENGTH.size:
        raise WireError("the message ends before it says what sum its upload is for.")
    (length,) = _LENGTH.unpack_from(rest, len(rest) - _LENGTH.size)
    end = len(rest) - _LENGTH.size - length
    if end < 0:
        raise WireError("what is said about the sum is longer than the message.")
    number, names, terms = _parse(rest[end : -_LENGTH.size], 3)
    task, _ = wire.read_task(rest[:end])
    request = MaskRequest(_attempt(header, number), read_names(names), SumTerms.read(terms))
    plain = header._replace(kind=Kind.TASK)
    body = wire.read_body_digest(rest, end)
    digest, state = wire.task_digest(plain, task, body), wire.name_state(plain, task, body)
    upload, context = wire.name_upload(plain, task, body), sum_context(plain, task.seed, body, request)
    return MaskedTask(plain, rest[:end], task, digest, state, upload, request, context)


def sum_context(header: Header, seed: int, body: bytes, request: MaskRequest) -> bytes:
    """What masks follow from besides keys: round and phase, the seed, the broadcast's digest and the sum's terms."""
    place = struct.pack("<8sIBBI", header.run, header.round, header.phase, header.opening, seed)
    return write_fields([place, body, request.write()])


def write_keys(attempt: Attempt) -> bytes:
    """Ask for keys."""
    return write_fields([_number(attempt)])


def read_keys(header: Header, rest: memoryview) -> Attempt:
    """What `write_keys` wrote."""
    return _attempt(header, *_parse(rest, 1))


def write_offered(offer: bytes, unmasked: Mapping[bytes, Sequence[str]]) -> bytes:
    """A site's keys, and in which sums its latest uploads count: it lets them be added up in no other."""
    sums = [part for upload, names in unmasked.items() for part in (upload, write_names(names))]
    return write_fields([offer, *sums])


def read_offered(body: bytes) -> tuple[bytes, dict[bytes, list[str]]]:
    """What `write_offered` wrote."""
    offer, *sums = read_fields(body) or [b""]
    if len(sums) % 2:
        raise WireError("what a site says of earlier sums cannot be read.")
    return offer, {upload: read_names(names) for upload, names in zip(sums[::2], sums[1::2], strict=True)}


def write_directory(attempt: Attempt, directory: bytes) -> bytes:
    """Send the keys of all sites, and ask for shares."""
    return write_fields([_number(attempt), directory])


def read_directory(header: Header, rest: memoryview) -> tuple[Attempt, bytes]:
    """What `write_directory` wrote."""
    number, directory = _parse(rest, 2)
    return _attempt(header, number), directory


class UnmaskRequest(NamedTuple):
    """Whose uploads arrived, who confirms it, and what others dealt to the site that is asked."""

    attempt: Attempt
    survivors: list[str]
    confirmations: Mapping[str, bytes] = {}
    envelopes: Mapping[str, bytes] = {}

    def write(self) -> bytes:
        """As bytes."""
        parts = [_number(self.attempt), write_names(self.survivors)]
        return write_fields([*parts, write_table(self.confirmations), write_table(self.envelopes)])

    @classmethod
    def read(cls, header: Header, rest: memoryview) -> "UnmaskRequest":
        """What `write` wrote."""
        number, survivors, confirmations, envelopes = _parse(rest, 4)
        return cls(_attempt(header, number), read_names(survivors), read_table(confirmations), read_table(envelopes))


def write_table(table: Mapping[str, bytes]) -> bytes:
    """Bytes by name."""
    names = sorted(table)
    return write_fields([write_names(names), *(table[name] for name in names)])


def read_table(body: bytes | memoryview) -> dict[str, bytes]:
    """What `write_table` wrote."""
    fields = read_fields(body)
    names = read_names(fields[0]) if fields else []
    if len(names) != len(fields) - 1:
        raise WireError("a table has another number of names than of entries.")
    return dict(zip(names, fields[1:], strict=True))


def _parse(rest: memoryview, count: int) -> Sequence[bytes]:
    fields = read_fields(rest)
    if len(fields) != count:
        raise WireError(f"the message has {len(fields)} fields, and {count} were expected.")
    return fields


def _number(attempt: Attempt) -> bytes:
    return attempt.number.to_bytes(8)


def _attempt(header: Header, number: bytes) -> Attempt:
    if len(number) != 8:
        raise WireError("the number of an attempt has 8 bytes.")
    return Attempt(header.run, header.round, int.from_bytes(number))
