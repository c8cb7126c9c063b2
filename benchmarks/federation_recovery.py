"""How soon a federation over FLARE goes on after a fault: `python -m benchmarks.federation_recovery`.

The server, two sites and whoever sends the job each run as on a machine of their own, by the commands of the handbook.
One fault after the other is made; the time is from the moment at which what was taken away is there again (where
nothing has to be given back: from the fault) to the end of the next round but one. It is written to
benchmarks/results/recovery.json, from which `--page` writes the table in docs/operate.md.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks import operate_page
from fedlin.deploy.flare.processes import PROGRAMS, Process, stop_all
from fedlin.deploy.project import Project, create
from fedlin.deploy.settings import NAME
from fedlin.deploy.status import lines, read_progress

SITES = ("north", "south")
ROUNDS = 100_000  # more than are played
LIMIT = 300.0  # seconds in which any fault is over, on a machine that is busy with other things
FROZEN = 5.0  # seconds


class Machines:
    """The processes of a federation, each started by its command."""

    def __init__(self, project: Project, within: Mapping[str, Sequence[str]] | None = None) -> None:
        """`within` has by folder the words that go before a command there, such as those that enter a namespace."""
        self.project = project
        self.server = Process(project.server, "server", "server", PROGRAMS["server"])
        self.sites = {name: Process(project.site(name), "client", name, PROGRAMS["client"]) for name in project.sites}
        self._within = within or {}
        self._started: dict[Path, subprocess.Popen[bytes]] = {}

    def command(self, *words: str) -> subprocess.Popen[bytes]:
        """Run a `fedlin federation` command; what it prints is in a file beside the federation."""
        with open(self.project.folder.parent / f"{words[0]}-{Path(words[1]).name}.txt", "ab") as screen:
            command = [*self._within.get(words[-1], ()), sys.executable, "-m", "fedlin", "federation", *words]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            # Whoever starts this in the background ignores Ctrl-C, and what it starts would, too.
            default = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                return subprocess.Popen(command, stdout=screen, stderr=screen, start_new_session=True, env=environment)
            finally:
                signal.signal(signal.SIGINT, default)

    def join(self, process: Process) -> None:
        """Start the machine of a server or a site."""
        self._started[process.kit] = self.command("join", str(process.kit))

    def start(self) -> None:
        """Send the job."""
        self._started[self.project.folder] = self.command("start", str(self.project.folder))

    def end_start(self, number: signal.Signals) -> None:
        """End whoever sent the job by a signal."""
        self._started[self.project.folder].send_signal(number)
        self._started[self.project.folder].wait(LIMIT)

    def pids(self) -> list[int]:
        """The commands' own processes."""
        return [process.pid for process in self._started.values()]

    def cut_power(self, process: Process) -> None:
        """Kill all that runs on a machine."""
        self._started[process.kit].kill()
        self._started[process.kit].wait()
        kill(process)

    def round(self) -> int:
        """Rounds played."""
        now = read_progress(self.project.server, 1 << 16)
        return 0 if now is None else now.round

    def next_round(self, more: int = 0) -> float:
        """Seconds until the next whole round, or until so many more after it."""
        begun, before = time.monotonic(), self.round()
        while self.round() <= before + more:
            if time.monotonic() - begun > LIMIT:
                raise RuntimeError(f"no round in {LIMIT:g} s")
            time.sleep(0.05)
        return time.monotonic() - begun

    def recovered(self) -> float:
        """Seconds until the next round but one: all answers of the next may have come before the fault."""
        return self.next_round(more=1)

    def settle(self) -> None:
        """Let some rounds be played."""
        for _ in range(5):
            self.next_round()

    def close(self) -> None:
        """End everything."""
        for process in self._started.values():
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()
        stop_all([self.server, *self.sites.values()])


