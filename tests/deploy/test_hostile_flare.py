"""A federation in which one site attacks another, one site's file fails on its data, and a local user knocks."""

import json
import socket
import ssl
import stat
import subprocess
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import psutil

import fedlin
import hostile_server
import local_user
from fedlin.audit import verify
from fedlin.deploy.flare import processes
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.flare.processes import Process
from fedlin.deploy.project import Project
from fedlin.deploy.runs import Ending
from fedlin.deploy.settings import read_settings
from fedlin.deploy.site_template import client_text
from fedlin.deploy.status import lines
from fedlin.deploy.trails import find_trails
from hostile_site import ATTACKS, FLOOD, VICTIM, dropped
from local_flare import importable, template
from template_data import drawn_problem

pytestmark = pytest.mark.slow
ROUNDS = 20
WAITING = """
import os, time
while not os.path.exists(os.environ["ATTACKED"]):
    time.sleep(0.1)
"""
FAILING = """
from pathlib import Path
if not Path(__file__).with_name("failed").exists():
    Path(__file__).with_name("failed").touch()
    raise ValueError("the row of patient 4711 has no age")
"""


class Attacked:
    """What came of it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.end: dict[str, Any] = {}
        self.local_user: dict[str, str] = {}  # what FLARE's processes said to somebody without a certificate
        self.handshakes: dict[str, list[str]] = {}  # why connections without a certificate end, by port
        self.memory: dict[int, list[int]] = {}  # of every process of the server's, at each look

    def look(self, federation: LocalFederation) -> None:
        """Note the server's memory, and knock once."""
        for member in federation.server.members():
            with suppress(psutil.Error):
                self.memory.setdefault(member.pid, []).append(member.memory_info().rss)
        self.knock(federation)

    def knock(self, federation: LocalFederation) -> None:
        """Once the processes listen: on every port that no site is to connect to."""
        processes = {"server": federation.server, VICTIM: federation.sites[VICTIM]}
        ports = {name: inner_ports(process) for name, process in processes.items()}
        if self.local_user or not all(ports.values()):
            return
        self.handshakes = {name: [handshake(port) for port in listening] for name, listening in ports.items()}
        for name, (port, *_) in ports.items():
            command = [sys.executable, local_user.__file__, str(port), name]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            self.local_user[name] = done.stdout.strip()


def handshake(port: int) -> str:
    """Why a connection with TLS and without a certificate ends."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as secured:
            return f"it brought {secured.recv(1)!r}"
    except OSError as error:
        return str(getattr(error, "reason", error))


def inner_ports(process: Process) -> list[int]:
    """Where the process listens, besides the server's own port."""
    settings = process.kit / "startup" / "fed_server.json"
    target = json.loads(settings.read_text())["servers"][0]["service"]["target"] if settings.exists() else ":0"
    public = int(target.rpartition(":")[2])
    connections = [one for member in process.members() for one in member.net_connections(kind="inet")]
    return [one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN and one.laddr.port != public]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Ending]:
    """A federation whose server attacks a site while it plays a run, and how that ended."""
    folder = tmp_path_factory.mktemp("server") / "federation"
    project = template(folder, ["north", "south"], {"rounds = 200": f"rounds = {ROUNDS}"})
    (project.site("south") / "client.py").write_text(WAITING + client_text("south", 1))
    with importable() as patch:
        patch.setattr(
            processes, "_START", hostile_server.__file__
        )  # by which the server alone starts: sites are forked
        patch.setenv("ATTACKED", str(project.server / ATTACKS))
        return project, LocalFederation(project).run()


