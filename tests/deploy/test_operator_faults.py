"""Faults of machines and of people, and what the operator reads: full disks, clocks that are set, ports taken."""

import builtins
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin import audit
from fedlin.audit import AuditTrail, verify
from fedlin.deploy import site_record
from fedlin.deploy.event_lines import event_line
from fedlin.deploy.flare.programs import make_client, run_server
from fedlin.deploy.runs import MODEL, outcome
from fedlin.deploy.screen import site_lines, status_lines
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.site_record import RECORD, SiteRecorder, busy_with, read_record, site_status
from fedlin.deploy.site_settings import SITE
from fedlin.deploy.status import lines, read_status
from fedlin.engines import checkpoint
from fedlin.engines.federation import wire
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader
from fedlin.errors import DeployError
from fedlin.transports.loopback import Loopback
from loopback_federation import Federation
from template_data import drawn_problem

FULL = os.strerror(errno.ENOSPC)


ASKED = """
import sys
from fedlin.deploy.flare.programs import make_client
from fedlin.engines.federation import wire

hello = wire.write_message(wire.Header(wire.Kind.HELLO, bytes(8)), wire.write_facts({}))
make_client("north", *sys.argv[1:])("hello", hello)
"""


class FullDisk:
    """While `full`, nothing can be written below a folder."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, kind: int = errno.ENOSPC) -> None:
        self.folder = folder
        self.kind = kind
        self.full = False
        for module in (checkpoint, audit):
            patch.setattr(module, "open", self.open, raising=False)

    def open(self, path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if self.full and Path(path).is_relative_to(self.folder) and set(mode) & set("wa+"):
            raise OSError(self.kind, os.strerror(self.kind), str(path))
        return builtins.open(path, mode, *rest, **options)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    made = Federation(tmp_path)
    text = (made.job / NAME).read_text()
    (made.job / NAME).write_text(text.replace("timeout = 60.0", "timeout = 1.0"))
    return made


def play(federation: Federation, before: Callable[[str, int], None]) -> None:
    """Play the run; `before` is told every message's site and the number of messages so far."""
    handlers = {name: make_client(name, str(kit), str(federation.job)) for name, kit in federation.sites.items()}
    count = 0

    def answer(name: str) -> Callable[[str, bytes], bytes]:
        def one(phase: str, payload: bytes) -> bytes:
            nonlocal count
            count += 1
            before(name, count)
            return handlers[name](phase, payload)

        return one

    run_server(Loopback({name: answer(name) for name in handlers}), str(federation.server), str(federation.job))


def assert_same_model(federation: Federation) -> None:
    settings = read_settings(federation.job)
    expected = fedlin.simulate(settings.algorithm, drawn_problem(2), settings.plan, settings.rounds).x
    np.testing.assert_allclose(np.load(federation.server / MODEL), expected, rtol=1e-10)


