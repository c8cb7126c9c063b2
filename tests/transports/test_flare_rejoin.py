"""Sites that come back into a job: where it is started again, and how their new processes are asked."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import test_transport_flare
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.job_def import JobMetaKey
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import CellMessageHeaderKeys, JobFailureMsgKey
from nvflare.private.fed.server.fed_server import FederatedServer
from test_transport_flare import JOB, LONG, NAMES, Hold, Site, Wire, join, threads

from fedlin.deploy.flare.authority import Authority
from fedlin.transports import flare
from fedlin.transports.flare import FlareTransport
from fedlin.transports.flare_messages import ANSWER, INTRODUCE, NOTHING
from fedlin.transports.flare_rejoin import RunningJob, _FlareProcesses, harmless, lacks
from fedlin.transports.transport import GONE

authority, wire, transport = test_transport_flare.authority, test_transport_flare.wire, test_transport_flare.transport


class Watched:
    """A job whose processes a test has come and go; what was asked and done at each look."""

    def __init__(self, **tokens: str) -> None:
        self.now = 0.0
        self.tokens = tokens  # of the sites that are registered
        self.there: set[str] = set()  # the sites whose process of the job is connected
        self.runs: set[str] = set()  # the sites that answer that the job runs there, or do not answer
        self.asked: list[tuple[float, str]] = []
        self.started: list[tuple[float, str]] = []
        self.ended: list[tuple[float, str]] = []
        self.job = RunningJob(self, lambda: self.now, lambda work: work())

    def connected(self) -> set[str]:
        return set(self.there)

    def registered(self) -> Mapping[str, str]:
        return dict(self.tokens)

    def lacks(self, name: str) -> bool:
        self.asked.append((self.now, name))
        return name not in self.runs

    def start(self, name: str) -> None:
        self.started.append((self.now, name))

    def tell_ended(self, name: str) -> None:
        self.ended.append((self.now, name))

    def wait(self, seconds: float, pause: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += pause
            self.job.look()


def test_a_site_whose_process_ends_is_told_of_once() -> None:
    job = Watched(a="1", b="1", c="1")
    job.wait(2)
    assert job.ended == []  # who has not been there has not ended
    job.there = {"a", "b", "c"}
    job.wait(2)
    job.there = {"b"}
    job.wait(100)
    assert job.ended == [(4.5, "a"), (4.5, "c")]
    job.there = {"a", "b"}
    job.wait(2)
    job.there = set()
    job.tokens = {}  # nor is its site there any more
    job.wait(100)
    assert job.ended[2:] == [(106.5, "a"), (106.5, "b")]


def test_a_site_that_lacks_the_job_is_tried_again_after_growing_pauses() -> None:
    """FLARE itself starts the job at the sites that are there at its beginning; who has left is not tried."""
    job = Watched(a="1", b="1")
    del job.tokens["b"]
    job.wait(210)
    assert job.started == [(when, "a") for when in (5, 10, 20, 40, 80, 140, 200)]
    assert job.asked == job.started


def test_who_registers_later_has_the_job_started_at_once() -> None:
    """Whether it was there before or not, and again after pauses of its own."""
    job = Watched(a="1")
    job.runs = {"a"}
    job.wait(100)
    job.runs, job.tokens = set(), {"a": "2", "b": "1"}
    job.wait(140)
    assert job.started == [(100 + when, name) for when in (0.5, 5.5, 15.5, 35.5, 75.5, 135.5) for name in "ab"]


def test_where_the_job_runs_it_is_never_started() -> None:
    job = Watched(a="1", b="1", c="1")
    job.there, job.runs = {"a"}, {"b", "c"}
    job.wait(210)
    assert job.started == []
    assert job.asked == [(when, name) for when in (5, 10, 20, 40, 80, 140, 200) for name in "bc"]
    job.runs = {"c"}
    job.wait(60)
    assert job.started == [(260, "b")]


def test_where_a_process_lasted_for_a_while_the_job_is_started_at_once_and_then_after_short_pauses() -> None:
    """However long the pauses had become; where it ends sooner, its site waits for the end of the pause."""
    job = Watched(a="1")
    job.wait(200)
    for lasts, starts in ((20, (60, 120, 180)), (100, (100.5, 105.5, 115.5, 135.5))):
        begun, job.there, job.started = job.now, {"a"}, []
        job.wait(lasts)
        job.there = set()
        job.wait(starts[-1] - lasts)
        assert job.started == [(begun + when, "a") for when in starts]


def test_who_registers_again_and_again_has_the_job_started_sooner_once_a_minute() -> None:
    job = Watched(a="1")
    for number in range(240):
        job.tokens["a"] = f"another {number}"
        job.wait(0.5)
    assert job.started == [(when, "a") for when in (2, 7, 17, 37, 62, 67, 77, 97)]


def test_a_start_that_fails_is_tried_again_after_the_pause_and_keeps_nobody_else_out() -> None:
    job, tried = Watched(a="1", b="1"), Counter[str]()

    def start(name: str) -> None:
        tried[name] += 1
        if name == "a":
            raise RuntimeError

    job.start = start  # type: ignore[method-assign]
    for now, times in ((5, 1), (9.5, 1), (10, 2), (19.5, 2), (20, 3)):
        job.wait(now - job.now)
        assert (job.now, tried) == (now, {"a": times, "b": times})


def test_a_site_that_does_not_answer_keeps_no_other_waiting() -> None:
    """Neither another site's start nor word of a process that has ended; and it is asked no second time meanwhile."""
    job, hold = Watched(a="1", b="1", c="1"), Hold()
    started, lacks = threading.Event(), job.lacks

    def answer(name: str) -> bool:
        asked = lacks(name)
        if name == "a":
            hold()
        return asked

    job.lacks, job.start = answer, lambda name: started.set()  # type: ignore[method-assign]
    job.job, job.there = RunningJob(job, lambda: job.now), {"c"}
    try:
        job.wait(5)
        assert hold.reached.wait(LONG)
        assert started.wait(LONG)
        job.there, job.runs = set(), {"c"}
        job.wait(300)
        assert job.ended == [(5.5, "c")]
        assert [name for _, name in job.asked].count("a") == 1
    finally:
        hold.go.set()


