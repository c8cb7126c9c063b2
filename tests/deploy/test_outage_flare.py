"""A federation whose network is away: for a moment, or for longer than FLARE would wait. Run by `make test-long`."""

import json
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from benchmarks.federation_recovery import Machines, joined

import fedlin
from fedlin.deploy.project import Project
from fedlin.deploy.runs import outcome
from fedlin.deploy.settings import read_settings
from fedlin.deploy.status import lines
from local_flare import template
from template_data import drawn_problem

pytestmark = pytest.mark.long
SITES = ("north", "south")
HEARTBEAT = 15  # seconds after which FLARE takes a site for dead: 600 unless set
GRACE = 60.0  # seconds after which FLARE would end a job all of whose sites it took for dead
LIMIT = 120.0  # seconds in which a run goes on after anything


class Line:
    """The sites' connections to the server, which can be cut."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._target = port
        self._down = False
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, seconds: float) -> None:
        """End all connections, and let none be made for so long."""
        self._down = True
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        self._down = False

    def close(self) -> None:
        self._listener.close()
        self.cut(0.0)

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                here, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(here,), daemon=True).start()

    def _carry(self, here: socket.socket) -> None:
        with suppress(OSError), here:
            if self._down:
                return
            with socket.create_connection(("127.0.0.1", self._target)) as there:
                ends = {here: there, there: here}
                self._open += ends
                while True:
                    for end in select.select(list(ends), [], [])[0]:
                        if not (data := end.recv(1 << 16)):
                            return
                        ends[end].sendall(data)


@contextmanager
def through(line: Line, project: Project) -> Iterator[Machines]:
    """The federation, whose sites reach the server by this line alone."""
    for name in project.sites:
        path = project.site(name) / "startup" / "fed_client.json"
        path.write_text(path.read_text().replace(f":{line._target}", f":{line.port}"))
    try:
        with joined(Machines(project)) as machines:
            machines.start()
            yield machines
    finally:
        line.close()


def federation(folder: Path, rounds: int) -> tuple[Project, int]:
    """The template's, and its server's port."""
    project = template(folder, SITES, {"rounds = 200": f"rounds = {rounds}", "timeout = 60.0": "timeout = 10.0"})
    service = json.loads((project.server / "startup" / "fed_server.json").read_text())["servers"][0]["service"]
    return project, int(service["target"].rpartition(":")[2])


def jobs(project: Project) -> list[str]:
    return [path.name for path in (project.server / "jobs").iterdir()]


def test_connections_that_are_cut_are_made_again_and_the_job_goes_on(tmp_path: Path) -> None:
    """With the same processes, to the same bits."""
    rounds = 2000
    project, port = federation(tmp_path / "federation", rounds)
    line = Line(port)
    with through(line, project) as machines:
        machines.settle()
        processes = {name: {member.pid for member in site.members()} for name, site in machines.sites.items()}
        for seconds in (0.0, 3.0, 12.0):
            line.cut(seconds)
            begun = time.monotonic()
            machines.recovered()
            print(f"cut for {seconds:g} s: went on after {time.monotonic() - begun:.1f} s")
            machines.settle()
        assert {name: {member.pid for member in site.members()} for name, site in machines.sites.items()} == processes
        deadline = time.monotonic() + LIMIT
        while (end := outcome(project.server)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert end == {"status": "done", "rounds": rounds}
    assert len(jobs(project)) == 1
    gone = [event for event in lines(project.server) if event.get("event") == "fault"]
    assert {event["client"] for event in gone} == set(SITES)
    settings = read_settings(project.folder)
    expected = fedlin.simulate(settings.algorithm, drawn_problem(2), settings.plan, rounds, seed=settings.seed)
    np.testing.assert_allclose(np.load(project.server / "model.npy"), expected.x, rtol=1e-10, atol=1e-10)


def test_a_run_outlives_an_outage_of_all_sites_that_nobody_attends(tmp_path: Path) -> None:
    """Who sent the job has left, and FLARE has taken all sites for dead: their run's own patience counts."""
    project, _ = federation(tmp_path / "federation", 100_000)
    path = project.server / "startup" / "fed_server.json"
    settings = json.loads(path.read_text())
    settings["servers"][0]["heart_beat_timeout"] = HEARTBEAT
    path.write_text(json.dumps(settings))
    with joined(Machines(project)) as machines:
        machines.start()
        machines.settle()
        machines.end_start(signal.SIGKILL)
        for site in machines.sites.values():
            machines.cut_power(site)
        time.sleep(HEARTBEAT + GRACE + 30.0)
        assert "client dead" in (project.server / "log.txt").read_text()  # FLARE has
        for site in machines.sites.values():
            machines.join(site)
        print(f"went on after {machines.recovered():.1f} s")
        machines.settle()
    assert len(jobs(project)) == 1
