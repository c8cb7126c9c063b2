"""The sites' processes of a federation on one machine, forked from one that has imported what all of them need.

The two processes of a site do little but import for two seconds. Forked they begin at once, and share what was imported
and its memory. The process they are forked from does nothing but import, and so has no threads, which no fork copies.
The server's processes start from nothing: FLARE is not ready for a server's job that asks at once who takes part.
"""

import ctypes
import gc
import json
import os
import select
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fedlin.deploy.flare import start_program
from fedlin.engines.checkpoint import private
from fedlin.errors import DeployError

MARK = "FEDLIN_PROCESS"  # in the environment of every process of a federation: the folder it works for
_ROOM = 4096  # bytes that a mark may have: the longest path there is
_NUMBER = struct.Struct("q")
_STREAMS = "sid_base"  # where FLARE keeps the number of its first stream
_NEEDED = (
    "nvflare.app_common.executors.client_api_executor",
    "nvflare.app_common.job_launcher.client_process_launcher",
    "nvflare.private.fed.app.client.client_train",
    "nvflare.private.fed.app.client.worker_process",
    "fedlin.deploy.flare.programs",
    "fedlin.transports.flare_gate",
    "fedlin.transports.flare_requests",
    "fedlin.transports.flare_site",
    "fedlin.transports.flare_site_gate",
)


class ForkedProcess:
    """A process that was forked, with what is used here and by FLARE of a `subprocess.Popen`."""

    def __init__(self, place: str, arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._receiving = threading.Lock()
        self._code: int | None = None
        request = json.dumps({"arguments": list(arguments), "environment": dict(environment), "folder": folder})
        try:
            self._connection.connect(place)
            self._connection.sendall(request.encode() + b"\n")
            self.pid = self._receive()
        except (OSError, EOFError) as error:
            self._connection.close()
            reason = "the process that the sites' are forked from has ended: see process.log at the server."
            raise DeployError(reason) from error

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        if self._code is None and self._receiving.acquire(blocking=False):  # or another thread waits for it
            try:
                if self._code is None and select.select([self._connection], [], [], 0)[0]:
                    self._end()
            finally:
                self._receiving.release()
        return self._code

    def wait(self) -> int:
        """The exit status, once it has ended."""
        with self._receiving:
            return self._end() if self._code is None else self._code

    def _end(self) -> int:
        with self._connection:
            try:
                self._code = self._receive()
            except (OSError, EOFError):
                self._code = -1  # nobody can tell: who forked it has ended
        return self._code

    def _receive(self) -> int:
        number = self._connection.recv(_NUMBER.size, socket.MSG_WAITALL)
        if len(number) < _NUMBER.size:
            raise EOFError
        return int(_NUMBER.unpack(number)[0])


class ForkServer:
    """The process that others are forked from, started when the first is asked for.

    Args:
        defaults: Variables of its environment, where this process does not have them.
        log: The file for what it prints.
    """

    def __init__(self, defaults: Mapping[str, str], log: Path) -> None:
        self._defaults = defaults
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._place = ""

    def launch(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> ForkedProcess:
        """Fork a process that runs a module with arguments, in a folder to whose process.log it prints."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()
        return ForkedProcess(self._place, arguments, environment, str(folder))

    def close(self) -> None:
        """Fork no more; what was forked goes on."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.kill()
            self._process.wait()
            self._process = None
            with suppress(OSError):
                os.unlink(self._place)
                os.rmdir(os.path.dirname(self._place))

    def _start(self) -> None:
        self._place = os.path.join(mkdtemp(prefix="fedlin-"), "fork")  # a folder that nobody else can enter
        own = {"OPENBLAS_NUM_THREADS": "1"}  # threads of NumPy's would not be there after a fork
        with socket.socket(socket.AF_UNIX) as listener, open(self._log, "ab", opener=private) as log:
            listener.bind(self._place)
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listener.fileno()), self._place],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._defaults, **os.environ, **own, MARK: "-" * _ROOM},
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )


def serve(listener: socket.socket, alive: int) -> dict[str, Any] | None:
    """Fork a process for every request until nobody holds the other end of `alive`; in a forked one, its request."""
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(alive, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == alive:
                    return None
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    with connection.makefile("r", encoding="utf-8") as lines:
                        request: dict[str, Any] = json.loads(lines.readline())
                    marked, marking = os.pipe()
                    pid = os.fork()
                    if pid == 0:
                        _mark(request["environment"][MARK])
                        for other in selector.get_map().values():
                            if other.data is not None:
                                other.data[1].close()
                                os.close(other.fd)
                        for descriptor in (marked, marking):
                            os.close(descriptor)
                        connection.close()
                        return request
                    os.close(marking)
                    os.read(marked, 1)  # until it has its mark: who asked for it may look for it, to end it, at once
                    os.close(marked)
                    connection.sendall(_NUMBER.pack(pid))
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))
                else:
                    pid, connection = key.data
                    _, status = os.waitpid(pid, 0)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    with suppress(OSError), connection:  # who asked for it may have ended
                        connection.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


def become(request: dict[str, Any], place: str) -> None:
    """Be the process that was asked for: its folder, its environment, its output, and the module it runs."""
    environment, folder = request["environment"], request["folder"]
    os.setsid()
    os.umask(0o077)  # whatever FLARE and the run write is readable by its owner alone
    os.chdir(folder)
    log = private("process.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.clear()
    os.environ.update(environment)
    _draw_anew()
    _fork_jobs(place, folder)
    sys.argv[1:] = request["arguments"]
    start_program.start(sys.argv.pop(1))


def _draw_anew() -> None:
    """Let no two sites draw the same numbers, nor a process name its streams as the one before it did."""
    streams = import_module("nvflare.fuel.f3.streaming.stream_utils")
    import_module("numpy").random.seed()
    setattr(streams, _STREAMS, int(time.time() * 1e6))


def _load_drivers() -> None:
    """Load what FLARE sends by, without any site's settings: each process reads those of its own folder."""
    settings = import_module("nvflare.fuel.f3.comm_config").CommConfigurator
    settings._config_loaded = True  # or FLARE would take the first it finds in any folder below this one
    import_module("nvflare.fuel.f3.communicator").load_comm_drivers()
    settings.reset()


def _mark(value: str) -> None:
    """Write a mark where others read a process's environment: in the memory that it began with."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    ctypes.memmove(libc.getenv(MARK.encode()), value.encode().ljust(_ROOM, b"\0"), _ROOM)


def _fork_jobs(place: str, folder: str) -> None:
    """Have FLARE fork the process of a job, too."""
    from nvflare.app_common.job_launcher import process_launcher
    from nvflare.utils.process_utils import ProcessAdapter

    def spawn(command: Sequence[str], environment: Mapping[str, str]) -> Any:
        _python, _file, *arguments = command  # as `start_program` writes it
        return ProcessAdapter(process=ForkedProcess(place, arguments, environment, folder))

    process_launcher.spawn_process = spawn


def main(number: int, place: str) -> None:
    """Import what is needed, and fork."""
    start_program.leave_out()
    for module in _NEEDED:
        import_module(module)
    _load_drivers()
    gc.freeze()  # what a collection looks at it writes to, and memory that is written to is shared no more
    with socket.socket(fileno=number) as listener:
        request = serve(listener, 0)
    if request is not None:
        become(request, place)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
