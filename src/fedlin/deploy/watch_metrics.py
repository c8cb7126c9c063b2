"""A federation's numbers as Prometheus reads them, in its text format."""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fedlin.deploy.event_lines import Event
from fedlin.deploy.status import RunStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One value: of a counter where its name ends in _total, of a gauge otherwise."""

    name: str
    value: float | None  # None is left out
    help: str
    labels: Mapping[str, str] = MappingProxyType({})


def run_samples(status: RunStatus, events: list[Event]) -> list[Sample]:
    """A run's, from its server."""
    now = status.progress
    ended = (status.outcome or {}).get("status", "")
    samples = [
        Sample("fedlin_server_up", float(status.alive), "Whether the process of the server's job runs."),
        Sample("fedlin_run_ended", float(status.outcome is not None), "Whether the run is over.", {"status": ended}),
        Sample("fedlin_rounds_planned", status.rounds, "Rounds the run is to have."),
    ]
    if now is not None:
        samples += [
            Sample("fedlin_round", now.round, "Rounds played."),
            Sample("fedlin_move", now.move, "How far the latest round moved the model."),
            Sample("fedlin_gradient", now.gradient, "The norm of the server's estimate of the gradient."),
            Sample("fedlin_run_seconds_total", now.seconds, "Seconds of the run."),
            Sample("fedlin_attempts", now.attempts, "How often the latest round was asked."),
        ]
        for way, count in (("up", now.bytes_up), ("down", now.bytes_down)):
            samples.append(Sample("fedlin_bytes_total", count, "Bytes of the method's messages.", {"direction": way}))
    waited = [] if status.awaiting is None or status.outcome is not None else status.awaiting.awaited
    samples.append(Sample("fedlin_sites_awaited", len(waited), "Sites that the server waits for."))
    for row in status.sites:
        site = {"site": row.name}
        samples += [
            Sample("fedlin_site_up", float(row.since is None), "Whether nothing keeps the site from counting.", site),
            Sample("fedlin_site_counted_rounds", row.counted, "Of the latest rounds, those that counted it.", site),
            Sample("fedlin_site_last_round", row.last, "The last round that counted it.", site),
            Sample("fedlin_site_answer_seconds", row.took, "Seconds that its latest answer took.", site),
            Sample("fedlin_site_weight", row.weight, "Its share of all weights.", site),
            Sample("fedlin_site_faults_total", row.faults, "Faults of the site.", site),
        ]
    for event, count in Counter(entry["event"] for entry in events).items():
        samples.append(Sample("fedlin_events_total", count, "Events in the log.", {"event": event}))
    for latest in [event for event in events if event["event"] == "evaluation"][-1:]:
        for metric, value in latest["mean"].items():
            samples.append(Sample("fedlin_metric", value, "The sites' weighted mean.", {"metric": metric}))
        for name, metrics in latest["sites"].items():
            for metric, value in metrics.items():
                labels = {"site": name, "metric": metric}
                samples.append(Sample("fedlin_site_metric", value, "A site's own value.", labels))
    return samples


def site_samples(name: str, site: dict[str, Any]) -> list[Sample]:
    """A site's own."""
    record, labels = site["record"] or {}, {"site": name}
    return [
        Sample("fedlin_site_job_up", float(site["job runs"]), "Whether the site's job runs.", labels),
        Sample("fedlin_site_round", record.get("round"), "The round it was asked for last.", labels),
        Sample("fedlin_site_asked_time_seconds", record.get("time"), "When it was asked last.", labels),
        Sample("fedlin_site_answered_total", record.get("answered"), "Requests answered by this job.", labels),
        Sample("fedlin_site_refused_total", record.get("refused"), "Requests refused by this job.", labels),
        Sample("fedlin_site_epsilon_spent", site["privacy spent"], "Privacy spent in all runs.", labels),
    ]


def metrics_text(samples: Iterable[Sample]) -> str:
    """Prometheus's text format: samples of one name together, under what the name means.

    >>> print(metrics_text([Sample("fedlin_round", 3, "Rounds played.")]), end="")
    # HELP fedlin_round Rounds played.
    # TYPE fedlin_round gauge
    fedlin_round 3
    """
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.value is not None:
            by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for name, group in by_name.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {group[0].help}", f"# TYPE {name} {kind}"]
        for sample in group:
            labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels.items())
            lines.append(f"{name}{{{labels}}} {sample.value!r}" if labels else f"{name} {sample.value!r}")
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
