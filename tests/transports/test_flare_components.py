"""The components that FLARE runs for a job: what begins and ends with it, and what they do where that fails."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.apis.event_type import EventType
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

from fedlin.errors import DeployError
from fedlin.transports import flare_rejoin, flare_site
from fedlin.transports.flare import FlareTransport
from fedlin.transports.flare_job import JobPlace
from fedlin.transports.flare_messages import ANSWER, INTRODUCE, OVER, READY, UNABLE, Messenger, Sealed
from fedlin.transports.flare_rejoin import Rejoin, RunningJob
from fedlin.transports.flare_site import FlareSite

LONG = 60.0  # seconds, which no test takes


class Site:
    """A site's component whose files cannot be read so many times; `served` is set once it answers."""

    def __init__(self, patch: pytest.MonkeyPatch, failures: int) -> None:
        self.component = FlareSite()
        self.opened = self.made = 0
        self.topics: list[str] = []
        self.words = 0
        self.served = threading.Event()
        self._failures = failures
        patch.setattr(flare_site, "job_place", lambda context: JobPlace("north", Path(), "job", "", None))
        patch.setattr(flare_site, "open_log", self._open)
        patch.setattr(flare_site, "SiteAnswers", self._make)
        patch.setattr(flare_site, "_REPAIR", 0.001)
        patch.setattr(Messenger, "serve", lambda messenger, topic, answer: self.topics.append(topic))
        patch.setattr(Messenger, "send", self._send)

    def _open(self, kit: Path) -> None:
        self.opened += 1
        if self.opened <= self._failures:
            raise PermissionError("the log")

    def _make(self, place: JobPlace, server: str) -> Any:
        assert server == "server.job"
        self.made += 1
        if self.made <= self._failures:
            raise FileNotFoundError("the key")
        return SimpleNamespace(introduce=None, answer=None, identity=b"own", asked=0.0)

    def _send(self, receiver: str, topic: str, message: Sealed, timeout: float, phase: str = "") -> Sealed:
        assert (receiver, topic, message.payload) == ("server", READY, b"own")
        assert self.topics == [INTRODUCE, ANSWER]  # whoever is told of it may ask at once
        self.words += 1
        self.served.set()
        return Sealed(b"")

    @staticmethod
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "fedlin"]


@pytest.mark.parametrize("failures", [0, 3])
def test_a_site_takes_part_once_its_files_can_be_read(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """Though FLARE would go on with a process that says nothing; and the log is opened once."""
    site = Site(monkeypatch, failures)
    site.component.handle_event(EventType.START_RUN, None)
    assert site.served.wait(LONG)
    assert (site.opened, site.made) == (failures + 1, failures + 1)
    (thread,) = site.threads()
    site.component.handle_event(EventType.END_RUN, None)
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_job_that_ends_before_the_site_could_take_part_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch, failures=1 << 60)
    site.component.handle_event(EventType.START_RUN, None)
    (thread,) = site.threads()
    site.component.handle_event(EventType.END_RUN, None)
    thread.join(LONG)
    assert not thread.is_alive()
    assert not site.topics


class Engine:
    """FLARE's engine at the server, with one job that runs; `looks` counts how often its sites were looked after."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.callbacks: dict[str, Callable[[Message], Any]] = {}
        self.job_runner = SimpleNamespace(running_jobs={"job": SimpleNamespace(run_aborted=False)})
        self.run_processes: dict[str, object] = {"job": {}}
        self.looks = threading.Semaphore(0)
        self.args = SimpleNamespace(workspace="server")
        self.guarded: list[tuple[object, Path]] = []
        patch.setattr(flare_rejoin, "Refusals", lambda kit: kit)
        patch.setattr(flare_rejoin, "guard_replies", lambda *guarded: self.guarded.append(guarded))
        patch.setattr(flare_rejoin, "_LOOK", 0.001)
        patch.setattr(flare_rejoin, "_FlareProcesses", lambda engine, job: None)
        patch.setattr(flare_rejoin, "RunningJob", lambda processes: SimpleNamespace(look=self.looks.release))

    def get_engine(self) -> "Engine":
        return self

    def get_cell(self) -> "Engine":
        return self

    def register_request_cb(self, channel: str, topic: str, cb: Callable[[Message], Any]) -> None:
        self.callbacks[topic] = cb

    def say_over(self, origin: str, job: bytes) -> None:
        self.callbacks[OVER](Message({MessageHeaderKey.ORIGIN: origin}, job))

    def looked_after(self) -> bool:
        """Whether the job is looked after from now on: the first look may have begun before."""
        return self.looks.acquire(timeout=LONG) and self.looks.acquire(timeout=LONG)

    def left_alone(self) -> bool:
        """Whether looks end, which come every millisecond as long as the job is looked after."""
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            if not self.looks.acquire(timeout=0.3):
                return True
        return False


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    made, component = Engine(monkeypatch), Rejoin()
    component.handle_event(EventType.SYSTEM_START, made)
    yield made
    component.handle_event(EventType.SYSTEM_END, made)
    for thread in threading.enumerate():
        if thread.name == "fedlin-rejoin":
            thread.join(LONG)


def test_a_job_that_says_it_is_over_is_started_at_no_site_any_more(engine: Engine) -> None:
    """Its sites end a moment before FLARE's own process hears of it. Others cannot say so in its place."""
    assert engine.looked_after()
    for origin, job in (("north.job", b"job"), ("server.other", b"job"), ("server", b"job"), ("server.job", b"\xff")):
        engine.say_over(origin, job)
        assert engine.looked_after()
    engine.say_over("server.job", b"job")
    assert engine.left_alone()


