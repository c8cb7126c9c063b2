"""A federation whose machines are killed, frozen and robbed, at moments drawn from a seed.

Where nobody's memory is lost the model is, bit for bit, that of a run without faults; where it is, the run still ends
at the minimiser. Run by `make test-long`.
"""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import psutil

import fedlin
from fedlin.deploy.driver import outcome
from fedlin.deploy.local import Local
from fedlin.deploy.processes import Process, stop_all
from fedlin.deploy.programs import STATE, make_client
from fedlin.deploy.project import Project, create
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.status import Standing, lines, standing
from fedlin.transports.loopback import Loopback
from template_data import drawn_problem
from test_federation_flare import free_port

pytestmark = pytest.mark.long
Fault = Callable[["Faults"], None]
SITES = ("east", "north", "south", "west")
TIMEOUT = 3.0
LIMIT = 600.0  # seconds in which a run must be over, whatever happens to it


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def federation(folder: Path, links: str, rounds: int, sites: Sequence[str] = SITES) -> Project:
    """The template's federation, with this method and short timeouts."""
    create(folder, sites, "localhost", free_port())
    path = folder / NAME
    text = path.read_text()
    for old, new in {
        "rounds = 200": f"rounds = {rounds}",
        'uplink = "innovation(top_k(10))"': links,
        "timeout = 60.0": f"timeout = {TIMEOUT}",
        "patience = 3600.0": "patience = 300.0",
    }.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return Project.read(folder)


def undisturbed(project: Project, scratch: Path) -> Any:
    """The same run in one process, with no fault."""
    settings = read_settings(project.folder)
    handlers = {}
    for name in SITES:
        shutil.copytree(project.site(name), scratch / name)
        handlers[name] = make_client(name, str(scratch / name))
    return fedlin.serve(settings.algorithm, Loopback(handlers), settings.plan, settings.rounds, dim=settings.dim).x


class Faults:
    """One fault after the other, each once the run has gone on since the last."""

    def __init__(self, run: Local, faults: Sequence[Fault], seed: int) -> None:
        self.run = run
        self.faults = faults
        self.rng = np.random.default_rng(seed)
        self.done = 0
        self.begun = time.monotonic()
        self._next = int(self.rng.integers(2, 5))

    def __call__(self, now: Standing | None) -> None:
        assert time.monotonic() - self.begun < LIMIT, "the run hangs"
        if now is not None and self.done < len(self.faults) and now.round >= self._next and self.jobs(self.run.server):
            time.sleep(float(self.rng.uniform(0.0, 0.1)))  # anywhere in a round, in any of its phases
            self.faults[self.done](self)
            self.done += 1
            self._next = now.round + int(self.rng.integers(2, 5))

    def sites(self, count: int = 1) -> list[Process]:
        return [self.run.sites[name] for name in self.rng.choice(SITES, count, replace=False)]

    @staticmethod
    def jobs(process: Process) -> list[psutil.Process]:
        """What runs for a kit besides FLARE's own process."""
        return [member for member in process.members() if member.pid != process.pid]


def end(members: list[psutil.Process]) -> None:
    for member in members:
        os.kill(member.pid, signal.SIGKILL)


def kill_a_site(faults: Faults) -> None:
    end(faults.sites()[0].members())


def kill_a_sites_job(faults: Faults) -> None:
    end(faults.jobs(faults.sites()[0]))


def kill_two_sites(faults: Faults) -> None:
    end([member for site in faults.sites(2) for member in site.members()])


def kill_the_server(faults: Faults) -> None:
    end(faults.run.server.members())


def kill_the_servers_job(faults: Faults) -> None:
    end(faults.jobs(faults.run.server))


def freeze_a_site(faults: Faults) -> None:
    """Past its timeout, and then it goes on as if nothing had been."""
    frozen = faults.sites()[0].members()
    for member in frozen:
        os.kill(member.pid, signal.SIGSTOP)

    def thaw() -> None:
        for member in frozen:
            if member.is_running():
                os.kill(member.pid, signal.SIGCONT)

    threading.Timer(2 * TIMEOUT, thaw).start()


