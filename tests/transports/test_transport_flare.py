"""NVIDIA FLARE as a carrier of bytes; the tests of whole federations are in test_federation_flare.py."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.collab.api.exceptions import CollabCallError, RunAborted

from fedlin.deploy.flare.authority import Authority, make_key
from fedlin.deploy.flare.kits import Place, write_kits
from fedlin.errors import WireError
from fedlin.transports import flare
from fedlin.transports.flare import FlareClient, FlareTransport
from fedlin.transports.message_codes import Channel, Context, JobKey
from fedlin.transports.signatures import Sender, Signer

NAMES = ("a", "b", "c")
JOB = "job-1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A federation's certificates: the server's, called host, and those of three sites."""
    folder = tmp_path_factory.mktemp("federation")
    made = Authority.create(folder / "authority")
    write_kits(folder, made, Place("host", "127.0.0.1", 8002), {name: name for name in ("host", *NAMES)})
    return made


def job_key(authority: Authority, name: str, role: str, job: str = JOB) -> JobKey:
    """A participant's, in a job."""
    return JobKey(Signer(authority.folder.parent / name / "startup", role), job)


def introduced(authority: Authority, site: "Site", job: str = JOB) -> Channel:
    """The server's channel to a site that it has introduced itself to."""
    key = job_key(authority, "host", "server", job)
    channel = Channel(authority.root, site.name, key)
    channel.introduce(site.introduce(key.introduction))
    return channel


class Site:
    """What FLARE hands the server for each site, here without a wire; `caller` is whom FLARE takes the caller for."""

    def __init__(self, authority: Authority, name: str) -> None:
        self.name = name
        self.client = FlareClient()
        self.caller = "server"
        self.calls: list[str] = []
        self.kit, self.frozen = authority.folder.parent / name, threading.Event()

    def __call__(self, timeout: float) -> "Site":
        return self

    def introduce(self, introduction: bytes) -> bytes:
        with here(self.name, self.kit, self.caller):
            return self.client.introduce(introduction)

    def answer(self, phase: str, payload: bytes, code: bytes) -> tuple[bytes, bytes]:
        self.calls.append(phase)
        if phase == "frozen" and self.name == "a":
            self.frozen.wait(60)
        if phase == "fail" and self.name == "b":
            raise ConnectionError("gone")
        if phase == "ended" and self.name == "b":
            raise CollabCallError(self.name, "answer", TimeoutError("the peer is gone"))
        if phase == "abort" and self.name == "c":
            raise RunAborted("over")
        with here(self.name, self.kit, self.caller):
            return self.client.answer(phase, payload, code)


class here:  # noqa: N801 - a context manager
    """FLARE's context of one call, which belongs to the thread."""

    present = threading.local()

    def __init__(self, name: str, kit: Path, caller: str) -> None:
        self.values = (name, kit, caller)

    def __enter__(self) -> None:
        here.present.values = self.values

    def __exit__(self, *_: object) -> None:
        del here.present.values


