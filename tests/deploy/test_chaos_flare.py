"""A federation whose machines are killed, frozen and robbed, in an order and at moments drawn from a seed.

Some are aimed at, by what the server writes about whom it waits for: inside a phase, and between two. Where nobody's
memory is lost the model is, bit for bit, that of a run without faults; where it is, or where a quorum is enough, the
run still ends at the minimiser. Run by `make test-long`.
"""

import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import psutil

import fedlin
from fedlin.deploy.flare.fork_server import MARK
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.flare.processes import PROGRAMS, Process
from fedlin.deploy.flare.programs import make_client
from fedlin.deploy.project import Project
from fedlin.deploy.runs import STATE, outcome
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.status import Awaiting, Progress, lines, read_awaiting, read_progress, read_status
from fedlin.transports.loopback import Loopback
from local_flare import template
from template_data import drawn_problem

pytestmark = pytest.mark.long
Fault = Callable[["Faults"], Awaiting | None]  # the moment it was aimed at, if it was
Moment = Callable[[Awaiting], bool]
PHASES = ("gradient", "model")
SITES = ("east", "north", "south", "west")
TIMEOUT = 3.0
LIMIT = 900.0  # seconds in which a run must be over, whatever happens to it
HANG = 120.0  # seconds in which it must go on after any fault: FLARE starts anew, on a machine that is busy


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def federation(folder: Path, links: str, rounds: int, sites: Sequence[str] = SITES) -> Project:
    """The template's federation, with this method and short timeouts."""
    changes = {
        "rounds = 200": f"rounds = {rounds}",
        'uplink = "innovation(top_k(10))"': links,
        "timeout = 60.0": f"timeout = {TIMEOUT}",
        "patience = 3600.0": "patience = 300.0",
    }
    return template(folder, sites, changes)


def undisturbed(project: Project, scratch: Path) -> Any:
    """The same run in one process, with no fault."""
    settings = read_settings(project.folder)
    handlers = {}
    for name in SITES:
        shutil.copytree(project.site(name), scratch / name)
        handlers[name] = make_client(name, str(scratch / name), str(project.folder))
    return fedlin.serve(settings.algorithm, Loopback(handlers), settings.plan, settings.rounds, dim=settings.dim).x


class Missed(Exception):  # noqa: N818 - it happens
    """The moment did not come in time: the fault is tried again."""


def inside_a_phase(now: Awaiting) -> bool:
    """Some answers are in, and not all."""
    return not now.over and now.phase in PHASES and 0 < len(now.answered) < len(now.asked)


def between_phases(now: Awaiting) -> bool:
    """The first phase is over, and the second has not begun."""
    return now.over and now.phase == PHASES[0]


class Faults:
    """One fault after the other, each once everyone is back from the last and the run has gone on for a few rounds."""

    def __init__(self, run: LocalFederation, faults: Sequence[Fault], seed: int) -> None:
        self.run = run
        self.faults = faults
        self.rng = np.random.default_rng(seed)
        self.met: list[tuple[float, str, Awaiting | None]] = []  # when, what, and the moment it was aimed at
        self.played_frozen: list[int] = []  # rounds played while a site was frozen
        self.frozen = False
        self.begun = time.monotonic()
        self._since, self._rest = 0, int(self.rng.integers(1, 4))  # the round in which all were back; rounds of peace

    def __call__(self, now: Progress | None) -> None:
        assert time.monotonic() - self.begun < LIMIT, "the run hangs"
        done = len(self.met)
        if now is None or done == len(self.faults):
            return
        if now.round < self._since + self._rest:
            return
        if self.frozen or not self.whole():  # with a quorum the rounds go on all the same
            self._since = now.round
            return
        time.sleep(float(self.rng.uniform(0.0, 0.1)))  # anywhere in a round
        try:
            moment = self.faults[done](self)
        except Missed:
            return
        self.met.append((time.time(), self.faults[done].__name__, moment))
        self._since, self._rest = self.played(), int(self.rng.integers(1, 4))

    def sites(self, count: int = 1) -> list[Process]:
        return [self.run.sites[name] for name in self.rng.choice(SITES, count, replace=False)]

    def is_now(self, moment: Moment) -> Awaiting | None:
        """What the server asked last, if it is such a moment; of one that was killed, its last."""
        now = read_awaiting(self.run.server.kit)
        return now if now is not None and moment(now) else None

    def played(self) -> int:
        now = read_progress(self.run.server.kit)
        assert now is not None
        return now.round

    def wait_for(self, moment: Moment) -> Awaiting:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            now = self.is_now(moment)
            if now is not None:
                return now
            time.sleep(0.0005)
        raise Missed

    def whole(self) -> bool:
        """Whether the server and every site have a job, besides FLARE's own process, and every site answers."""
        marks = Counter(mark(process) for process in psutil.process_iter())
        silent = [row.name for row in read_status(self.run.server.kit).sites if row.state.startswith("silent")]
        everyone = (self.run.server, *self.run.sites.values())
        return not silent and all(marks[str(process.kit)] > 1 for process in everyone)

    @staticmethod
    def jobs(process: Process) -> list[psutil.Process]:
        """What runs for a kit besides FLARE's own process."""
        return [member for member in process.members() if member.pid != process.pid]