def test_a_full_disk_at_a_site_is_told_and_the_run_goes_on(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator reads what is wrong and who can mend it; no answer leaves that the site's trail does not tell of."""
    north = FullDisk(federation.sites["north"], monkeypatch)

    def fill(name: str, count: int) -> None:
        north.full = name == "north" and 9 <= count <= 15

    play(federation, fill)
    assert outcome(federation.job) == {"status": "done", "rounds": 5}
    told = [line for line in lines(federation.server) if line.get("event") in ("fault", "recovered")]
    assert [(line["event"], line["client"], line["kind"]) for line in told] == [
        ("fault", "north", "refused"),
        ("recovered", "north", "refused"),
    ]
    said = event_line(told[0])
    assert f"north: it failed with OSError ({FULL}) [reference " in said
    assert "Its owner frees space on the site's disk, and the run goes on." in said
    assert str(federation.sites["north"]) not in said
    assert_same_model(federation)
    trails = {name: AuditTrail(kit) for name, kit in federation.sites.items()}
    assert [verdict.problem for verdict in verify(trails)] == [None, None]


@pytest.mark.parametrize("text", [None, "[limits"])
def test_limits_that_are_gone_or_broken_in_mid_run_are_told_as_a_refusal(
    federation: Federation, text: str | None
) -> None:
    """Not as silence: the refusal belongs to the run, so that the server hears it; and mended, the run goes on."""
    path = federation.sites["north"] / SITE
    whole = path.read_text()

    def break_limits(name: str, count: int) -> None:
        if name != "north" or not 9 <= count <= 15:
            path.write_text(whole)
        elif text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text)

    play(federation, break_limits)
    told = [line for line in lines(federation.server) if line.get("event") in ("fault", "recovered")]
    assert [(line["event"], line["client"], line["kind"]) for line in told] == [
        ("fault", "north", "refused"),
        ("recovered", "north", "refused"),
    ]
    assert "it failed with DeployError [reference " in told[0]["why"]
    assert_same_model(federation)


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EACCES, errno.EPERM])
def test_a_full_disk_at_the_server_ends_the_run_with_the_reason(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """And once there is room, or it may be written to, the same command goes on from the last checkpoint."""
    server = FullDisk(federation.server / "state", monkeypatch, kind)

    def fill(name: str, count: int) -> None:
        server.full = count > 14

    with pytest.raises(OSError, match=os.strerror(kind)):
        play(federation, fill)
    end = outcome(federation.job)
    assert end is not None
    assert end["status"] == "failed"
    assert f"the server cannot write to its disk: [Errno {kind}] {os.strerror(kind)}" in end["error"]
    assert "start again: it goes on from its last checkpoint" in end["error"]
    server.full = False
    before = read_status(federation.server).progress
    assert before is not None
    assert before.round > 0
    play(federation, lambda name, count: None)
    assert_same_model(federation)


def test_a_line_of_an_audit_trail_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Of a line that does not fit the disk a part would stay, and break the chain for good."""
    resource = pytest.importorskip("resource", reason="limits of file sizes are POSIX's")
    trail = AuditTrail(tmp_path)
    trail.record("asked", round=1)
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (trail.path.stat().st_size + 20, former[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            trail.record("asked", round=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
    trail.record("asked", round=3)
    assert [entry.facts["round"] for entry in AuditTrail(tmp_path).entries()] == [1, 3]


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_is_set_makes_no_process_look_dead(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """The clock is set while a site is asked: server and site still run, and the model is the same."""
    real, seen = time.time, list[str]()

    def look(name: str, count: int) -> None:
        if count == 9:
            monkeypatch.setattr(time, "time", lambda: real() + jump)
            seen.extend(status_lines(read_status(federation.server), "model.npy"))
            seen.extend(site_lines(site_status(federation.sites["north"])))

    play(federation, look)
    shown = "\n".join(seen)
    assert "waits for" in shown
    assert "its job runs" in shown
    assert "does not run" not in shown
    assert_same_model(federation)
    (federation.sites["north"] / "state" / RECORD).write_text(json.dumps({"process": os.getpid(), "started": "0"}))
    assert not site_status(federation.sites["north"])["job runs"]  # another process had that id


@contextmanager
def no_room() -> Iterator[None]:
    """Meanwhile this process can write to no file."""
    resource = pytest.importorskip("resource", reason="limits of file sizes are POSIX's")
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


def test_a_site_s_folder_that_cannot_be_written_to_is_told_to_its_owner(federation: Federation) -> None:
    """What it is asked cannot be recorded then, and the record says that nothing is refused; rights tell nothing."""
    federation.run()
    kit = federation.sites["north"]
    with no_room():
        first = site_lines(site_status(kit))[0]
    assert first.startswith(f"{kit} cannot be written to ({os.strerror(errno.EFBIG)})")
    assert "cannot be written to" not in "\n".join(site_lines(site_status(kit)))


def test_join_says_that_the_server_s_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a run ended would be written to the same disk."""
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
    from fedlin.deploy.flare import remote

    monkeypatch.setattr(remote, "_LOOK", 0.0)
    said: list[str] = []
    watch = remote.ServerWatch(tmp_path, "server", said.append)
    watch.look()
    with no_room():
        watch.look()
        watch.look()
    watch.look()
    assert [line.partition(" (")[0] for line in said] == [
        f"server: {tmp_path} cannot be written to",
        "server: its folder can be written to again",
    ]


def test_code_that_does_not_come_back_is_told_to_its_owner(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While `problem()` runs: not that nothing is asked, and nothing of it once it has come back."""
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
    from fedlin.deploy.flare import remote

    kit, real, said = federation.sites["north"], time.time, list[str]()
    seen: list[str] = []
    monkeypatch.setattr(remote, "check_connection", lambda kit: None)

    def look() -> None:
        monkeypatch.setattr(time, "time", lambda: real() + 60.0)
        watch = remote.SiteWatch(kit, "north", said.append)
        watch.look()
        watch.look()
        seen.extend(site_lines(site_status(kit)))
        monkeypatch.setattr(time, "time", real)

    monkeypatch.setattr(builtins, "look", look, raising=False)
    text = (kit / "client.py").read_text()
    (kit / "client.py").write_text(
        text.replace("    features, targets, _, _", "    look()\n    features, targets, _, _")
    )
    play(federation, lambda name, count: None)
    expected = "still at work on hello of round 1 (asked 60 s ago): client.py is slow, or never comes back"
    assert [line for line in said if expected in line] == said
    assert len(said) == 1
    assert expected in "\n".join(seen)
    monkeypatch.setattr(time, "time", lambda: real() + 60.0)
    assert "still at work" not in "\n".join(site_lines(site_status(kit)))


def test_code_that_ends_its_own_process_is_told_to_its_owner(federation: Federation) -> None:
    """By os._exit, or by the system for want of memory: there is no exception that could be answered with."""
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
    from fedlin.deploy.flare.remote import SiteWatch

    kit, said = federation.sites["north"], list[str]()
    federation.run()
    watch = SiteWatch(kit, "north", said.append)
    watch.look()
    (kit / "client.py").write_text("import os\nos._exit(7)")
    assert subprocess.run([sys.executable, "-c", ASKED, kit, federation.job], timeout=60).returncode == 7
    watch.look()
    watch.look()
    SiteWatch(kit, "north", said.append).look()  # what was before `join` was started may have ended with that
    expected = "its process ended in the middle of hello of round 1 (asked "
    assert [expected in line for line in said] == [True, False]  # the other one says what was asked
    assert expected in "\n".join(site_lines(site_status(kit)))


def test_code_that_hangs_in_a_fast_run_is_told_to_its_owner(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request comes right after another one that was written down, and is written down some moments later."""
    monkeypatch.setattr(site_record, "_EVERY", 0.05)
    recorder = SiteRecorder(federation.sites["north"])

    def ask(number: int) -> bytes:
        task = wire.write_message(Header(Kind.TASK, bytes(8), number), b"")
        recorder.begin("gradient", task)
        return task

    for number in range(3):
        task = ask(number)
        recorder.enter("gradient", task, wire.write_reply(Header(Kind.UPLOAD, bytes(8), number), ReplyHeader(b"", 0)))
    ask(3)
    deadline = time.monotonic() + 20.0
    while (record := read_record(federation.sites["north"])) is None or not record.answering:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert record.round == 3
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 60.0)
    assert "still at work on gradient of round 4" in str(busy_with(record))


def test_a_server_that_hangs_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as one that does not accept the site's certificate: the system still takes connections for it."""
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
    from fedlin.deploy.flare import connection
    from fedlin.deploy.project import create

    monkeypatch.setattr(connection, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        port = frozen.getsockname()[1]
        project = create(tmp_path / "federation", ["north"], "localhost", port)
        told = str(connection.check_connection(project.site("north")))
    assert told.startswith(f"the server at 127.0.0.1:{port} takes connections, and does not answer within 0.2 s")


def test_join_says_that_the_port_is_taken(tmp_path: Path) -> None:
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
    from fedlin.deploy.flare.remote import take_part
    from fedlin.deploy.project import create

    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        project = create(tmp_path / "federation", ["north"], "localhost", port)
        with pytest.raises(DeployError, match=f"port {port} is in use"):
            take_part(project.server, said.append)
    assert said == []