def empty_a_disk(faults: Faults) -> None:
    site = faults.sites()[0]
    end(site.members())
    shutil.rmtree(site.kit / STATE)


def cut_the_servers_checkpoint(faults: Faults) -> None:
    end(faults.run.server.members())
    newest = max((faults.run.server.kit / STATE).glob("server-*.ckpt"))
    with open(newest, "r+b") as file:
        file.truncate(newest.stat().st_size // 2)


KEEPING = [
    kill_a_site,
    freeze_a_site,
    kill_the_servers_job,
    kill_two_sites,
    kill_a_sites_job,
    kill_the_server,
    freeze_a_site,
    cut_the_servers_checkpoint,
    kill_the_servers_job,
    kill_a_site,
]
LOSING = [
    empty_a_disk,
    freeze_a_site,
    kill_the_server,
    empty_a_disk,
    kill_two_sites,
    cut_the_servers_checkpoint,
    freeze_a_site,
    empty_a_disk,
    kill_the_servers_job,
    kill_a_sites_job,
]


def run_with(project: Project, faults: Sequence[Fault], seed: int) -> Faults:
    run = Local(project)
    chaos = Faults(run, faults, seed)
    end = run.run(chaos)
    assert end == {"status": "done", "rounds": read_settings(project.folder).rounds}
    assert chaos.done == len(faults)
    return chaos


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "federation"


def test_no_memory_lost_no_bit_changed(folder: Path, tmp_path: Path) -> None:
    """TOP-k with error feedback both ways; ten faults; every round waits for everyone."""
    links = 'uplink = "error_feedback(top_k(5))"\ndownlink = "error_feedback(top_k(5))"'
    project = federation(folder, links, rounds=60)
    expected = undisturbed(project, tmp_path / "undisturbed")
    run_with(project, KEEPING, seed=0)
    assert not [line for line in lines(project.server) if line.get("event") == "started afresh"]
    np.testing.assert_array_equal(np.load(project.server / "model.npy"), expected)


def test_a_lost_memory_leads_to_the_same_minimiser(folder: Path) -> None:
    project = federation(folder, 'uplink = "innovation(top_k(10))"', rounds=200)
    run_with(project, LOSING, seed=1)
    assert [line for line in lines(project.server) if line.get("event") == "started afresh"]
    minimiser = drawn_problem(len(SITES)).minimizer
    distance = np.linalg.norm(np.load(project.server / "model.npy") - minimiser)
    assert distance < 1e-6 * np.linalg.norm(minimiser)


def test_a_site_that_never_comes_back_is_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quorum goes on without it, also after the server's crash, and ends at the minimiser of those who remain."""
    monkeypatch.setattr("fedlin.deploy.driver.GRACE", 3.0)
    sites, rounds = SITES[:3], 200
    federation(folder, 'uplink = "innovation(identity())"', rounds, sites)
    text = (folder / NAME).read_text()
    (folder / NAME).write_text(text.replace("# quorum", "quorum").replace("# forget_after = 50", "forget_after = 20"))
    project = Project.read(folder)
    run, begun = Local(project), time.monotonic()
    faults = [(3, run.sites[sites[2]]), (40, run.server)]
    try:
        for process in (run.server, *run.sites.values()):
            process.start()
        while (found := outcome(project.server)) is None:
            assert time.monotonic() - begun < LIMIT, "the run hangs"
            run.driver.advance()
            now = standing(project.server)
            if faults and now is not None and now.round >= faults[0][0]:
                end(faults.pop(0)[1].members())
            if not run.server.alive():  # the site is not started again
                run.driver.forget()
                run.server.start()
            time.sleep(0.5)
    finally:
        run.driver.forget()
        stop_all([run.server, *run.sites.values()])
    assert found == {"status": "done", "rounds": rounds}
    assert not faults
    assert run.driver.submissions == 2
    assert f"{sites[2]} left" in [line.get("why") for line in lines(project.server)]
    minimiser = drawn_problem(2).minimizer
    distance = np.linalg.norm(np.load(project.server / "model.npy") - minimiser)
    assert distance < 1e-6 * np.linalg.norm(minimiser)
