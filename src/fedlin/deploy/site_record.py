"""What a site was asked, for its owner to see: written by the site's job, read by `status` and `join`."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedlin.checks import LONGEST, printable
from fedlin.deploy.runs import STATE
from fedlin.deploy.site_settings import read_limits
from fedlin.deploy.status import process_runs
from fedlin.engines.checkpoint import write_whole
from fedlin.engines.federation import wire
from fedlin.engines.federation.limits import LEDGER, Ledger, spent_epsilon
from fedlin.engines.federation.pending import this_process
from fedlin.engines.federation.wire import Kind

RECORD = "site.json"
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


class SiteRecorder:
    """Keeps the record of a site in its folder."""

    def __init__(self, kit: Path) -> None:
        self.path = kit / STATE / RECORD
        self.record = SiteRecord(**this_process())
        self._written = 0.0

    def enter(self, phase: str, request: bytes, reply: bytes) -> None:
        """A request was answered, or refused."""
        record, now = self.record, time.time()
        header, rest = wire.read_message(reply, own=True)
        refused = header.kind == Kind.REFUSED
        news = refused or header.run.hex() != record.run
        record.run, record.round, record.time = header.run.hex(), header.round, now
        record.phase = printable(phase, LONGEST)
        record.answered += not refused
        record.refused += refused
        if refused:
            facts = wire.read_facts(wire.read_reply(rest)[1])
            reference = f" [reference {facts['reference']} in fedlin.log]" if facts.get("reference") else ""
            record.refusal, record.refusal_time = f"{facts.get('reason', '')}{reference}", now
        if news or now - self._written >= _EVERY:
            self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(asdict(record)).encode(), mode=0o600, sync=False)
            self._written = now


def read_record(kit: Path) -> SiteRecord | None:
    """What a site's job wrote last; None before it was asked anything."""
    try:
        return SiteRecord(**json.loads((kit / STATE / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
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
        "limits": {name: value for name, value in asdict(limits).items() if value is not None},
        "ledger": None if ledger is None else {"run": (ledger.run or b"").hex(), "spent": ledger.spent},
        "privacy spent": None if limits.epsilon is None else spent_epsilon(spent, limits.delta),  # ε of all uploads
    }
