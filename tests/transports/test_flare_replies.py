"""What a site replies to FLARE's own process at the server does not keep a run of the others from starting.

FLARE's own functions start a job at two sites here; what sites would send comes from the test.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContextManager
from nvflare.apis.job_def import Job, JobMetaKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.stats_pool import CounterPool
from nvflare.private.admin_defs import Message as Reply
from nvflare.private.admin_defs import MsgHeader, error_reply, ok_reply
from nvflare.private.defs import TrainingTopic
from nvflare.private.fed.server import admin, job_runner
from nvflare.private.fed.server.admin import FedAdminServer
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.job_runner import JobRunner
from nvflare.private.fed.server.server_engine import ServerEngine
from nvflare.private.scheduler_constants import ShareableHeader

from fedlin.audit import AuditTrail
from fedlin.transports.flare_replies import guard_replies
from fedlin.transports.refusals import Refusals

CHECK, DEPLOY, START = TrainingTopic.CHECK_RESOURCE, TrainingTopic.DEPLOY, TrainingTopic.START_JOB
JOB = "job"
Said = Callable[[str], Message | None]  # topic -> what a site sends back


def enough(**says: Any) -> Reply:
    body = Shareable()
    body.set_header(ShareableHeader.IS_RESOURCE_ENOUGH, says.get("enough", True))
    body.set_header(ShareableHeader.RESOURCE_RESERVE_TOKEN, says.get("token", "reserved"))
    return Reply(CHECK, body)


def honest(topic: str) -> Message:
    return Message({}, {CHECK: enough(), DEPLOY: ok_reply(), START: Reply(START, "OK")}[topic])


class Federation(ServerEngine):  # type: ignore[misc] # FLARE has no types
    """FLARE's engine, whose sites say what a test has them say."""

    def __init__(self, **said: Said) -> None:
        self.said: Mapping[str, Said] = said
        self.logger = MagicMock()
        clients = {name: Client(name, f"token of {name}") for name in said}
        self.client_manager = ClientManager("fedlin")
        self.client_manager.set_clients({client.token: client for client in clients.values()})
        server = FedAdminServer.__new__(FedAdminServer)
        server.sai, server.timeout = self, 1.0
        server.clients = {c.token: SimpleNamespace(token=c.token, name=c.name, fqcn=c.name) for c in clients.values()}
        cell = MagicMock(waiters={}, req_hw=0, num_sar_reqs=0, sent_msg_counter_pool=CounterPool("", "", [], True))
        cell._send_target_messages = partial(self._carry, cell)
        server.cell = SimpleNamespace(broadcast_multi_requests=partial(CoreCell.broadcast_multi_requests, cell))
        self.server = SimpleNamespace(admin_server=server)
        self.contexts = FLContextManager(self, "server", "", {}, {})

    def new_context(self) -> Any:
        return self.contexts.new_context()

    def fire_event(self, event_type: str, fl_ctx: Any) -> None:
        pass

    def start_app_on_server(self, fl_ctx: Any, job: Any = None, job_clients: Any = None, snapshot: Any = None) -> str:
        return ""

    def _carry(self, cell: Any, requests: Mapping[str, Any]) -> dict[str, str]:
        (waiter,) = [waiter for waiter in list(cell.waiters.values()) if requests.keys() == set(waiter.targets)]
        replies = {site: self.said[site](request.message.payload.topic) for site, request in requests.items()}
        waiter.received_replies |= {site: reply for site, reply in replies.items() if reply is not None}
        waiter.set()
        return dict.fromkeys(requests, "")

    def start(self) -> list[str]:
        """Who takes part in a job that is started as FLARE does."""
        job, runner = Job(JOB, {}, {"app": list(self.said)}, {}), JobRunner("")
        job.get_application = lambda *_: b""
        with self.new_context() as fl_ctx:
            checked = self.check_client_resources(job, {name: {} for name in self.said}, fl_ctx)
            sites = {name: DispatchInfo("app", {}, token) for name, (able, token) in checked.items() if able}
            _, failed = runner._deploy_job(job, sites, fl_ctx)
            runner._start_run(JOB, job, {name: sites[name] for name in sites if name not in failed}, fl_ctx)
        return [client["name"] for client in job.meta[JobMetaKey.JOB_CLIENTS]]


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Federation], Federation]:
    """Guards a federation until the test is over."""
    monkeypatch.setattr(admin, "send_requests", admin.send_requests)
    monkeypatch.setattr(job_runner, "Workspace", MagicMock())

    def guard(federation: Federation) -> Federation:
        guard_replies(federation, Refusals(tmp_path))
        return federation

    return guard


