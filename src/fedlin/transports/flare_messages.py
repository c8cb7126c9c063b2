"""How the server and the sites of a job send each other messages through NVIDIA FLARE.

FLARE's processes are "cells" that know each other by name and pass messages on. A message that is short goes as one
message of FLARE's, and so does its reply. FLARE's calls of Python functions, and all else it streams, take twice as
many for the same: each way a part and the receipt for it. What is longer than a part is streamed, so that heartbeats
pass between its parts; a reply that turns out to be longer is kept until it is fetched that way.
"""

import logging
from collections.abc import Callable
from secrets import token_bytes
from typing import Any, NamedTuple

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

from fedlin.errors import WireError

CHANNEL = "fedlin"
READY = "ready"  # a site's process is there
ENDED = "ended"  # it is there no more, as FLARE's own process at the server tells the job's
UNABLE = "unable"  # a site reports that its process of the job has failed, as FLARE's own at the server tells the job's
OVER = "over"  # the job ends, as its process at the server tells FLARE's
INTRODUCE = "introduce"
ANSWER = "answer"
SERVER = FQCN.ROOT_SERVER  # what FLARE calls the server of every job
SHORT = 16 << 20  # bytes of a message that goes as one
FETCH = "fetch"
_PHASE, _CODE, _KEPT = "fedlin_phase", "fedlin_code", "fedlin_kept"  # in the head of a message
_UNREACHABLE = (ReturnCode.COMM_ERROR, ReturnCode.TARGET_UNREACHABLE)
_log = logging.getLogger(__name__)


class Sealed(NamedTuple):
    """Bytes, and the code that proves who sent them."""

    payload: bytes
    code: bytes = b""


NOTHING = Sealed(b"")  # the reply to who may not ask, and to what cannot be answered
Answer = Callable[[str, str, Sealed], Sealed]  # (the asking cell, phase, message) -> reply


class Messenger:
    """Sends and answers messages of a job in the cell of one of its processes."""

    def __init__(self, cell: Any, job: str) -> None:
        self.job = job
        self._cell = cell
        self._kept: tuple[bytes, Sealed] = (b"", NOTHING)  # the latest reply that was too long to go as one message

    def name(self, participant: str) -> str:
        """The cell of a participant's process of this job."""
        return str(FQCN.join([participant, self.job]))

    def send(self, participant: str, topic: str, message: Sealed, timeout: float, phase: str = "") -> Sealed:
        """The reply; `TimeoutError` where none comes in time, `ConnectionError` where nobody is there to give one."""
        streamed = len(message.payload) > SHORT
        reply = self._ask(participant, topic, message, timeout, phase, streamed=streamed)
        kept = reply.get_header(_KEPT)
        if kept:
            reply = self._ask(participant, FETCH, Sealed(b"", kept), timeout, phase, streamed=True)
        return Sealed(_whole(reply.payload), reply.get_header(_CODE) or b"")

    def serve(self, topic: str, answer: Answer, longest: int | None = None) -> None:
        """Answer messages of a topic from now on; `answer` may be called by several threads at once.

        With `longest`, the reply to what is no bytes, or more of them, is nothing, and nobody looks at it.
        """

        def reply(request: Message) -> Message:
            if longest is not None and not _is_short(request.payload, longest):
                return _reply(NOTHING)
            head = request.get_header
            message = Sealed(_whole(request.payload), head(_CODE) or b"")
            return self._reply(answer(str(head(MessageHeaderKey.ORIGIN)), str(head(_PHASE)), message), request)

        self._cell.register_request_cb(channel=CHANNEL, topic=topic, cb=reply)
        self._cell.register_request_cb(channel=CHANNEL, topic=FETCH, cb=self._fetch)

    def _reply(self, reply: Sealed, request: Message) -> Message:
        if len(reply.payload) > SHORT and not request.get_header(StreamHeaderKey.STREAM_REQ_ID):
            self._kept = token_bytes(8), reply
            return _reply(NOTHING, {_KEPT: self._kept[0]})
        return _reply(reply)

    def _fetch(self, request: Message) -> Message:
        token, kept = self._kept
        if not token or request.get_header(_CODE) != token:
            return _reply(NOTHING)
        self._kept = b"", NOTHING
        return _reply(kept)

    def _ask(
        self, participant: str, topic: str, message: Sealed, timeout: float, phase: str, *, streamed: bool
    ) -> Message:
        send = self._cell.send_request if streamed else self._cell.core_cell.send_request
        request = Message({_PHASE: phase, _CODE: message.code}, message.payload)
        target = self.name(participant)
        reply = send(channel=CHANNEL, topic=topic, target=target, request=request, timeout=timeout, optional=True)
        status = reply.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)
        if status == ReturnCode.TIMEOUT:
            raise TimeoutError
        if status in _UNREACHABLE:
            raise ConnectionError(f"{target} is not there")
        if status != ReturnCode.OK:
            raise WireError(f"{participant} failed with {status}; its own log tells why.")
        return reply


def tell(core: Any, cell: str, topic: str, text: str) -> None:
    """Send word to a process, from one that has this core of a cell, and wait for no reply."""
    core.fire_and_forget(channel=CHANNEL, topic=topic, targets=cell, message=Message({}, text.encode()))


def _reply(reply: Sealed, more: dict[str, Any] | None = None) -> Message:
    return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK, _CODE: reply.code, **(more or {})}, reply.payload)


def _is_short(payload: object, longest: int) -> bool:
    return isinstance(payload, bytes | bytearray | memoryview) and len(payload) <= longest


def _whole(payload: Any) -> bytes:
    """A payload, which FLARE may have in a view or in parts."""
    if isinstance(payload, bytes):
        return payload
    return (
        b"" if payload is None else bytes(payload) if isinstance(payload, bytearray | memoryview) else b"".join(payload)
    )
