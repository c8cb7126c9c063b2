"""What the commands show: a run's lines as they come, and its status at a look."""

import time
from collections.abc import Callable
from typing import Any

from fedlin.deploy.event_lines import Event, event_line
from fedlin.deploy.runs import end_line
from fedlin.deploy.status import Awaiting, Progress, RunStatus, ago, open_faults

Say = Callable[[str], object]
_PATIENCE = 10.0  # seconds after which whom a round waits for is worth a line; then after twice as long each time


class Screen:
    """Says what is new in a run: rounds at most once a second, events at once, and whom it waits for."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._shown, self._when = "", 0.0
        self._last: Event | None = None  # the latest event that was seen
        self._looked = False
        self._news = ""
        self._waiting: tuple[float, float] = (0.0, _PATIENCE)  # which exchange, and when it is worth the next line

    def tell(self, news: str) -> None:
        """A line, unless it is the one before."""
        if news != self._news:
            self._news = news
            self._say(news)

    def show(self, progress: Progress | None, awaiting: Awaiting | None, events: list[Event]) -> None:
        """What is new since the last look; of what was before the first one, the faults that are still open."""
        for event in self._new(events) if self._looked else open_faults(events).values():
            self._say(event_line(event))
        self._last, self._looked = (events[-1] if events else self._last), True
        line = "" if progress is None else progress_line(progress)
        if line != self._shown and time.monotonic() - self._when >= 1.0:
            self._shown, self._when = line, time.monotonic()
            self._say(line)
        if awaiting is not None and awaiting.awaited:
            since, limit = self._waiting
            if since != awaiting.time:
                since, limit = awaiting.time, _PATIENCE
            if time.time() - since > limit:
                self._say(f"  {waiting_line(awaiting)}")
                limit *= 2
            self._waiting = since, limit

    def _new(self, events: list[Event]) -> list[Event]:
        """The events after the latest that was seen, however many before it are still at hand."""
        last = max((number for number, event in enumerate(events) if event == self._last), default=-1)
        return events[last + 1 :]


def progress_line(now: Progress) -> str:
    """A round in a line."""
    gradient = "" if now.gradient is None else f", gradient {now.gradient:.2e}"
    late = f", late: {', '.join(now.late)}" if now.late else ""
    return (
        f"round {now.round}: moved by {now.move:.2e}{gradient}, up {now.bytes_up:,} B, down {now.bytes_down:,} B, "
        f"{now.seconds:.1f} s{late}"
    )


def waiting_line(awaiting: Awaiting) -> str:
    """Whom the server waits for, and for how long."""
    waited = f"{time.time() - awaiting.time:.0f} s so far"
    return f"{awaiting.phase} of round {awaiting.round + 1}: waits for {', '.join(awaiting.awaited)}; {waited}"


def status_lines(status: RunStatus, model: str, events: int = 5, *, sites: bool = True) -> list[str]:
    """A run's status at a look; `sites` adds a line for each."""
    lines = ["No round yet." if status.progress is None else progress_line(status.progress)]
    if status.rounds is not None and status.progress is not None and status.rounds >= status.progress.round:
        lines[0] = lines[0].replace(":", f" of {status.rounds}:", 1)
    if status.outcome is None and not status.alive:
        when = f", last heard of {ago(status.awaiting.time)}" if status.awaiting is not None else ""
        lines.append(f"  The server's process does not run{when}: start it, and it goes on from what was saved.")
    elif status.outcome is None and status.awaiting is not None and status.awaiting.awaited:
        lines.append(f"  {waiting_line(status.awaiting)}")
    width = max((len(row.name) for row in status.sites), default=0)
    for row in status.sites if sites else []:
        weight = "" if row.weight is None else f"  weight {row.weight:.0%}"
        last = "" if row.last is None else f", last in round {row.last}"
        since = "" if row.since is None else f" (since {time.strftime('%H:%M:%S', time.localtime(row.since))})"
        counts = f"counted in {row.counted} of the latest {row.rounds} rounds{last}"
        lines.append(f"  {row.name:<{width}}  {counts}{weight}  {row.state}{since}")
    lines += [f"  {event_line(event)}" for event in status.events[-events:]] if events else []
    if status.outcome is not None:
        lines.append(end_line(status.outcome, model))
    return lines


def site_lines(site: dict[str, Any]) -> list[str]:
    """A site's own view at a look."""
    record = site["record"]
    wrong = [site["unwritable"]] if site["unwritable"] else []
    if record is None:
        return [*wrong, "Nothing was asked of this site yet."]
    ended = "the run is over" if site["run over"] else "its job does not run"
    running = "its job runs" if site["job runs"] else ended
    place = f"run {record['run']}, round {record['round'] + 1}, {record['phase']}"
    lines = [
        *wrong,
        f"last asked {ago(record['time'])} in {place}; {running}",
        f"  {record['answered']} requests answered, {record['refused']} refused since the job began",
    ]
    if record["refusal"]:
        lines.append(f"  refused {ago(record['refusal_time'])}: {record['refusal']}")
    lines += [f"  {site[what]}" for what in ("busy", "cut off") if site[what]]
    limits = ", ".join(f"{name} {value}" for name, value in site["limits"].items())
    lines.append(f"  limits: {limits}")
    if site["privacy spent"] is not None:
        lines.append(f"  privacy spent in all runs: epsilon = {site['privacy spent']:.3g}")
    return lines