@contextmanager
def running(folder: Path) -> Iterator[Machines]:
    """A federation that plays rounds."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    create(folder, SITES, "localhost", port)
    text = (folder / NAME).read_text(encoding="utf-8")
    text = text.replace("rounds = 200", f"rounds = {ROUNDS}").replace("timeout = 60.0", "timeout = 10.0")
    (folder / NAME).write_text(text, encoding="utf-8")
    with joined(Machines(Project.read(folder))) as machines:
        machines.start()
        yield machines


@contextmanager
def joined(machines: Machines) -> Iterator[Machines]:
    """The server and all sites take part; everything is ended afterwards."""
    try:
        for process in (machines.server, *machines.sites.values()):
            machines.join(process)
        yield machines
    finally:
        machines.close()


def kill(process: Process) -> None:
    """Kill FLARE's processes of a kit; the command that started them sees it and starts them again."""
    for member in process.members():
        with suppress(psutil.NoSuchProcess):
            member.kill()


def site_process(machines: Machines) -> float:
    """A site's process is killed, and `join` starts it again."""
    kill(machines.sites["south"])
    return machines.recovered()


def site_machine(machines: Machines) -> float:
    """A site's machine goes down, and comes up."""
    machines.cut_power(machines.sites["south"])
    time.sleep(FROZEN)
    machines.join(machines.sites["south"])
    return machines.recovered()


def server_process(machines: Machines) -> float:
    """The server's process is killed, and `join` starts it again."""
    kill(machines.server)
    return machines.recovered()


def server_machine(machines: Machines) -> float:
    """The server's machine goes down, and comes up."""
    machines.cut_power(machines.server)
    time.sleep(FROZEN)
    machines.join(machines.server)
    return machines.recovered()


def frozen_site(machines: Machines) -> float:
    """A site stands still for some seconds."""
    members = machines.sites["south"].members()
    for member in members:
        member.suspend()
    time.sleep(FROZEN)
    for member in members:
        member.resume()
    return machines.recovered()


def lost_memory(machines: Machines) -> float:
    """A site's state is deleted while it runs, and its process killed."""
    kill(machines.sites["south"])
    shutil.rmtree(machines.project.site("south") / "state")
    return machines.recovered()


def lost_sender(machines: Machines) -> float:
    """Whoever sent the job goes away; `start` is given again."""
    machines.end_start(signal.SIGKILL)
    seconds = machines.recovered()
    machines.start()
    return seconds


FAULTS: dict[str, tuple[Callable[[Machines], float], str]] = {
    "a site's process dies": (site_process, "`join` starts it again, and it takes part again"),
    "a site's machine goes down": (site_machine, "start `join` again there, or let systemd do it"),
    "the server's process dies": (server_process, "`join` starts it again, and the job goes on from its checkpoint"),
    "the server's machine goes down": (server_machine, "start `join` again there, or let systemd do it"),
    "a site stands still, and goes on": (frozen_site, "nothing"),
    "a site's memory is lost": (lost_memory, "nothing: memories are made anew, and the limit is the same"),
    "whoever sent the job is gone": (lost_sender, "nothing: the job goes on; `start` again shows it"),
}


def measure(folder: Path) -> dict[str, Any]:
    """Seconds to the first round, a round, and from each fault to the next round."""
    begun = time.monotonic()
    with running(folder / "federation") as machines:
        machines.next_round()
        first = time.monotonic() - begun
        seconds = {}
        for fault, (make, _) in FAULTS.items():
            machines.settle()
            seconds[fault] = round(make(machines), 1)
            print(f"{fault}: {seconds[fault]} s", flush=True)
        machines.settle()
        played = {line["round"]: line["seconds"] for line in lines(machines.project.server) if "event" not in line}
    return {
        "first round": round(first, 1),
        "rounds": len(played),
        "seconds": seconds,
    }


def table(found: dict[str, Any]) -> str:
    """The table of the handbook."""
    rows = [f"| {fault} | {found['seconds'][fault]:g} s | {remedy} |" for fault, (_, remedy) in FAULTS.items()]
    where = f"Measured on {found['cores']} cores with a load average of {found['load']:g}"
    head = f"{where}; from the first command to the first round it took {found['first round']:g} s."
    return "\n".join([head, "", "| what happens | until the next round | what you do |", "|---|---|---|", *rows])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the table from what was measured last")
    if not parser.parse_args().page:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with tempfile.TemporaryDirectory() as scratch:
            operate_page.keep("recovery", operate_page.machine() | measure(Path(scratch)))
    operate_page.fill("recovery", table(operate_page.read("recovery")))