def test_sites_that_come_at_once_all_take_part() -> None:
    """Each is noted by a thread of its own."""

    class Process(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            found = super().__getitem__(key)
            time.sleep(0.01)
            return found

    names = [f"site-{number}" for number in range(8)]
    clients = {name: SimpleNamespace(name=name, token=f"new {name}", to_dict=lambda n=name: n) for name in names}
    process = Process({RunProcessKey.PARTICIPANTS: {"old": SimpleNamespace(name="site-0", to_dict=str)}})
    job = SimpleNamespace(job_id=JOB, meta={})
    processes = _FlareProcesses(SimpleNamespace(run_processes={JOB: process}, get_cell=MagicMock()), job)
    noting = [threading.Thread(target=processes._take_part, args=(clients[name],)) for name in names]
    for thread in noting:
        thread.start()
    join(*noting)
    assert process[RunProcessKey.PARTICIPANTS] == {client.token: client for client in clients.values()}
    assert sorted(job.meta[JobMetaKey.JOB_CLIENTS]) == names


CHANGES: dict[str, Callable[[Watched, str], object]] = {
    "registers": lambda job, name: job.tokens.update({name: f"{job.now}"}),
    "leaves": lambda job, name: job.tokens.pop(name, None),
    "connects": lambda job, name: job.there.add(name),
    "ends": lambda job, name: job.there.discard(name),
    "runs": lambda job, name: job.runs.add(name),
    "lacks": lambda job, name: job.runs.discard(name),
}
changes = st.tuples(st.sampled_from(sorted(CHANGES)), st.sampled_from("ab"))
delays = st.tuples(st.sampled_from((1, 6, 20, 61, 150)), st.sampled_from((0.5, 1, 3, 7)))  # seconds, between looks


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(changes, delays), max_size=16))
def test_in_whatever_order_things_happen_who_lacks_the_job_is_tried_in_time_and_not_too_often(
    events: list[tuple[tuple[str, str], tuple[float, float]]],
) -> None:
    job = Watched(a="1", b="1")
    since: dict[tuple[str, str], float] = {}  # when a registered site without the job was first seen so
    # Registration, when, the pause then, whether it lasted, and when a new registration last was the reason.
    starts = dict.fromkeys("ab", ("1", 0.0, 2.5, False, -LONG))
    for (change, changed), (seconds, pause) in events:
        before = set(job.there)
        CHANGES[change](job, changed)
        for _ in range(int(seconds / pause) + 1):
            job.started, job.ended = [], []
            job.wait(pause, pause)
            assert [name for _, name in job.ended] == sorted(before - job.there)
            before = set(job.there)
            lacking = {place for place in job.tokens.items() if place[0] not in job.there | job.runs}
            since = {place: since.get(place, job.now) for place in lacking}
            for name, (token, when, least, lasted, renewed) in starts.items():
                lasted = lasted or (name in job.there and job.now >= when + least)
                starts[name] = token, when, least, lasted, renewed
            for _, name in job.started:
                assert (name, job.tokens[name]) in lacking
                token, when, least, lasted, renewed = starts[name]
                renews = token != job.tokens[name] and job.now >= max(when + 2, renewed + 60)
                assert renews or job.now >= when + least
                least = min(2 * least, 60) if not renews and not lasted else 5
                starts[name] = job.tokens[name], job.now, least, False, job.now if renews else renewed
            latest = {name: start[1] for name, start in starts.items()}
            assert all(job.now - max(since[place], latest.get(place[0], 0)) < 60 for place in lacking)


