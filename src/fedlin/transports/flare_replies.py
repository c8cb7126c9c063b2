"""What FLARE's own process at the server takes of what sites reply when it starts a job or asks what runs there.

FLARE takes for granted that a site replies with a message of the form that was to be expected. Where one does not, or
refuses, or leaves meanwhile, it ends the job for all. Here each site is asked by itself, and one that replies anything
else counts as one that has not replied, without which FLARE goes on.
"""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.message import Message
from nvflare.private.admin_defs import Message as Reply
from nvflare.private.admin_defs import MsgHeader, ReturnCode
from nvflare.private.defs import ERROR_MSG_PREFIX, TrainingTopic
from nvflare.private.fed.server import admin
from nvflare.private.fed.server.message_send import ClientReply, send_requests
from nvflare.private.scheduler_constants import ShareableHeader

from fedlin.checks import printable, shown
from fedlin.transports.refusals import Refusals

_LONGEST = 1 << 16  # characters of a reply's text, some of which FLARE keeps with the job
_SHOWN = 200  # of them in a line of the log
_CHECKS = (TrainingTopic.CHECK_RESOURCE, TrainingTopic.CANCEL_RESOURCE)  # what is no text in reply


def guard_replies(engine: Any, refusals: Refusals) -> None:
    """Have no job end for all by what one site replies to FLARE's own process at the server, or by its leaving."""
    start, find = engine.start_client_job, engine.validate_targets

    def send(cell: Any, **request: Any) -> Any:
        return send_requests(cell=SiteReplies(cell, refusals), **request)

    def start_job(job: Any, sites: Collection[str], fl_ctx: Any) -> list[Any]:
        replies = {reply.client_name: reply for reply in start(job, sites, fl_ctx)}
        return [replies.get(name) or ClientReply("", name, None, None) for name in sites]

    def find_known(names: Collection[str]) -> tuple[list[Any], list[str]]:
        return find(names)[0], []

    admin.send_requests = send
    engine.start_client_job, engine.validate_targets = start_job, find_known


class SiteReplies:
    """Stands for the cell by which FLARE asks several sites, and asks each by itself.

    Args:
        cell: FLARE's.
        refusals: Where it is told who replied with something else than was to be expected.
    """

    def __init__(self, cell: Any, refusals: Refusals) -> None:
        self._cell = cell
        self._refusals = refusals

    def fire_multi_requests_and_forget(self, requests: Mapping[str, Any], optional: bool = False) -> Any:
        """Ask, and wait for no reply."""
        return self._cell.fire_multi_requests_and_forget(requests, optional=optional)

    def broadcast_multi_requests(
        self, requests: Mapping[str, Any], timeout: float, optional: bool = False
    ) -> dict[str, Message]:
        """The replies by site; that of one which has not replied as it should is empty."""
        with ThreadPoolExecutor(len(requests)) as asking:
            replies = asking.map(lambda site: self._ask(site, requests[site], timeout, optional), requests)
            return dict(zip(requests, replies, strict=True))

    def _ask(self, site: str, request: Any, timeout: float, optional: bool) -> Message:
        topic = request.message.payload.topic
        try:
            reply: Message = self._cell.broadcast_multi_requests({site: request}, timeout, optional=optional)[site]
            why = None if reply.payload is None else _fault(topic, reply.payload)
        except Exception as error:  # what a site sends is looked up, compared and added up before it gets here
            why = f"FLARE fails on it with {type(error).__name__}: {printable(str(error), _SHOWN)}"
        if why is None:
            return reply
        line = f"dropped a reply of {site} to {topic}: {why}"
        self._refusals.report(site, line, "reply dropped", sender=site, topic=topic, why=why)
        return Message()


def _fault(topic: str, reply: object) -> str | None:
    """Why what a site replies to a request of this topic is none; None where it is one."""
    headers, body = (getattr(reply, name, None) for name in ("headers", "body"))
    if not isinstance(reply, Reply) or not isinstance(headers, dict):
        return f"it is a {type(reply).__name__}, and no message"
    status = headers.get(MsgHeader.RETURN_CODE, ReturnCode.OK)
    if status not in (ReturnCode.OK, ReturnCode.ERROR):
        return f"its return code is {shown(status)}"
    if status == ReturnCode.OK and topic in _CHECKS:
        return None if isinstance(body, Shareable) and _says_enough(body) else "it does not say what is there"
    if not isinstance(body, str) or len(body) > _LONGEST:
        return f"its text is a {type(body).__name__}, or longer than {_LONGEST:,} characters"
    if topic == TrainingTopic.START_JOB and (status != ReturnCode.OK or body.startswith(ERROR_MSG_PREFIX)):
        return f"it has not started the job: {printable(body, _SHOWN)}"
    return None


def _says_enough(body: Shareable) -> bool:
    """Whether a site says if it can run a job, and under which name its part of it is reserved."""
    enough = body.get_header(ShareableHeader.IS_RESOURCE_ENOUGH, False)
    token = body.get_header(ShareableHeader.RESOURCE_RESERVE_TOKEN, "")
    return isinstance(enough, bool) and isinstance(token, str) and len(token) <= _LONGEST
