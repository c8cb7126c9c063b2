"""What the page shows at a moment, as plain values: of a run at its server, or of a site as its owner sees it."""

import json
import threading
import time
from pathlib import Path
from typing import Any

from fedlin.audit import TRAIL
from fedlin.deploy.event_lines import Event, event_line
from fedlin.deploy.kit_folders import is_site, server_folder, site_name
from fedlin.deploy.run_history import RunHistory, thinned
from fedlin.deploy.runs import MODEL, named_run
from fedlin.deploy.screen import site_lines, status_lines
from fedlin.deploy.site_record import site_status
from fedlin.deploy.status import RunStatus, SiteRow, ago
from fedlin.deploy.watch_metrics import Sample, run_samples, site_samples
from fedlin.engines.federation.round_log import read_lines

EVENTS = 50  # shown, newest first
_TAIL = 1 << 18  # bytes of a site's audit trail that are looked at
Snapshot = dict[str, Any]


class RunView:
    """The operator's: curves, a row for each site, what is waited for, and events."""

    def __init__(self, folder: Path, name: str | None) -> None:
        self.kit = server_folder(folder)
        self.name = name
        self._history = RunHistory(named_run(self.kit, name))
        self._turn = threading.Lock()  # pages and Prometheus ask at once, each in a thread

    def _updated(self) -> RunHistory:
        run = named_run(self.kit, self.name)
        if run != self._history.run:  # another run has begun
            self._history = RunHistory(run)
        self._history.update()
        return self._history

    def snapshot(self) -> Snapshot:
        """The page's content."""
        with self._turn:
            return self._snapshot()

    def _snapshot(self) -> Snapshot:
        history = self._updated()
        status = history.status()
        run = history.run
        return {
            "title": f"Run {run.name}" if run != self.kit else "The run",
            "state": status_lines(status, str(run / MODEL), events=0, sites=False),
            "good": _in_order(status),
            "curves": history.curves(),
            "columns": [
                "site",
                "state",
                "of the latest rounds",
                "last counted",
                "last answer took",
                "last seen",
                "faults",
                "weight",
            ],
            "rows": [_row(row, status) for row in status.sites],
            "events": [event_line(event) for event in reversed(history.events[-EVENTS:])],
        }

    def samples(self) -> list[Sample]:
        """What Prometheus reads."""
        with self._turn:
            history = self._updated()
            return run_samples(history.status(), history.events)


class SiteView:
    """A site owner's: what was asked, what was refused, and what the limits are."""

    def __init__(self, kit: Path) -> None:
        self.kit = kit

    def snapshot(self) -> Snapshot:
        """The page's content."""
        site = site_status(self.kit)
        requests = [line for line in read_lines(self.kit / TRAIL, _TAIL) if line.get("event") == "asked"]
        rounds = thinned([[line["time"], line["round"]] for line in requests])
        begun = rounds[0][0] if rounds else 0.0
        return {
            "title": f"Site {site_name(self.kit)}",
            "state": site_lines(site),
            "good": (site["job runs"] or site["run over"]) and not (site["unwritable"] or site["busy"]),
            "curves": [
                {
                    "title": "round that was asked for, by minutes",
                    "log": False,
                    "lines": {"round": [[(when - begun) / 60, number] for when, number in rounds]},
                }
            ]
            if rounds
            else [],
            "columns": ["limit", "value"],
            "rows": [{"cells": [name, str(value)], "good": True} for name, value in site["limits"].items()],
            "events": [_asked_line(line) for line in reversed(requests[-EVENTS:])],
        }

    def samples(self) -> list[Sample]:
        """What Prometheus reads."""
        return site_samples(site_name(self.kit), site_status(self.kit))


def view_of(folder: Path, run: str | None) -> RunView | SiteView:
    """The view of who owns this folder."""
    return SiteView(folder) if is_site(folder) else RunView(folder, run)


def _in_order(status: RunStatus) -> bool:
    """Whether no action is needed: the run goes on with all sites, or is done."""
    if status.outcome is not None:
        return status.outcome["status"] in ("done", "stopped") and not status.outcome.get("without")
    return status.alive and all(row.since is None for row in status.sites)


def _row(row: SiteRow, status: RunStatus) -> Snapshot:
    since = "" if row.since is None else f", {ago(row.since)}"
    cells = [
        row.name,
        f"{row.state}{since}",
        f"{row.counted} of {row.rounds}",
        "" if row.last is None else f"round {row.last}",
        "" if row.took is None else f"{row.took:.2f} s",
        "" if row.seen is None else ago(row.seen),
        str(row.faults),
        "" if row.weight is None else f"{row.weight:.1%}",
    ]
    return {"cells": cells, "good": row.since is None or status.outcome is not None}


def _asked_line(line: Event) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(line["time"]))
    message = f"{line['kind'].lower()} of round {line['round'] + 1}, {line['phase']}"
    why = f": {json.dumps(line['reason'])[1:-1]}" if "reason" in line else ""
    return f"{clock} {message}: {line['answer'].lower()}{why}"