def test_what_sites_reply_is_guarded_from_the_start(engine: Engine) -> None:
    assert engine.guarded == [(engine, Path("server"))]


def test_no_site_is_started_for_a_job_that_was_aborted_or_has_no_process(engine: Engine) -> None:
    assert engine.looked_after()
    engine.job_runner.running_jobs["job"].run_aborted = True
    assert engine.left_alone()
    engine.job_runner.running_jobs["job"].run_aborted = False
    assert engine.looked_after()
    del engine.run_processes["job"]
    assert engine.left_alone()


def test_a_site_whose_process_ends_now_and_then_is_back_at_once_each_time() -> None:
    """Pauses grow where starts fail one after the other, and not where each brings a process that lasts."""
    now, there, started = 0.0, {"north"}, list[float]()

    def start(name: str) -> None:
        started.append(now)
        there.add(name)

    processes = SimpleNamespace(
        connected=there.copy,
        registered=lambda: {"north": "1"},
        lacks=lambda name: True,
        start=start,
        tell_ended=lambda name: None,
    )
    job = RunningJob(processes, lambda: now, lambda work: work())
    for number in range(20):
        now = 30.0 * number + 10.0
        job.look()
        there.clear()
        job.look()
    assert started == [30.0 * number + 10.0 for number in range(20)]


def nobody_s_transport() -> FlareTransport:
    """The server's side of a job whose sites have not sent word."""

    def unused(*_: object) -> Any:
        raise AssertionError

    return FlareTransport(unused, unused, b"")


def test_a_job_that_no_site_can_start_ends_with_their_reasons() -> None:
    transport, everyone = nobody_s_transport(), {"north", "south"}
    transport.unable("north", "unsafe component (103)", everyone)
    assert transport.clients() == []  # the other one may be able to
    transport.unable("south", "config error (101)", everyone)
    for ask in (transport.clients, lambda: transport.exchange("x", b"", ["north"], LONG)):
        with pytest.raises(DeployError, match=r"north: unsafe component \(103\); south: config error \(101\)"):
            ask()
    transport.wait_for(everyone, LONG)  # and nobody is waited for


def test_no_report_ends_a_job_in_which_a_site_has_taken_part() -> None:
    """All may be killed at once, or lie: they are started again, and are missing meanwhile."""
    transport, everyone = nobody_s_transport(), {"north", "south"}
    transport.ready("north", b"its process")
    for name in everyone:
        transport.unable(name, "exception (101)", everyone)
    assert transport.clients() == ["north"]
    transport.ended("north")
    assert transport.clients() == []
    transport.close()


@pytest.mark.parametrize(
    ("payload", "code", "told"),
    [
        ({"job_id": "job", "code": 103, "reason": "unsafe\n"}, ReturnCode.OK, ["north unsafe\\n (103)"]),
        ({"job_id": "job", "code": 103, "reason": "unsafe"}, ReturnCode.UNAUTHENTICATED, []),
        ({"job_id": "another", "code": 103, "reason": "unsafe"}, ReturnCode.OK, []),
        ({"job_id": ["job"], "code": 103}, ReturnCode.OK, []),
        (b"nonsense", ReturnCode.INVALID_REQUEST, []),
    ],
)
def test_reports_that_flare_takes_are_passed_on_without_ending_the_job(
    payload: Any, code: str, told: list[str]
) -> None:
    sent: list[tuple[str, str, bytes]] = []
    codes: list[object] = []

    def process(report: Message) -> Message:
        codes.append(report.payload["code"] if isinstance(report.payload, dict) else None)
        return Message({MessageHeaderKey.RETURN_CODE: code})

    def send(channel: str, topic: str, targets: str, message: Message) -> None:
        sent.append((topic, targets, message.payload))

    cell = SimpleNamespace(core_cell=SimpleNamespace(fire_and_forget=send))
    server = SimpleNamespace(process_job_failure=process)
    engine = SimpleNamespace(run_processes={"job": None}, get_cell=lambda: cell, server=server)
    flare_rejoin.pass_on(Message({MessageHeaderKey.ORIGIN: "north"}, payload), engine)
    assert sent == [(UNABLE, "server.job", text.encode()) for text in told]
    assert codes == [None]  # with a code FLARE would end the job for all
