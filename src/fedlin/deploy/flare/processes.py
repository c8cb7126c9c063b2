"""FLARE's processes on this machine: started one by one, found again by a mark of our own, ended by their ids."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from fedlin.deploy.flare.authority import ORGANISATION
from fedlin.deploy.flare.fork_server import MARK, ForkedProcess, ForkServer
from fedlin.deploy.flare.kits import Kind, configure
from fedlin.engines.checkpoint import private
from fedlin.transports.transport import PROGRAM

PROGRAMS: Mapping[Kind, str] = {
    "server": "fedlin.deploy.flare.programs:run_server",
    "client": "fedlin.deploy.flare.programs:make_client",
}
_START = str(Path(__file__).with_name("start_program.py"))
SETTINGS = {
    "GRPC_VERBOSITY": "INFO",  # process.log then tells why a connection was refused
    # A phase is waited for at once: handed to another thread of JAX's it would begin later, on a busy machine a lot.
    "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    # How long a run waits for sites is its policy's to say: FLARE would end a job a minute after it took all for dead.
    "NVFLARE_DEAD_CLIENT_GRACE_PERIOD": "1e9",
    # How a job ended is ours to tell: FLARE would keep it for up to 15 minutes for a site that is gone.
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "10",
    # What a message took is kept for the next one: memory that is given back and taken again has to be cleared by the
    # system every time, which was a sixth of all a federation of 20 sites with 10⁶ entries did.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the most that is allowed
    "MALLOC_TRIM_THRESHOLD_": str(2 << 30),
}
_OWNER_ONLY = 0o077  # whatever FLARE and the run write is readable by its owner alone
_LOG_SIZE = 5 << 20  # bytes after which process.log is begun anew
ROTATE = 10.0  # seconds between two looks at the logs' sizes while a process runs
HEARTBEAT = 2.0  # seconds after which a site notices that its server was restarted


class Process:
    """The server's or one site's FLARE process, with the job processes it starts; `program` is what those run.

    With `forks` the process is forked, and otherwise starts from nothing, as on a machine of its own.
    """

    def __init__(self, kit: Path, kind: Kind, name: str, program: str, forks: ForkServer | None = None) -> None:
        self.kit = kit.resolve()
        self.kind = kind
        self.name = name
        self.program = program
        self.forks = forks
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    def start(self) -> None:
        """Start, after ending whatever a crash left behind."""
        self.stop()
        self.launch()

    def launch(self) -> None:
        """Start, where nothing of an earlier time is left."""
        self.rotate_logs()
        configure(self.kit, self.kind)
        own = [f"uid={self.name}", f"heart_beat_interval={HEARTBEAT}"] if self.kind == "client" else []
        module = f"nvflare.private.fed.app.{self.kind}.{self.kind}_train"
        settings = ["secure_train=true", f"org={ORGANISATION}", "config_folder=config", *own]
        arguments = [module, "-m", str(self.kit), "-s", f"fed_{self.kind}.json", "--set", *settings]
        environment = {**SETTINGS, **os.environ, MARK: str(self.kit), PROGRAM: self.program}
        if self.forks is not None:
            self._process = self.forks.launch(arguments, environment, self.kit)
            return
        with open(self.kit / "process.log", "ab", opener=private) as log:
            self._process = subprocess.Popen(
                [sys.executable, "-u", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.kit,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the driver, which then ends them in order
                umask=_OWNER_ONLY,
            )

    def rotate_logs(self) -> None:
        """Begin anew those logs that only ever grow; FLARE keeps them open, so that they are copied and emptied."""
        for name in ("process.log", "audit.log"):
            path = self.kit / name
            if path.is_file() and path.stat().st_size > _LOG_SIZE:
                with open(path, "rb") as log, open(path.with_suffix(".log.1"), "wb", opener=private) as former:
                    shutil.copyfileobj(log, former)
                os.truncate(path, 0)

    def alive(self) -> bool:
        """Whether the FLARE process runs; its job processes do not count."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the FLARE process."""
        assert self._process is not None
        return self._process.pid

    def members(self) -> list[psutil.Process]:
        """Everything that runs for this kit, orphans included."""
        return members_of([self])[self]

    def stop(self) -> None:
        """End them all and wait until they are gone."""
        left = self.members()
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        _, left = psutil.wait_procs(left, timeout=3.0)
        _kill(left)
        self.forget()

    def forget(self) -> None:
        """The process has ended."""
        if self._process is not None:
            self._process.wait()
            self._process = None


def fork_server(server: Path) -> ForkServer | None:
    """What forks the sites' processes of a federation on one machine; None where each starts from nothing."""
    if sys.platform != "linux":  # elsewhere a process cannot be marked once it was made
        return None
    return ForkServer(SETTINGS, server / "process.log")


def members_of(processes: Sequence[Process]) -> dict[Process, list[psutil.Process]]:
    """Everything that runs for each of them, found by one look at all processes of this machine."""
    by_mark: dict[str, list[psutil.Process]] = {str(process.kit): [] for process in processes}
    for running in psutil.process_iter():
        with suppress(psutil.Error):
            mark = running.environ().get(MARK)
            if mark in by_mark:
                by_mark[mark].append(running)
    return {process: by_mark[str(process.kit)] for process in processes}


def stop_all(processes: Sequence[Process]) -> None:
    """End several at once and without a word, so that the slowest decides and not the sum."""
    while left := [running for members in members_of(processes).values() for running in members]:
        _kill(left)
    for process in processes:
        process.forget()


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10.0)
