"""NVIDIA FLARE as a carrier of bytes; the tests of whole federations are in test_federation_flare.py."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from fedlin.audit import AuditTrail
from fedlin.deploy.flare.authority import Authority, make_key
from fedlin.deploy.flare.kits import Place, write_kits
from fedlin.errors import WireError
from fedlin.transports import flare, flare_site, refusals
from fedlin.transports.flare import FlareTransport, JobAbortedError
from fedlin.transports.flare_job import JobPlace
from fedlin.transports.flare_messages import ANSWER, INTRODUCE, NOTHING, Sealed
from fedlin.transports.flare_site import SiteAnswers
from fedlin.transports.message_codes import Channel, Context, JobKey
from fedlin.transports.signatures import Sender, Signer
from fedlin.transports.transport import Handler

NAMES = ("a", "b", "c")
JOB = "job-1"
SERVER = f"server.{JOB}"  # the cell of the server's process
LONG = 60.0  # seconds, which no test takes
Fault = Exception | Callable[[], object]  # what becomes of a message: an error, or something done before it arrives


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A federation's certificates: the server's, called host, and those of three sites."""
    folder = tmp_path_factory.mktemp("federation")
    made = Authority.create(folder / "authority")
    write_kits(folder, made, Place("host", "127.0.0.1", 8002), {name: name for name in ("host", *NAMES)})
    return made


def job_key(authority: Authority, owner: str, site: str, job: str = JOB) -> JobKey:
    """A participant's, for a site's messages of a job."""
    role = "server" if owner == "host" else "client"
    return JobKey(Signer(authority.folder.parent / owner / "startup", role), job, site)


class Site:
    """A site's process; `caller` is whom FLARE takes the caller for."""

    def __init__(self, authority: Authority, name: str) -> None:
        self.name = name
        self.kit = authority.folder.parent / name
        self.answers = SiteAnswers(JobPlace(name, self.kit, JOB, "", None), SERVER)
        self.caller = SERVER

    def introduce(self, introduction: bytes) -> bytes:
        return self.answers.introduce(self.caller, "", Sealed(introduction)).payload

    def answer(self, phase: str, payload: bytes, code: bytes) -> Sealed:
        return self.answers.answer(self.caller, phase, Sealed(payload, code))

    def channel(self, authority: Authority) -> Channel:
        """The server's, once the two have introduced themselves."""
        key = job_key(authority, "host", self.name)
        channel = Channel(authority.root, self.name, key)
        channel.introduce(self.introduce(key.introduction))
        return channel


class Hold:
    """Keeps whoever comes here until it is let go."""

    def __init__(self) -> None:
        self.reached, self.go, self.passed = threading.Event(), threading.Event(), False

    def __call__(self) -> None:
        self.reached.set()
        self.go.wait(2 * LONG)
        self.passed = True


def echo(name: str, kit: str, sent: str) -> Handler:
    return lambda phase, payload: name.encode() + payload


class Wire:
    """Carries messages to the sites' present processes."""

    def __init__(self, authority: Authority) -> None:
        self.sites = {name: Site(authority, name) for name in reversed(NAMES)}
        self.program: Callable[[str, str, str], Handler] = echo  # of every site
        self.sent: list[tuple[Site, str, str, Sealed]] = []  # to whom, topic, phase, message
        self.faults: dict[tuple[str, str], Fault] = {}  # by site, and phase or topic
        self.holds: list[Hold] = []
        self.keys: list[JobKey] = []  # the server's
        self.aborted = threading.Event()
        self.ahead = 0.0  # seconds that have passed for the transport alone
        self.transport = FlareTransport(self, self._make_key, authority.root, self.aborted.is_set)
        self._authority = authority

    def __call__(self, name: str, topic: str, message: Sealed, timeout: float, phase: str) -> Sealed:
        site, fault = self.sites[name], self.faults.get((name, phase or topic), lambda: None)
        self.sent.append((site, topic, phase, message))
        if isinstance(fault, Exception):
            raise fault
        fault()
        return Sealed(site.introduce(message.payload)) if topic == INTRODUCE else site.answer(phase, *message)

    def hold(self, name: str, phase: str) -> Hold:
        self.holds.append(Hold())
        self.faults[name, phase] = self.holds[-1]
        return self.holds[-1]

    def phases(self, name: str, topic: str = ANSWER) -> list[str]:
        return [phase for site, sent, phase, _ in self.sent if (site.name, sent) == (name, topic)]

    def _make_key(self, site: str) -> JobKey:
        self.keys.append(job_key(self._authority, "host", site))
        return self.keys[-1]