@pytest.mark.parametrize("code", [0, 1, 9, 101, 102, 103, 104, 127, None, "102", [101]], ids=repr)
def test_no_report_of_a_site_ends_the_job_for_all(code: object) -> None:
    """FLARE's own function for such reports takes it and does nothing but note that the site is done."""
    content = {JobFailureMsgKey.JOB_ID: JOB, JobFailureMsgKey.CODE: code, JobFailureMsgKey.REASON: "crashed"}
    ended = []
    for change in (harmless, lambda report: report):
        server, report = MagicMock(), Message({CellMessageHeaderKeys.TOKEN: "token"}, dict(content))
        server.client_manager.clients = {"token": SimpleNamespace(name="a")}
        FederatedServer.process_job_failure(server, change(report))
        runner = server.engine.job_runner
        runner.resolve_client_outcome.assert_called_once_with(JOB, "a")
        ended.append(runner.fail_run.called or runner.stop_run.called)
    assert ended == [False, code in (9, 101, 102, 103, 104)]


@pytest.mark.parametrize("payload", [None, b"", "code", 9, [("code", 101)]], ids=repr)
def test_a_report_that_is_none_stays_what_it_is(payload: object) -> None:
    report = Message({"token": "1"}, payload)
    assert harmless(report) is report
    assert (report.headers, report.payload) == ({"token": "1"}, payload)


@pytest.mark.parametrize(
    "status",
    [
        "", "nonsense", "null", "7", '"running_jobs"', "[]", "{}", "[" * 100_000, "9" * 5_000, "NaN", None, 7, b"{}",
        '{"running_jobs": null}', '{"running_jobs": 7}', '{"running_jobs": "job"}', '{"running_jobs": {"job": 1}}',
        '{"running_jobs": [null]}', '{"running_jobs": [[]]}', '{"running_jobs": [{}]}', '{"running_jobs": ["job_id"]}',
        '{"running_jobs": [{"job_id": []}]}', '{"running_jobs": [{"job_id": {}}]}', '{"jobs": []}',
    ],
    ids=lambda status: repr(status)[:40],
)  # fmt: skip
def test_a_site_that_does_not_say_what_runs_there_does_not_lack_the_job(status: object) -> None:
    assert not lacks(status, "job")


def test_a_site_lacks_the_job_that_is_not_among_those_it_names() -> None:
    for others in ("", '{"job_id": "other", "status": "started"}', '{"job_id": 7}', '{"job_id": "jo"}'):
        assert lacks(f'{{"client_name": "a", "running_jobs": [{others}]}}', "job")
        running = ", ".join(filter(None, [others, '{"job_id": "job"}']))
        assert not lacks(f'{{"client_name": "a", "running_jobs": [{running}]}}', "job")


@pytest.fixture
def restarted(wire: Wire, authority: Authority) -> Callable[[], Site]:
    """Makes another process of site a, which has not sent word yet, well after the former one had."""

    def restart() -> Site:
        wire.ahead += LONG
        wire.sites["a"] = Site(authority, "a")
        return wire.sites["a"]

    return restart