@pytest.fixture(autouse=True)
def _without_flare(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        caller = property(lambda self: here.present.values[2])

    def make(name: str, folder: str, job: str) -> Callable[[str, bytes], bytes]:
        return lambda phase, payload: name.encode() + payload

    monkeypatch.setattr(flare, "_here", lambda: (*here.present.values[:2], JOB))
    monkeypatch.setattr(flare, "collab", Context())
    monkeypatch.setattr(flare, "_program", lambda: make)
    monkeypatch.setattr(flare, "_open_log", lambda kit: None)
    monkeypatch.setattr(flare, "_sent", lambda job: "")


@pytest.fixture
def sites(authority: Authority) -> dict[str, Site]:
    return {name: Site(authority, name) for name in reversed(NAMES)}


@pytest.fixture
def transport(sites: dict[str, Site], authority: Authority) -> Iterator[FlareTransport]:
    carrier = FlareTransport(list(sites.values()), job_key(authority, "host", "server"), authority.root)
    yield carrier
    for site in sites.values():
        site.frozen.set()
    carrier.close()


def test_messages_arrive(transport: FlareTransport) -> None:
    assert transport.clients() == ["a", "b", "c"]
    assert transport.exchange("x", b"1", NAMES, 60) == {"a": b"a1", "b": b"b1", "c": b"c1"}
    assert transport.exchange("x", {"a": b"1", "c": b"3"}, ["c", "a"], 60) == {"a": b"a1", "c": b"c3"}
    assert transport.failures == {}


def test_who_is_late_fails_or_is_unknown_is_absent_and_told(transport: FlareTransport, sites: dict[str, Site]) -> None:
    transport.exchange("x", b"", NAMES, 60)  # the two introduce themselves
    assert transport.exchange("frozen", b"", NAMES, 2) == {"b": b"b", "c": b"c"}
    assert transport.failures == {"a": "no answer within 2 s"}
    assert transport.exchange("x", b"", NAMES, 60, lambda replies: len(replies) == 2).keys() == {"b", "c"}
    assert transport.exchange("fail", b"", ["b", "c", "stranger"], 60) == {"c": b"c"}
    assert transport.failures == {"b": "the call failed with ConnectionError: gone"}
    transport.exchange("ended", b"", ["b", "c"], 60)
    assert transport.failures == {"b": "its process has ended, or its connection is gone"}
    sites["a"].frozen.set()
    while (found := transport.exchange("x", b"", ["c"], 60)) == {"c": b"c"}:
        time.sleep(0.01)
    assert found == {"a": b"a", "c": b"c"}  # its late answer comes with a later exchange


def test_a_site_that_does_not_answer_has_one_call_and_then_the_newest_request(
    transport: FlareTransport, sites: dict[str, Site]
) -> None:

    def others_answered(replies: Mapping[str, bytes]) -> bool:
        return len(replies) == 2 and sites["a"].calls == ["frozen"]  # whose thread may begin last

    assert transport.exchange("frozen", b"0", NAMES, 60, others_answered).keys() == {"b", "c"}
    for number in range(5):
        found = transport.exchange(f"x{number}", b"", NAMES, 60, lambda replies: len(replies) == 2)
        assert found.keys() == {"b", "c"}
    assert sites["a"].calls == ["frozen"]
    sites["a"].frozen.set()
    replies = transport.exchange("y", b"1", NAMES, 60, lambda replies: replies.get("a") == b"a1")
    assert replies["a"] == b"a1"
    assert sites["a"].calls == ["frozen", "y"]


def test_an_aborted_job_is_over(transport: FlareTransport) -> None:
    with pytest.raises(RunAborted):
        transport.exchange("abort", b"", NAMES, 60)
    with pytest.raises(RunAborted):  # also where nobody is left to wait for
        transport.exchange("abort", b"", ["c"], 60)


def test_a_site_answers_the_server_alone(
    transport: FlareTransport, sites: dict[str, Site], authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a site by its own name, nor one that FLARE takes for the server: the code is missing or wrong."""
    victim, other = sites["a"], job_key(authority, "b", "client")
    between = Channel(authority.root, "c", other)  # b's codes, under whatever keys it has agreed on
    between.introduce(job_key(authority, "c", "client").introduction)
    own = between.code(Context(JOB, "a", "x"), b"1")
    victim.caller = "b"
    server = job_key(authority, "host", "server").introduction
    assert victim.introduce(server) == b""  # what b was shown of the server
    assert victim.answer("x", b"1", own) == (b"", b"")
    assert "refused a call in the name of 'b'" in caplog.text
    victim.caller = "server"
    for introduction in (b"", other.introduction, b"no introduction"):
        assert victim.introduce(introduction) == b""
        assert victim.answer("x", b"1", own) == (b"", b"")
    assert "the certificate is in the name of ['b'], and host was expected" in caplog.text
    transport.exchange("x", b"1", NAMES, 60)  # the server has introduced itself, and still
    for code in (own, b"", bytes(28)):
        assert victim.answer("x", b"1", code) == (b"", b"")
    assert "host did not send this message" in caplog.text


def test_a_message_of_the_server_serves_for_nothing_else(sites: dict[str, Site], authority: Authority) -> None:
    site, other = sites["a"], sites["b"]
    channel = introduced(authority, site)
    introduced(authority, other)
    code = channel.code(Context(JOB, "a", "x"), b"1")
    assert site.answer("x", b"1", code)[0] == b"a1"
    assert other.answer("x", b"1", code)[0] == b""  # another site
    assert site.answer("y", b"1", code)[0] == b""  # another phase
    assert site.answer("x", b"2", code)[0] == b""  # other bytes
    former = channel.code(Context("job-0", "a", "x"), b"1")
    assert site.answer("x", b"1", former)[0] == b""  # another job
    reply, back = site.answer("x", b"1", channel.code(Context(JOB, "a", "x"), b"1"))
    assert site.answer("x", reply, back)[0] == b""  # the site's own words


def test_a_site_is_told_nothing_but_by_its_own_keys(sites: dict[str, Site], authority: Authority) -> None:
    """Two sites that the same server speaks with have codes of different keys, each way."""
    key = job_key(authority, "host", "server")
    channels = {name: Channel(authority.root, name, key) for name in ("a", "b")}
    for name, channel in channels.items():
        channel.introduce(sites[name].introduce(key.introduction))
    context = Context(JOB, "a", "x")
    with pytest.raises(WireError, match="a did not send this message"):
        channels["a"].check(context, b"1", channels["a"].code(context, b"1"))  # what it sent itself
    assert sites["a"].answer("x", b"1", channels["b"].code(context, b"1"))[0] == b""
    codes = [channels["a"].code(context, b"1") for _ in range(100)]
    assert len({code[:12] for code in codes}) == 100  # no number is used twice


def test_a_reply_of_another_site_is_not_taken(
    transport: FlareTransport, sites: dict[str, Site], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answers in a site's place has neither its certificate nor, later, its key."""
    other = job_key(authority, "b", "client")
    channel = Channel(authority.root, "host", other)
    channel.introduce(job_key(authority, "host", "server").introduction)

    def forged(phase: str, payload: bytes, code: bytes) -> tuple[bytes, bytes]:
        return b"b1", channel.code(Context(JOB, "a", phase, code), b"b1")

    for why in ("the certificate is in the name of ['b']", "a did not send this message"):
        with monkeypatch.context() as patch:
            patch.setattr(sites["a"], "introduce", lambda introduction: other.introduction)
            patch.setattr(sites["a"], "answer", forged)
            assert transport.exchange("x", b"1", ["a"], 60) == {}
            assert why in transport.failures["a"]
        assert transport.exchange("x", b"1", ["a"], 60) == {"a": b"a1"}


def test_a_certificate_that_is_over_or_of_another_authority_introduces_nobody(
    authority: Authority, tmp_path: Path
) -> None:
    sender = Sender(authority.root, "host")
    with pytest.raises(WireError, match="came without a certificate of host"):
        sender.signed(b"", b"")
    channel = Channel(authority.root, "host", job_key(authority, "a", "client"))
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


def test_a_key_is_good_in_the_job_it_was_made_for(authority: Authority) -> None:
    """Neither in another job nor beside another certificate, and what cannot be read introduces nobody."""
    good, former = (job_key(authority, "host", "server", job).introduction for job in (JOB, "job-0"))
    certificate, public, voucher = json.loads(good)
    _, other_public, _ = json.loads(job_key(authority, "b", "client").introduction)
    channel = Channel(authority.root, "host", job_key(authority, "a", "client"))
    for why, introduction in (
        ("does not vouch", former),
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


def test_no_exception_leaves_a_site(
    sites: dict[str, Site], authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def make(name: str, folder: str, job: str) -> Any:
        raise ValueError("patient 4711")

    monkeypatch.setattr(flare, "_program", lambda: make)
    channel = introduced(authority, sites["a"])
    assert sites["a"].answer("x", b"1", channel.code(Context(JOB, "a", "x"), b"1")) == (b"", b"")
    assert "patient 4711" in caplog.text  # in its own log


def test_a_client_answers_one_message_at_a_time(
    sites: dict[str, Site], authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, most = 0, 0

    def make(name: str, folder: str, job: str) -> Any:
        def answer(phase: str, payload: bytes) -> bytes:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(0.05)
            inside -= 1
            return b"1"

        return answer

    monkeypatch.setattr(flare, "_program", lambda: make)
    found: list[bytes] = []
    code = introduced(authority, sites["a"]).code(Context(JOB, "a", "x"), b"")
    threads = [threading.Thread(target=lambda: found.append(sites["a"].answer("x", b"", code)[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, found) == (1, [b"1"] * 4)
