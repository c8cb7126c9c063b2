"""A figure in a process of its own: what it printed, and the most memory it and its children held at once."""

import json
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
EVERY = 0.1  # seconds between two looks at the memory
SHARE = 0.02  # of the time that looking may take
PATIENCE = 300.0  # seconds


class FailedError(Exception):
    """The process did not do it; the message is its last word, `details` the end of what it said."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details[-4000:]


def peak() -> int:
    """The most bytes this process has held; `maxrss` would also count what the process held that started this one."""
    try:
        status = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # a system without /proc
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def _family(pid: int) -> Iterator[int]:
    """The process and all that descend from it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _family(int(child))


def _held(pid: int) -> int:
    """Bytes in memory; pages shared by several processes count once."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _watch(pid: int, ended: threading.Event, most: list[int]) -> None:
    """Looks at a family; a process without children knows its own peak, and a look costs time that it is timed in."""
    pause = EVERY
    while not ended.wait(pause):
        began = time.perf_counter()
        try:
            family = list(_family(pid))
            if len(family) > 1:
                most[0] = max(most[0], sum(map(_held, family)))
        except OSError:  # one of them ended just now, or this system has no /proc
            continue
        pause = max(EVERY, (time.perf_counter() - began) / SHARE)


def run(command: Sequence[str], more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The JSON of the last line a command prints; its "peak" grows to what its whole family held, where known.

    `more` are settings of its environment.
    """
    found_at = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # by its own children too
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": found_at,
        **(more or {}),
    }
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that it ends together with what it started
    )
    ended, most = threading.Event(), [0]
    watcher = threading.Thread(target=_watch, args=(process.pid, ended, most))
    watcher.start()
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise FailedError(f"no end after {PATIENCE:.0f} s") from None
    finally:
        ended.set()
        watcher.join()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        raise FailedError((err.strip().splitlines() or [f"exit status {process.returncode}"])[-1], err)
    result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return {**result, "peak": max(result["peak"], most[0])}