def once_reached(hold: Hold, do: Callable[[], object]) -> Callable[[], None]:
    """Does something while a message is held."""

    def act() -> None:
        assert hold.reached.wait(LONG)
        do()

    return act


def test_a_new_process_takes_the_place_of_one_that_is_asked(
    transport: FlareTransport, wire: Wire, restarted: Callable[[], Site]
) -> None:
    """The exchange goes on without it at once, and what the old one answers late is not taken."""
    assert transport.exchange("x", b"", NAMES, LONG).keys() == set(NAMES)
    frozen, (old,) = wire.hold("a", "frozen"), threads("a")
    wire.faults["c", "frozen"] = once_reached(frozen, lambda: transport.ready("a", restarted().answers.identity))
    assert transport.exchange("frozen", b"0", NAMES, 9 * LONG) == {"b": b"b0", "c": b"c0"}
    assert transport.failures == {"a": GONE}
    assert transport.clients() == ["a", "b", "c"]
    assert transport.exchange("x", b"1", NAMES, LONG) == {"a": b"a1", "b": b"b1", "c": b"c1"}
    assert [topic for site, topic, *_ in wire.sent if site is wire.sites["a"]] == [INTRODUCE, ANSWER]
    frozen.go.set()
    join(old)
    assert transport.exchange("x", b"2", ["c"], LONG) == {"c": b"c2"}


def test_the_end_of_an_old_process_is_not_that_of_the_new_one(
    transport: FlareTransport, wire: Wire, restarted: Callable[[], Site]
) -> None:
    frozen, (old,) = wire.hold("a", "frozen"), threads("a")

    def lose() -> None:
        frozen()
        raise ConnectionError

    come_back = once_reached(frozen, lambda: transport.ready("a", restarted().answers.identity))
    wire.faults |= {("a", "frozen"): lose, ("c", "frozen"): come_back}
    assert transport.exchange("frozen", b"", ["a", "c"], 9 * LONG) == {"c": b"c"}
    frozen.go.set()
    join(old)
    assert transport.clients() == ["a", "b", "c"]


def test_word_of_the_same_process_changes_nothing(transport: FlareTransport, wire: Wire) -> None:
    transport.exchange("x", b"", NAMES, LONG)
    asking, held = threads("a"), wire.hold("a", "held")

    def send_word() -> None:
        assert not transport.ready("a", wire.sites["a"].answers.identity)
        held.go.set()

    wire.faults["c", "held"] = once_reached(held, send_word)
    assert transport.exchange("held", b"1", ["a", "c"], LONG) == {"a": b"a1", "c": b"c1"}
    assert (transport.failures, threads("a")) == ({}, asking)
    assert (len(wire.keys), len(wire.phases("a", INTRODUCE))) == (3, 1)


def test_a_site_that_has_ended_is_not_waited_for_until_it_sends_word(transport: FlareTransport, wire: Wire) -> None:
    frozen, identity = wire.hold("a", "frozen"), wire.sites["a"].answers.identity
    wire.faults["c", "frozen"] = once_reached(frozen, lambda: transport.ended("a"))
    assert transport.exchange("frozen", b"", NAMES, LONG) == {"b": b"b", "c": b"c"}
    assert (transport.failures, transport.clients()) == ({"a": GONE}, ["b", "c"])
    transport.ended("stranger")
    assert transport.exchange("x", b"", [*NAMES, "stranger"], LONG) == {"b": b"b", "c": b"c"}
    assert transport.failures == {"a": GONE}  # a stranger has never been there
    assert transport.exchange("x", b"", ["a", "stranger"], LONG) == {}
    assert transport.failures == {"a": GONE}
    assert not transport.ready("a", identity)
    assert transport.clients() == ["a", "b", "c"]
    assert transport.exchange("x", b"1", ["a"], LONG) == {"a": b"a1"}
    assert wire.phases("a") == ["frozen", "x"]


