"""Whom the server waits for at this moment, written to `waiting.jsonl`, which is written anew for every exchange."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlin.engines.checkpoint import private

WAITING = "waiting.jsonl"


def process_start(process: int) -> str:
    """What distinguishes a process from a later one with the same id, by no clock that can be set; "" where it is gone.

    >>> process_start(os.getpid()) == process_start(os.getpid()), process_start(-1)
    (True, '')
    """
    try:
        if Path("/proc/self/stat").exists():  # the time since the machine's start at which it began
            stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
            return stat.rpartition(")")[2].split()[19]
        import psutil

        return str(psutil.Process(process).create_time())
    except Exception:  # no such process, in one of many ways, or no psutil
        return ""


def this_process() -> dict[str, Any]:
    """The id of this process, and since when it is its own."""
    return {"process": os.getpid(), "started": process_start(os.getpid())}


class Pending:
    """A line when clients are asked, one for each that answers, one at the end of the exchange; none without a folder.

    The first line also has the server's process, so that a reader can tell a server that waits from one that died.
    """

    def __init__(self, folder: Path | None) -> None:
        # Kept open: a file that is emptied and closed for every exchange is a wait for the disk every time.
        self._file = None if folder is None else open(folder / WAITING, "w", encoding="utf-8", opener=private)  # noqa: SIM115
        self._process = this_process()
        self.begin(0, "", ())  # the process is there before anybody is asked, as while it waits for clients

    def begin(self, played: int, phase: str, names: Sequence[str]) -> None:
        """An exchange begins, and the one before is forgotten."""
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
        self._write({"round": played, "phase": phase, "asked": list(names), **self._process})

    def answered(self, name: str) -> None:
        """A client's answer to this exchange is here."""
        self._write({"answered": name})

    def end(self) -> None:
        """Nobody is waited for any more."""
        self._write({"over": True})

    def close(self) -> None:
        """The run is over, or given up."""
        if self._file is not None:
            self.end()
            self._file.close()

    def _write(self, line: Mapping[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps({**line, "time": round(time.time(), 3)}) + "\n")
            self._file.flush()
