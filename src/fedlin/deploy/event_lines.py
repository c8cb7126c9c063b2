"""What happened in a run, a sentence each: who failed, with what, what is being done, and what to do."""

import errno
import os
import time
from typing import Any

Event = dict[str, Any]  # a line of the log of a run, as read from JSON

_FULL = os.strerror(errno.ENOSPC)  # in the words of this system, as in those of the site's if it is of the same kind
_REMEDIES = {
    "silent": "See whether its machine and its process run: fedlin federation status at the site.",
    "refused": "Its owner agrees with you on settings and limits.",
    "rejected": "Its owner checks its data and its loss.",
    "quarantined": "Once it is repaired, readmit it: fedlin federation readmit SERVER {client}.",
}


def event_line(event: Event) -> str:
    """One line of the log's events, for a person.

    >>> event_line({"event": "fault", "round": 3, "client": "north", "kind": "silent", "why": "no answer within 60 s",
    ...     "doing": "the round waits for it and asks again"})
    'after round 3: north: no answer within 60 s; the round waits for it and asks again. See whether its machine and
    its process run: fedlin federation status at the site.'
    """
    clock = time.strftime("%H:%M:%S ", time.localtime(event["time"])) if "time" in event else ""
    return f"{clock}after round {event['round']}: {_SENTENCES.get(event['event'], _other)(event)}"


def remedy(event: Event) -> str:
    """What a person can do about a fault."""
    if event["kind"] == "refused" and _FULL in event["why"]:
        return "Its owner frees space on the site's disk, and the run goes on."
    if event["kind"] == "refused" and "[reference " in event["why"]:
        return "Its owner finds the cause in fedlin.log at the site, under the reference."
    return _REMEDIES[event["kind"]].format(client=event["client"])


def _fault(event: Event) -> str:
    return f"{event['client']}: {event['why'].rstrip('.')}; {event['doing']}. {remedy(event)}"


def _recovered(event: Event) -> str:
    return f"{event['client']} takes part again; it had: {event['why']}"


def _rejected(event: Event) -> str:
    return f"{event['client']}: an upload was rejected, {event['why']}"


def _outlier(event: Event) -> str:
    bound = max(10 * event["usual"], 2 * event.get("largest", 0.0))  # room for what was right so far
    if bound >= event["norm"]:
        return f"{event['why']}. If that is wrong, its owner checks its data and its loss: others were as large before."
    return f"{event['why']}. If that is wrong, set policy.norm_bound to about {bound:.0e}."


def _went_back(event: Event) -> str:
    return (
        f"the model of round {event['ruined']} was ruined, and it went back to round {event['round']}: {event['why']}"
    )


def _began(event: Event) -> str:
    weights = ", ".join(f"{name} {weight:g}" for name, weight in event.get("weights", {}).items())
    return f"the run {event.get('run', '')} began with the weights {weights}"


def _started_afresh(event: Event) -> str:
    return f"memories were made anew at the present model: {event['why']}"


def _evaluation(event: Event) -> str:
    def numbers(metrics: dict[str, float]) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())

    sites = "; ".join(f"{name}: {numbers(metrics)}" for name, metrics in event["sites"].items())
    refused = "; ".join(f"{name} did not: {why}" for name, why in event.get("refused", {}).items())
    missing = f"no answer from {', '.join(event['missing'])}" if event.get("missing") else ""
    return f"evaluated: {numbers(event['mean']) or 'by nobody'} ({'; '.join(filter(None, (sites, refused, missing)))})"


def _delivered(event: Event) -> str:
    missing = f", and not to {', '.join(event['missing'])}" if event["missing"] else ""
    return f"the model was delivered to {', '.join(event['clients']) or 'nobody'}{missing}"


def _another_weight(event: Event) -> str:
    return f"{event['client']} {event['why']}"


def _other(event: Event) -> str:
    who = f"{event['client']} was " if "client" in event else "the run was " if event["event"] == "resumed" else ""
    why = f": {event['why']}" if "why" in event else ""
    return f"{who}{event['event']}{why}"


_SENTENCES = {
    "fault": _fault,
    "recovered": _recovered,
    "rejected": _rejected,
    "outlier": _outlier,
    "went back": _went_back,
    "began": _began,
    "evaluation": _evaluation,
    "delivered": _delivered,
    "another weight": _another_weight,
    "started afresh": _started_afresh,
}