def mark(process: psutil.Process) -> str | None:
    """The kit a process runs for."""
    try:
        found: str | None = process.environ().get(MARK)
    except psutil.Error:
        return None
    return found


def send(members: list[psutil.Process], number: signal.Signals) -> None:
    for member in members:
        os.kill(member.pid, number)


def end(members: list[psutil.Process]) -> None:
    send(members, signal.SIGKILL)


def stop(members: list[psutil.Process]) -> None:
    """Stopped when this returns, and not a little later."""
    send(members, signal.SIGSTOP)
    while any(member.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE) for member in members):
        time.sleep(0.0005)


def end_at(faults: Faults, members: list[psutil.Process], moment: Moment) -> Awaiting:
    """Kill the server's processes at this moment: they are stopped on suspicion, and go on if it has passed."""
    while True:
        faults.wait_for(moment)
        stop(members)
        if faults.is_now(moment):
            end(members)
            psutil.wait_procs(members, timeout=10.0)
            last = faults.is_now(moment)
            assert last is not None
            return last
        send(members, signal.SIGCONT)


def end_in_mid_round(faults: Faults, victims: Sequence[Process]) -> Awaiting:
    """Kill sites that were asked and have not answered, while others have."""
    members = [member for site in victims for member in site.members()]
    names = {site.name for site in victims}
    stop(members)
    try:
        return faults.wait_for(lambda now: now.phase in PHASES and names <= set(now.awaited) and bool(now.answered))
    except Missed:
        send(members, signal.SIGCONT)
        members = []
        raise
    finally:
        end(members)


def kill_a_site(faults: Faults) -> None:
    end(faults.sites()[0].members())


def kill_a_site_in_mid_round(faults: Faults) -> Awaiting:
    return end_in_mid_round(faults, faults.sites())


def kill_two_sites_in_mid_round(faults: Faults) -> Awaiting:
    return end_in_mid_round(faults, faults.sites(2))


def kill_a_sites_job(faults: Faults) -> None:
    end(faults.jobs(faults.sites()[0]))


def kill_the_server_inside_a_phase(faults: Faults) -> Awaiting:
    return end_at(faults, faults.run.server.members(), inside_a_phase)


def kill_the_server_between_phases(faults: Faults) -> Awaiting:
    return end_at(faults, faults.run.server.members(), between_phases)


def kill_the_servers_job_inside_a_phase(faults: Faults) -> Awaiting:
    return end_at(faults, faults.jobs(faults.run.server), inside_a_phase)


def freeze_a_site(faults: Faults) -> None:
    """Past its timeout, and then it goes on as if nothing had been."""
    frozen, before = faults.sites()[0].members(), faults.played()
    stop(frozen)
    faults.frozen = True

    def thaw() -> None:
        faults.played_frozen.append(faults.played() - before)
        faults.frozen = False
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
    kill_a_site_in_mid_round,
    freeze_a_site,
    kill_the_servers_job_inside_a_phase,
    kill_two_sites_in_mid_round,
    kill_a_sites_job,
    kill_the_server_between_phases,
    freeze_a_site,
    cut_the_servers_checkpoint,
    kill_the_server_inside_a_phase,
    kill_a_site,
]
LOSING = [
    empty_a_disk,
    freeze_a_site,
    kill_the_server_inside_a_phase,
    empty_a_disk,
    kill_two_sites_in_mid_round,
    cut_the_servers_checkpoint,
    freeze_a_site,
    kill_a_site_in_mid_round,
    kill_the_server_between_phases,
    kill_a_sites_job,
]