def test_a_server_reaches_nothing_of_a_site_but_its_answers(served: tuple[Project, Ending]) -> None:
    """Nor is anything done where it asks; and the site's owner knows what was tried."""
    project, end = served
    found = json.loads((project.server / ATTACKS).read_text())
    assert {found.pop(tool) for tool in hostile_server.TOOLS} == {"timeout"}
    assert found.keys() == hostile_server.REQUESTS.keys()
    assert all("this site does not answer that" in answer for answer in found.values()), found
    kit = project.site(VICTIM)
    assert {path.name for path in (kit / "startup").iterdir()} >= {"client.key", "client.crt"}
    entries = [entry.facts for entry in find_trails(project.folder)[VICTIM].entries()]
    refused = [entry["why"] for entry in entries if entry["event"] == "request refused"]
    for topic, _, _ in hostile_server.REQUESTS.values():
        assert any(topic in why for why in refused), topic
    unheard = [entry["why"] for entry in entries if entry["event"] == "message dropped"]
    assert unheard == [
        f"it is _net_manager:{tool} for {VICTIM}, which no server sends" for tool in hostile_server.TOOLS
    ]
    assert end == {"status": "done", "rounds": ROUNDS}


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """North is the victim, south attacks, west's file fails once; all the while the run goes on."""
    folder = tmp_path_factory.mktemp("hostile") / "federation"
    found = Attacked(template(folder, ["north", "south", "west"], {"rounds = 200": f"rounds = {ROUNDS}"}))
    (found.project.site("south") / "client.py").write_text("from hostile_site import WEIGHT, problem\n")
    (found.project.site("west") / "client.py").write_text(FAILING + client_text("west", 2))
    federation = LocalFederation(found.project)
    with importable():
        found.end = federation.run(lambda now: found.look(federation))
    return found


def test_no_site_reads_another_nor_ends_its_processes(attacked: Attacked) -> None:
    """Neither in its own name nor in the server's; and the run is what it would have been."""
    found = json.loads((attacked.project.site("south") / ATTACKS).read_text())
    assert "TimeoutError" in found["call"]
    assert "TimeoutError" in found["call in the server's name"]
    assert {what for attack, what in found.items() if not attack.startswith("call")} == {"timeout"}
    trails = find_trails(attacked.project.folder)
    assert trails.keys() >= {"server", "north", "south", "west"}
    assert [verdict.problem for verdict in verify(trails)] == [None] * len(trails)
    drops = [e.facts for e in trails["server"].entries() if e.facts["event"] == "message dropped"]
    assert {one["sender"] for one in drops} == {"south"}
    (job,) = {one["why"].split()[3].split(".")[1].rstrip(",") for one in drops if f"it is for {VICTIM}." in one["why"]}
    for attack, why in dropped(job).items():
        assert any(why in one["why"] for one in drops), attack
    assert not any((attacked.project.site(VICTIM) / "state").glob("*65766c69*"))  # no state of the run called evil
    assert attacked.end == {"status": "done", "rounds": ROUNDS}
    settings = read_settings(attacked.project.folder)
    expected = fedlin.simulate(settings.algorithm, drawn_problem(3), settings.plan, ROUNDS, seed=settings.seed)
    np.testing.assert_allclose(np.load(attacked.project.server / "model.npy"), expected.x, rtol=1e-10, atol=1e-10)


def test_no_memory_is_taken_for_a_message_that_is_too_long(attacked: Attacked) -> None:
    """The server's own process passes parts on, and drops these; its job never sees them."""
    assert len(attacked.memory) >= 2
    for process in attacked.memory.values():
        settled = process[len(process) // 3 :]  # its imports are over
        assert max(settled) - settled[0] < FLOOD // 2


def test_what_fails_at_a_site_leaves_its_text_there(attacked: Attacked) -> None:
    """The server has its type and a number, which the site's log has with the text; then the run goes on."""
    server = attacked.project.server
    faults = [line for line in lines(server) if line.get("event") == "fault" and line["client"] == "west"]
    assert [(fault["kind"], fault["round"]) for fault in faults] == [("refused", 0)]
    reference = faults[0]["why"].partition("[reference ")[2].split()[0]
    log = (attacked.project.site("west") / "fedlin.log").read_text()
    assert f"reference {reference}: the row of patient 4711 has no age" in log
    written = [path for path in server.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert not [path for path in written if b"patient 4711" in path.read_bytes()]


def test_nobody_without_a_certificate_joins_from_the_same_machine(attacked: Attacked) -> None:
    assert attacked.local_user.keys() == {"server", VICTIM}
    assert "ok" not in attacked.local_user.values(), attacked.local_user
    reasons = {reason for reasons in attacked.handshakes.values() for reason in reasons}
    assert reasons == {"TLSV13_ALERT_CERTIFICATE_REQUIRED"}


def test_what_a_federation_writes_is_its_owner_s_alone(attacked: Attacked) -> None:
    kits = [attacked.project.server, *map(attacked.project.site, attacked.project.sites)]
    for kit in kits:
        assert stat.S_IMODE(kit.stat().st_mode) == 0o700
        assert not [path for path in kit.rglob("*") if path.stat().st_mode & 0o077]