@pytest.fixture
def wire(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A federation whose sites have sent word."""
    made = Wire(authority)
    monkeypatch.setattr(flare_site, "program", lambda: made.program)
    monkeypatch.setattr(flare, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + made.ahead))
    for name, site in made.sites.items():
        assert not made.transport.ready(name, site.answers.identity)
    yield made
    made.transport.close()
    for hold in made.holds:
        hold.go.set()
    join(*threads(*NAMES))


@pytest.fixture
def transport(wire: Wire) -> FlareTransport:
    return wire.transport


def threads(*names: str) -> list[threading.Thread]:
    """Those that ask these sites."""
    return [thread for thread in threading.enumerate() if thread.name in {f"fedlin-{name}" for name in names}]


def join(*ending: threading.Thread) -> None:
    for thread in ending:
        thread.join(LONG)
        assert not thread.is_alive()


def test_messages_arrive(transport: FlareTransport) -> None:
    assert transport.clients() == ["a", "b", "c"]
    assert transport.exchange("x", b"1", NAMES, LONG) == {"a": b"a1", "b": b"b1", "c": b"c1"}
    assert transport.exchange("x", {"a": b"1", "c": b"3"}, ["c", "a"], LONG) == {"a": b"a1", "c": b"c3"}
    assert transport.failures == {}


def test_who_is_late_fails_or_is_unknown_is_absent_and_told(transport: FlareTransport, wire: Wire) -> None:
    frozen, held = wire.hold("a", "frozen"), wire.hold("c", "held")

    def time_passes(replies: Mapping[str, bytes]) -> bool:
        wire.ahead += 99.5 * (replies.keys() == {"b", "c"})
        return False

    assert transport.exchange("frozen", b"", NAMES, 99.5, time_passes) == {"b": b"b", "c": b"c"}
    assert transport.failures == {"a": "no answer within 99.5 s"}
    assert transport.exchange("x", b"", NAMES, LONG, lambda replies: len(replies) == 2).keys() == {"b", "c"}
    wire.faults["b", "fail"] = RuntimeError("gone")
    assert transport.exchange("fail", b"", ["b", "c", "stranger"], LONG) == {"c": b"c"}
    assert transport.failures == {"b": "the call failed with RuntimeError: gone"}
    wire.faults["b", "lost"] = TimeoutError()
    assert transport.exchange("lost", b"", ["b", "c"], LONG) == {"c": b"c"}
    assert transport.failures == {"b": "no answer within 60 s"}
    wire.faults["b", "ended"] = ConnectionError("nobody is there")
    assert transport.exchange("ended", b"", ["b", "c"], LONG) == {"c": b"c"}
    assert transport.failures == {"b": "its process has ended, or its connection is gone"}

    def late(replies: Mapping[str, bytes]) -> bool:
        if "a" in replies:
            held.go.set()
        return False

    frozen.go.set()
    found = transport.exchange("held", b"1", ["c"], LONG, late)
    assert found == {"a": b"a", "c": b"c1"}  # its late answer comes with a later exchange


def test_a_site_that_is_frozen_has_one_call_and_then_the_newest_request(transport: FlareTransport, wire: Wire) -> None:
    frozen = wire.hold("a", "frozen")

    def others_answered(replies: Mapping[str, bytes]) -> bool:
        return len(replies) == 2 and frozen.reached.is_set()  # whose thread may begin last

    assert transport.exchange("frozen", b"0", NAMES, LONG, others_answered).keys() == {"b", "c"}
    for number in range(5):
        found = transport.exchange(f"x{number}", b"", NAMES, LONG, lambda replies: len(replies) == 2)
        assert found.keys() == {"b", "c"}
    assert wire.phases("a") == ["frozen"]
    wire.faults["c", "y"], held = frozen.go.set, wire.hold("a", "y")

    def all_else_answered(replies: Mapping[str, bytes]) -> bool:
        if replies == {"a": b"a0", "b": b"b1", "c": b"c1"}:
            held.go.set()
        return False

    replies = transport.exchange("y", b"1", NAMES, LONG, all_else_answered)
    assert replies == {"a": b"a1", "b": b"b1", "c": b"c1"}  # what came late does not stand for it
    assert wire.phases("a") == ["frozen", "y"]


def test_an_aborted_job_is_over(transport: FlareTransport, wire: Wire) -> None:
    wire.faults["c", "abort"] = wire.aborted.set
    with pytest.raises(JobAbortedError):
        transport.exchange("abort", b"", ["c"], LONG)  # though all have answered
    wire.aborted.clear()
    held = wire.hold("a", "abort")
    with pytest.raises(JobAbortedError):
        transport.exchange("abort", b"", NAMES, 9 * LONG)
    assert not held.passed  # nobody is waited for
    for nobody in (["c"], ["stranger"], []):  # also where nobody is left to wait for
        with pytest.raises(JobAbortedError):
            transport.exchange("x", b"", nobody, LONG)
    with pytest.raises(JobAbortedError):
        transport.clients()


def test_no_exchange_goes_on_once_the_question_whether_replies_are_enough_has_failed(transport: FlareTransport) -> None:
    def fail(replies: Mapping[str, bytes]) -> bool:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            transport.exchange("x", b"", NAMES, LONG, fail)


def test_a_site_answers_the_server_alone(
    transport: FlareTransport,
    wire: Wire,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a site by its own name, nor one that FLARE takes for the server: the code is missing or wrong."""
    monkeypatch.setattr(refusals, "time", SimpleNamespace(monotonic=count(0.0, 60.0).__next__))  # each is told
    victim, other = wire.sites["a"], job_key(authority, "b", "b")
    between = Channel(authority.root, "c", other)  # b's codes, under whatever keys it has agreed on
    between.introduce(job_key(authority, "c", "b").introduction)
    own = between.code(Context(JOB, "a", "x"), b"1")
    server = job_key(authority, "host", "a").introduction
    for caller in (f"b.{JOB}", "server", "server.job-0", f"{SERVER}.b", ""):
        victim.caller = caller
        assert victim.introduce(server) == b""  # which is good, and was shown to another
        assert victim.answer("x", b"1", own) == NOTHING
        assert f"refused a call in the name of {caller!r}: sites answer the server alone" in caplog.text
        *_, last = AuditTrail(victim.kit).entries()
        assert (last.facts["event"], last.facts["caller"], last.facts["phase"]) == ("call refused", caller, "x")
    victim.caller = SERVER
    for introduction in (b"", other.introduction, job_key(authority, "host", "b").introduction, b"no introduction"):
        assert victim.introduce(introduction) == b""
        assert victim.answer("x", b"1", own) == NOTHING
    assert "the certificate is in the name of ['b'], and host was expected" in caplog.text
    transport.exchange("x", b"1", NAMES, LONG)  # the server has introduced itself, and still
    for code in (own, b"", bytes(28)):
        assert victim.answer("x", b"1", code) == NOTHING
    assert "host did not send this message" in caplog.text


def test_refused_calls_fill_no_disk_at_a_site(wire: Wire) -> None:
    """Whoever asks chooses the name, the phase and what is wrong with the message."""
    site = wire.sites["a"]
    before = len(list(AuditTrail(site.kit).entries()))
    for number in range(100):
        site.answers.answer(f"stranger-{number}", f"phase-{number}", Sealed(b""))
        site.answers.introduce(SERVER, "", Sealed(b"no introduction"))
    first, second = [entry.facts for entry in AuditTrail(site.kit).entries()][before:]
    assert (first["event"], first["caller"], first["phase"]) == ("call refused", "stranger-0", "phase-0")
    assert (second["caller"], second["phase"]) == (SERVER, "introduction")


def test_a_message_of_the_server_serves_for_nothing_else(wire: Wire, authority: Authority) -> None:
    site, other = wire.sites["a"], wire.sites["b"]
    channel = site.channel(authority)
    other.channel(authority)
    code = channel.code(Context(JOB, "a", "x"), b"1")
    assert site.answer("x", b"1", code)[0] == b"a1"
    assert other.answer("x", b"1", code)[0] == b""  # another site
    assert site.answer("y", b"1", code)[0] == b""  # another phase
    assert site.answer("x", b"2", code)[0] == b""  # other bytes
    assert site.answer("x", b"1", channel.code(Context("job-0", "a", "x"), b"1"))[0] == b""  # another job
    reply, back = site.answer("x", b"1", channel.code(Context(JOB, "a", "x"), b"1"))
    assert site.answer("x", reply, back)[0] == b""  # the site's own words
    with pytest.raises(WireError, match="a did not send this message"):
        channel.check(Context(JOB, "a", "x", code), reply, back)  # which are for one request


def test_a_site_is_told_nothing_but_by_its_own_keys(wire: Wire, authority: Authority) -> None:
    """Two sites that the same server speaks with have codes of different keys, each way."""
    channels = {name: wire.sites[name].channel(authority) for name in ("a", "b")}
    context = Context(JOB, "a", "x")
    with pytest.raises(WireError, match="a did not send this message"):
        channels["a"].check(context, b"1", channels["a"].code(context, b"1"))  # what it sent itself
    assert wire.sites["a"].answer("x", b"1", channels["b"].code(context, b"1"))[0] == b""
    codes = [channels["a"].code(context, b"1") for _ in range(100)]
    assert len({code[:12] for code in codes}) == 100  # no number is used twice


def test_a_reply_of_another_site_is_not_taken(
    transport: FlareTransport, wire: Wire, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answers in a site's place has neither its certificate nor, later, its key."""
    other = job_key(authority, "b", "a")
    channel = Channel(authority.root, "host", other)
    channel.introduce(job_key(authority, "host", "a").introduction)

    def forged(phase: str, payload: bytes, code: bytes) -> Sealed:
        return Sealed(b"b1", channel.code(Context(JOB, "a", phase, code), b"b1"))

    for why in ("the certificate is in the name of ['b']", "a did not send this message"):
        with monkeypatch.context() as patch:
            patch.setattr(wire.sites["a"], "introduce", lambda introduction: other.introduction)
            patch.setattr(wire.sites["a"], "answer", forged)
            assert transport.exchange("x", b"1", ["a"], LONG) == {}
            assert why in transport.failures["a"]
        assert transport.exchange("x", b"1", ["a"], LONG) == {"a": b"a1"}


def test_who_sends_nothing_back_has_refused_the_call(transport: FlareTransport, wire: Wire) -> None:
    assert transport.exchange("x", b"1", ["a"], LONG) == {"a": b"a1"}
    wire.sites["a"].caller = f"b.{JOB}"
    assert transport.exchange("x", b"1", ["a", "b"], LONG) == {"b": b"b1"}
    assert transport.failures == {"a": "the call failed with WireError: a refused the call; its own log tells why."}
    assert "a" in transport.clients()


def test_a_certificate_that_is_over_or_of_another_authority_introduces_nobody(
    authority: Authority, tmp_path: Path
) -> None:
    sender = Sender(authority.root, "host")
    with pytest.raises(WireError, match="came without a certificate of host"):
        sender.signed(b"", b"")
    channel = Channel(authority.root, "host", job_key(authority, "a", "a"))
    with pytest.raises(WireError, match="came without an introduction of host"):
        channel.check(Context(JOB, "a", "x"), b"", b"")
    with pytest.raises(WireError, match="came without an introduction of host"):
        channel.code(Context(JOB, "a", "x"), b"")
    key, long_ago = make_key()[0].public_key(), datetime.now(UTC) - timedelta(days=40)
    for certificate, told in (
        (authority.issue("host", key, start=long_ago, days=30), "is valid from"),
        (Authority.create(tmp_path / "other").issue("host", key), "was not signed by this federation's authority"),
    ):
        with pytest.raises(WireError, match=told):
            sender.introduce(certificate)
    assert not sender.known


def test_a_key_is_good_for_the_job_and_site_it_was_made_for(authority: Authority) -> None:
    """Neither for others nor beside another certificate, and what cannot be read introduces nobody."""
    good, former = (job_key(authority, "host", "a", job).introduction for job in (JOB, "job-0"))
    certificate, public, voucher = json.loads(good)
    _, other_public, _ = json.loads(job_key(authority, "b", "a").introduction)
    channel = Channel(authority.root, "host", job_key(authority, "a", "a"))
    for why, introduction in (
        ("does not vouch", former),
        ("does not vouch", job_key(authority, "host", "b").introduction),
        ("does not vouch", json.dumps([certificate, other_public, voucher]).encode()),
        ("no introduction", json.dumps([certificate, "00" * 32, voucher]).encode()),  # all would agree on nothing
        ("no introduction", json.dumps([certificate, public[:-2], voucher]).encode()),
        ("no introduction", json.dumps([certificate, public]).encode()),
        ("no introduction", certificate.encode()),
    ):
        with pytest.raises(WireError, match=why):
            channel.introduce(introduction)
        assert not channel.open
    channel.introduce(good)
    assert channel.open


@pytest.mark.parametrize("error", [ValueError("patient 4711"), SystemExit("patient 4711")], ids=repr)
def test_no_exception_leaves_a_site(
    wire: Wire, authority: Authority, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def fail(name: str, kit: str, sent: str) -> Handler:
        raise error

    wire.program = fail
    site = wire.sites["a"]
    channel = site.channel(authority)
    assert site.answer("x", b"1", channel.code(Context(JOB, "a", "x"), b"1")) == NOTHING
    assert "patient 4711" in caplog.text  # in its own log


def test_a_client_answers_one_message_at_a_time(wire: Wire, authority: Authority) -> None:
    inside, most = 0, 0

    def answer(phase: str, payload: bytes) -> bytes:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.05)
        inside -= 1
        return b"1"

    wire.program = lambda *_: answer
    found: list[bytes] = []
    site = wire.sites["a"]
    code = site.channel(authority).code(Context(JOB, "a", "x"), b"")
    asking = [threading.Thread(target=lambda: found.append(site.answer("x", b"", code)[0])) for _ in range(4)]
    for thread in asking:
        thread.start()
    join(*asking)
    assert (most, found) == (1, [b"1"] * 4)
