"""What a site that lies, or is broken in an unusual way, can do to the server, its operator and the other sites."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_federation import PROBLEM, M, Wrapped, events, serve, sites

import fedlin
from fedlin import Client, Evaluation
from fedlin.deploy.event_lines import event_line
from fedlin.deploy.status import status_of
from fedlin.deploy.watch_metrics import metrics_text, run_samples
from fedlin.engines.federation import wire
from fedlin.engines.federation.wire import Kind
from fedlin.transports.loopback import Loopback

NASTY = "\x1b[2J\ndone: the model is in /tmp\u202e\ud800"


def between(change: Callable[[wire.Header, bytes, bytes], bytes], handlers: dict[str, Any]) -> Wrapped:
    """Site 1 answers what `change` makes of a message's header, the message and the answer to it."""

    def one(name: str, phase: str, payload: bytes) -> bytes:
        reply: bytes = handlers[name](phase, payload)
        return reply if name != "site-1" else change(wire.read_message(payload)[0], payload, reply)

    return Wrapped(handlers, one)


# What it says is shown to people.


def test_what_a_site_says_is_shown_as_text_of_one_line() -> None:
    """No escape sequences, no lines of its own, and nothing that cannot be written out."""
    asked = 0

    def refuse(header: wire.Header, payload: bytes, reply: bytes) -> bytes:
        nonlocal asked
        asked += header.kind == Kind.TASK
        if header.kind != Kind.TASK or asked > 2:
            return reply
        return wire.write_refusal(header, wire.identify(payload), NASTY, NASTY)

    result = serve(fedlin.fedlin(), between(refuse, sites(fedlin.fedlin())), 2)
    (fault,) = events(result, "fault")
    assert "done: the model" in fault["why"]
    for event in result.events:
        line = event_line(event)
        assert line.isprintable(), line
        line.encode()


@pytest.mark.parametrize("name", [NASTY, "\ud800", "a\nb", "x" * 65])
def test_a_metric_s_name_is_text_of_one_line(name: str, tmp_path: Path) -> None:
    """As a label in Prometheus's format and on a screen; the others are evaluated all the same."""

    def evaluated(number: int) -> Client:
        return Client(
            fedlin.fedlin(), PROBLEM.client(number), evaluate=lambda x: {name if number == 1 else "loss": 1.0}
        )

    handlers = {f"site-{number}": evaluated(number).handle for number in range(M)}
    result = serve(fedlin.fedlin(), Loopback(handlers), 2, evaluation=Evaluation(every=2), folder=tmp_path)
    (evaluation,) = result.evaluations
    assert evaluation["sites"].keys() == {"site-0", "site-2"}
    assert "characters that can be printed" in evaluation["refused"]["site-1"]
    metrics_text(run_samples(status_of(tmp_path, result.events, []), result.events)).encode()


def test_why_a_call_failed_may_quote_the_site_and_is_cut_short() -> None:
    """A transport's own words for what went wrong may hold all that a site sent."""

    class Failing(Loopback):
        exchanges = 0

        def exchange(self, phase: str, payloads: Any, clients: Any, timeout: float, enough: Any = None) -> Any:
            self.exchanges += 1
            self.failures = {"site-1": NASTY + "y" * 100_000} if self.exchanges == 3 else {}
            return super().exchange(phase, payloads, [n for n in clients if n not in self.failures], timeout, enough)

    result = serve(fedlin.fedlin(), Failing(sites(fedlin.fedlin())), 2)
    (fault,) = events(result, "fault")
    assert fault["client"] == "site-1"
    assert len(fault["why"]) < 1100
    assert event_line(fault).isprintable()