def run_with(project: Project, faults: Sequence[Fault], seed: int) -> Faults:
    run = LocalFederation(project, {**PROGRAMS, "client": "paced_sites:make_paced_client"})
    chaos = Faults(run, faults, seed)
    end = run.run(chaos)
    assert end == {"status": "done", "rounds": read_settings(project.folder).rounds}
    assert len(chaos.met) == len(faults)
    times = [line["time"] for line in lines(project.server) if "event" not in line]
    for when, what, now in chaos.met:
        again = min((time for time in times if time > when), default=np.inf) - when
        place = f" in {now.phase} of round {now.round}, answered by {now.answered}, over: {now.over}" if now else ""
        print(f"{what}{place}; went on after {again:.1f} s")
        assert again < HANG
    servers, sites = ([now for _, what, now in chaos.met if now and who in what] for who in ("server", "site"))
    assert any(map(inside_a_phase, servers))
    assert any(map(between_phases, servers))
    assert sites
    assert all(map(inside_a_phase, sites))
    return chaos


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "federation"


def afresh(project: Project) -> list[str]:
    """Why the run started afresh, each time."""
    return [line["why"] for line in lines(project.server) if line.get("event") == "started afresh"]


def near(project: Project, sites: int) -> bool:
    """Whether the model is the minimiser of the first so many sites."""
    minimiser = drawn_problem(sites).minimizer
    distance = np.linalg.norm(np.load(project.server / "model.npy") - minimiser)
    return bool(distance < 1e-6 * np.linalg.norm(minimiser))


def test_no_memory_lost_no_bit_changed(folder: Path, tmp_path: Path) -> None:
    """TOP-k with error feedback both ways; ten faults; every round waits for everyone."""
    links = 'uplink = "error_feedback(top_k(5))"\ndownlink = "error_feedback(top_k(5))"'
    project = federation(folder, links, rounds=60)
    expected = undisturbed(project, tmp_path / "undisturbed")
    chaos = run_with(project, KEEPING, seed=0)
    assert not afresh(project)
    assert max(chaos.played_frozen) <= 1  # the one that was under way
    np.testing.assert_array_equal(np.load(project.server / "model.npy"), expected)


def test_a_lost_memory_leads_to_the_same_minimiser(folder: Path) -> None:
    project = federation(folder, 'uplink = "innovation(top_k(10))"', rounds=200)
    run_with(project, LOSING, seed=1)
    assert any("lost its memory" in why for why in afresh(project))
    assert near(project, len(SITES))


def test_a_quorum_goes_on_and_ends_at_the_same_minimiser(folder: Path) -> None:
    """Three answers of four are enough: rounds are played while a site is frozen, and the limit is that of all four."""
    federation(folder, 'uplink = "innovation(identity())"', rounds=200)
    (folder / NAME).write_text((folder / NAME).read_text().replace("# quorum = 2", "quorum = 3"))
    project = Project.read(folder)
    chaos = run_with(project, LOSING, seed=2)
    assert min(chaos.played_frozen) > 1
    assert any("lost its memory" in why for why in afresh(project))
    assert near(project, len(SITES))


def test_a_site_that_never_comes_back_is_let_go(folder: Path) -> None:
    """A quorum goes on without it, also after the server's crash, and ends at the minimiser of those who remain."""
    sites, rounds = SITES[:3], 200
    federation(folder, 'uplink = "innovation(identity())"', rounds, sites)
    text = (folder / NAME).read_text()
    (folder / NAME).write_text(text.replace("# quorum", "quorum").replace("# forget_after = 50", "forget_after = 20"))
    project = Project.read(folder)
    run, begun = LocalFederation(project), time.monotonic()
    faults = [(3, run.sites[sites[2]]), (40, run.server)]
    try:
        for process in (run.server, *run.sites.values()):
            process.start()
        while (found := outcome(project.server)) is None:
            assert time.monotonic() - begun < LIMIT, "the run hangs"
            run.driver.advance()
            now = read_progress(project.server)
            if faults and now is not None and now.round >= faults[0][0]:
                end(faults.pop(0)[1].members())
            if not run.server.alive():  # the site is not started again
                run.driver.forget()
                run.server.start()
            time.sleep(0.5)
    finally:
        run.close()
    assert found == {"status": "done", "rounds": rounds, "without": {sites[2]: "left"}}
    assert not faults
    assert run.driver.submissions == 2
    assert f"{sites[2]} left" in [line.get("why") for line in lines(project.server)]
    assert near(project, 2)
