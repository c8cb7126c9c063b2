"""What a site was asked, for its owner to see: written by the site's job, read by `status` and `join`."""

import json
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fedlin.checks import LONGEST, printable
from fedlin.deploy.runs import STATE
from fedlin.deploy.site_settings import read_limits
from fedlin.deploy.status import ago, process_runs
from fedlin.engines.checkpoint import write_whole
from fedlin.engines.federation import wire
from fedlin.engines.federation.evaluation import FINAL
from fedlin.engines.federation.limits import LEDGER, Ledger, spent_epsilon
from fedlin.engines.federation.pending import this_process
from fedlin.engines.federation.wire import Header, Kind
from fedlin.errors import WireError

RECORD = "site.json"
_LONG = 10.0  # seconds of one answer that are worth a line
_PROBE = 1 << 12  # bytes that are written to see whether a disk takes them
_EVERY = 1.0  # seconds between two writes, where nothing but the round has changed


@dataclass
class SiteRecord:
    """The latest request and what became of all of them, since this process began."""

    run: str = ""  # its id
    round: int = 0
    phase: str = ""
    time: float = 0.0  # when it was asked
    process: int = 0  # the job's process
    started: str = ""  # since when that id is its own
    answered: int = 0
    refused: int = 0
    refusal: str = ""  # the latest
    refusal_time: float = 0.0
    answering: bool = False  # whether the latest request is not answered yet


class SiteRecorder:
    """Keeps the record of a site in its folder."""

    def __init__(self, kit: Path) -> None:
        self.path = kit / STATE / RECORD
        self.record = SiteRecord(**this_process())
        self._written = SiteRecord()
        self._turn = threading.Lock()
        self._later: threading.Timer | None = None

    def begin(self, phase: str, request: bytes) -> None:
        """A request is here, and is worked on from now on: an owner's code may take long, or never come back."""
        try:
            header = wire.read_message(request)[0]
        except WireError:
            return
        with self._turn:
            self._place(phase, header)
            self.record.answering = True
            if header.kind != Kind.TASK or self.record.time - self._written.time >= _EVERY:
                self._write()
            elif self._later is None:
                self._later = threading.Timer(_EVERY, self._catch_up)
                self._later.daemon = True
                self._later.start()

    def _catch_up(self) -> None:
        """Write down what was not worth a write when it came, where it is worked on still."""
        with self._turn, suppress(OSError):  # of a full disk the next request tells
            self._later = None
            if self.record.answering:
                self._write()

    def enter(self, phase: str, request: bytes, reply: bytes) -> None:
        """A request was answered, or refused."""
        record = self.record
        header, rest = wire.read_message(reply, own=True)
        refused = header.kind == Kind.REFUSED
        with self._turn:
            self._place(phase, header)
            record.answering = False
            record.answered += not refused
            record.refused += refused
            if refused:
                facts = wire.read_facts(wire.read_reply(rest)[1])
                reference = f" [reference {facts['reference']} in fedlin.log]" if facts.get("reference") else ""
                record.refusal, record.refusal_time = f"{facts.get('reason', '')}{reference}", record.time
            written = self._written
            news = refused or written.answering or written.run != record.run
            if news or record.time - written.time >= _EVERY:
                self._write()

    def _place(self, phase: str, header: Header) -> None:
        record = self.record
        record.run, record.round, record.phase = header.run.hex(), header.round, printable(phase, LONGEST)
        record.time = time.time()

    def _write(self) -> None:
        self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
        write_whole(self.path, json.dumps(asdict(self.record)).encode(), mode=0o600, sync=False)
        self._written = replace(self.record)


def read_record(kit: Path) -> SiteRecord | None:
    """What a site's job wrote last; None before it was asked anything."""
    try:
        return SiteRecord(**json.loads((kit / STATE / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def busy_with(record: SiteRecord) -> str | None:
    """What the site's job has been at for so long that its owner should know; None where it is not at anything."""
    seconds = time.time() - record.time
    if not record.answering or seconds < _LONG or not process_runs(record.process, record.started):
        return None
    return (
        f"still at work on {record.phase} of round {record.round + 1} (asked {ago(record.time)}): client.py is slow, "
        "or never comes back; once it is mended, end join and start it again"
    )


def is_over(record: SiteRecord) -> bool:
    """Whether the latest request brought a run's last model, and was answered."""
    return record.phase == FINAL and not record.answering and record.refusal_time < record.time


def cut_off(record: SiteRecord) -> str | None:
    """What the site's job was at when its process ended; None where it was at nothing, or its process runs."""
    if not record.answering or process_runs(record.process, record.started):
        return None
    return (
        f"its process ended in the middle of {record.phase} of round {record.round + 1} (asked {ago(record.time)}): "
        "unless the run or join was ended, client.py ended it, or the system did for want of memory"
    )


def unwritable(kit: Path) -> str | None:
    """Where nothing can be written, and why; None where it can. Rights alone do not tell of a disk that is full."""
    for folder in (kit, kit / STATE):
        try:
            if folder.is_dir():
                with TemporaryFile(dir=folder) as probe:
                    probe.write(bytes(_PROBE))
                    probe.flush()
        except OSError as error:
            return f"{folder} cannot be written to ({error.strerror}): until that is mended, nothing goes on"
    return None


def site_status(kit: Path) -> dict[str, Any]:
    """A site's view: what it was asked, whether its job runs, what its limits are and what is spent of them."""
    record = read_record(kit)
    path = kit / STATE / LEDGER
    ledger = Ledger(path.parent) if path.is_file() else None  # refused where it is damaged
    limits = read_limits(kit)
    spent = 0.0 if ledger is None else ledger.spent
    return {
        "record": None if record is None else asdict(record),
        "job runs": record is not None and process_runs(record.process, record.started),
        "run over": record is not None and is_over(record),
        "busy": None if record is None else busy_with(record),
        "cut off": None if record is None else cut_off(record),
        "unwritable": unwritable(kit),
        "limits": {name: value for name, value in asdict(limits).items() if value is not None},
        "ledger": None if ledger is None else {"run": (ledger.run or b"").hex(), "spent": ledger.spent},
        "privacy spent": None if limits.epsilon is None else spent_epsilon(spent, limits.delta),  # ε of all uploads
    }