@pytest.mark.parametrize("lost", [INTRODUCE, "x"])
def test_a_site_that_cannot_be_reached_is_not_asked_until_it_sends_word(
    transport: FlareTransport, wire: Wire, lost: str
) -> None:
    wire.faults["a", lost] = ConnectionError()
    for _ in range(2):
        assert transport.exchange("x", b"", NAMES, LONG) == {"b": b"b", "c": b"c"}
        assert (transport.failures, transport.clients()) == ({"a": GONE}, ["b", "c"])
    assert [site.name for site, *_ in wire.sent].count("a") == 1 + (lost == "x")
    del wire.faults["a", lost]
    assert not transport.ready("a", wire.sites["a"].answers.identity)
    assert transport.exchange("x", b"1", ["a"], LONG) == {"a": b"a1"}


def test_processes_introduce_themselves_once_and_share_no_key(
    transport: FlareTransport, wire: Wire, restarted: Callable[[], Site]
) -> None:
    for _ in range(3):
        transport.exchange("x", b"1", NAMES, LONG)
    old, new, (asking,) = wire.sites["a"], restarted(), threads("a")
    assert transport.ready("a", new.answers.identity)
    join(asking)  # though there was nothing more to ask the old one
    for _ in range(3):
        transport.exchange("x", b"1", NAMES, LONG)
    introduced = [(site, message.payload) for site, topic, _, message in wire.sent if topic == INTRODUCE]
    assert Counter(site for site, _ in introduced) == dict.fromkeys((old, *wire.sites.values()), 1)
    assert {shown for _, shown in introduced} == {key.introduction for key in wire.keys}
    assert len({key.public for key in wire.keys}) == len(wire.keys) == 4
    for site, other in ((old, new), (new, old)):
        *_, message = [message for to, _, _, message in wire.sent if to is site]
        assert other.answer("x", *message) == NOTHING
        assert site.answer("x", *message).payload == b"a1"


def test_who_refused_a_call_is_introduced_to_again(
    transport: FlareTransport, wire: Wire, restarted: Callable[[], Site]
) -> None:
    """It is another process, of which no word was taken, or an introduction of before was the last to arrive."""
    assert transport.exchange("x", b"1", NAMES, LONG).keys() == set(NAMES)
    former = next(key for key in wire.keys if key.site == "a")
    for change in (restarted, lambda: wire.sites["a"].introduce(former.introduction)):
        change()
        assert transport.exchange("x", b"1", NAMES, LONG) == {"b": b"b1", "c": b"c1"}
        assert "a refused the call" in transport.failures["a"]
        assert transport.exchange("x", b"1", NAMES, LONG) == {"a": b"a1", "b": b"b1", "c": b"c1"}
        assert transport.ready("a", restarted().answers.identity)
        assert transport.exchange("x", b"1", ["a"], LONG) == {"a": b"a1"}


def test_who_did_not_answer_is_introduced_to_before_anything_else_is_sent(
    transport: FlareTransport, wire: Wire
) -> None:
    wire.faults["a", "lost"] = TimeoutError()
    assert transport.exchange("lost", b"1", ["a"], LONG) == {}
    wire.faults["a", INTRODUCE] = TimeoutError()
    assert transport.exchange("x", b"1", ["a"], LONG) == {}
    assert transport.failures == {"a": "no answer within 60 s"}
    assert wire.phases("a") == ["lost"]
    del wire.faults["a", INTRODUCE]
    assert transport.exchange("x", b"1", ["a"], LONG) == {"a": b"a1"}
    assert wire.phases("a") == ["lost", "x"]


def test_of_the_processes_that_a_site_names_one_a_second_is_taken(
    transport: FlareTransport, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flare, "time", SimpleNamespace(monotonic=lambda: wire.ahead))
    for wire.ahead, identity, taken in (
        (0, b"1", False), (0.9, b"2", False), (1, b"2", True), (1.9, b"1", False), (1.9, b"2", False), (2, b"1", True)
    ):  # fmt: skip
        assert transport.ready("d", identity) is taken
        assert transport.clients() == ["a", "b", "c", "d"]


def test_who_waits_for_sites_goes_on_once_they_are_there(transport: FlareTransport, wire: Wire) -> None:
    """Or when the job is over."""
    waiting, late = (threading.Thread(target=transport.wait_for, args=({name}, 9 * LONG), daemon=True) for name in "dx")
    waiting.start()
    assert waiting.is_alive()
    transport.ready("d", b"1")
    join(waiting)
    wire.aborted.set()
    late.start()
    join(late)