def at(topic: str, reply: object, **headers: Any) -> Said:
    """A site that replies this to requests of one topic, and to others as it should."""
    return lambda asked: Message(headers, reply) if asked == topic else honest(asked)


def stranger() -> Reply:
    """A message whose encoding left out what every message has."""
    return Reply.__new__(Reply)


def status(code: object) -> Reply:
    reply = ok_reply()
    reply.set_header(MsgHeader.RETURN_CODE, code)
    return reply


def headed(headers: object) -> Reply:
    body = Shareable()
    body[ReservedHeaderKey.HEADERS] = headers
    return Reply(CHECK, body)


ENDING = {
    "start refused": at(START, Reply("x", "NVFLARE_ERROR: I would rather not")),
    "deploy no message": at(DEPLOY, "no message"),
    "deploy incomplete": at(DEPLOY, stranger()),
    "resource no message": at(CHECK, "no message"),
    "resource text": at(CHECK, Reply(CHECK, "enough")),
    "resource headers": at(CHECK, headed(["enough"])),
    **{
        f"return code at {topic}": at(topic, ok_reply(), **{MessageHeaderKey.RETURN_CODE: ["ok"]})
        for topic in (CHECK, DEPLOY, START)
    },
}


@pytest.mark.parametrize("reply", ENDING)
def test_what_would_end_the_run_of_all_is_no_reply(
    reply: str, guarded: Callable[[Federation], Federation], tmp_path: Path
) -> None:
    """FLARE itself ends the run for it, and with the guard the others start, and it is written down."""
    sites = {"north": honest, "south": ENDING[reply]}
    with pytest.raises((RuntimeError, AssertionError, AttributeError, TypeError, ValueError)):
        Federation(**sites).start()
    assert guarded(Federation(**sites)).start() == ["north"]
    (entry,) = AuditTrail(tmp_path).entries()
    assert (entry.facts["event"], entry.facts["sender"]) == ("reply dropped", "south")


@pytest.mark.parametrize(
    "reply",
    [
        at(CHECK, enough(enough=["yes"])), at(CHECK, enough(token={"a": 1})), at(CHECK, enough(token="a" * 70_000)),
        at(DEPLOY, ok_reply(body=["ok"])), at(DEPLOY, ok_reply(body="a" * 70_000)), at(DEPLOY, status(["_ok"])),
        at(DEPLOY, status("fine")), at(START, error_reply("not authorised")), at(START, Reply(START, None)),
    ],
    ids=lambda reply: "reply",
)  # fmt: skip
def test_replies_of_another_form_are_none(reply: Said, guarded: Callable[[Federation], Federation]) -> None:
    assert guarded(Federation(north=honest, south=reply)).start() == ["north"]


def test_who_replies_as_it_should_takes_part(guarded: Callable[[Federation], Federation], tmp_path: Path) -> None:
    assert guarded(Federation(north=honest, south=honest)).start() == ["north", "south"]
    late: Said = lambda topic: None  # noqa: E731
    for said in (late, at(CHECK, enough(enough=False)), at(DEPLOY, error_reply("no room")), at(DEPLOY, None)):
        assert guarded(Federation(north=honest, south=said)).start() == ["north"]
    assert not list(AuditTrail(tmp_path).entries())


@pytest.mark.parametrize("when", [CHECK, DEPLOY])
def test_a_site_that_leaves_while_a_job_is_started_ends_it_for_nobody(
    when: str, guarded: Callable[[Federation], Federation]
) -> None:
    """Before it is sent to the site, and before it is started there."""

    def leave(topic: str) -> Message:
        if topic == when:
            federation.client_manager.remove_client("token of south")
        return honest(topic)

    federation = Federation(north=honest, south=leave)
    with pytest.raises(RuntimeError, match="unknown clients" if when == CHECK else "not enough replies"):
        federation.start()
    federation = guarded(Federation(north=honest, south=leave))
    assert federation.start() == ["north"]
