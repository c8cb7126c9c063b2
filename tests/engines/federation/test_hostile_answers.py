"""What a site that lies, or is broken in an unusual way, can do to the server, its operator and the other sites."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_federation import PROBLEM, QUICK, REMEMBERING, M, Wrapped, events, serve, sites

import fedlin
from fedlin import Client, Evaluation, Policy
from fedlin.deploy.event_lines import event_line
from fedlin.deploy.status import status_of
from fedlin.deploy.watch_metrics import metrics_text, run_samples
from fedlin.engines.federation import wire
from fedlin.engines.federation.round_log import LOG, read_log
from fedlin.engines.federation.wire import Kind
from fedlin.errors import FederationError
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


def test_one_of_several_sites_cannot_make_a_run_diverge() -> None:
    """Where the first answer is enough, and is not finite, others are asked, and its sender is quarantined."""

    handlers = sites(REMEMBERING)

    def ruin(name: str, phase: str, payload: bytes) -> bytes:
        reply: bytes = handlers[name](phase, payload)
        answered, rest = wire.read_message(reply)
        if name != "site-0" or answered.kind != Kind.UPLOAD or answered.round < 3:
            return reply
        return wire.write_reply(answered, wire.read_reply(rest)[0], wire.pack(np.full(PROBLEM.dim, np.nan)))

    result = serve(REMEMBERING, Wrapped(handlers, ruin), 8, policy=Policy.first(1, **QUICK))
    assert result.status == "done"
    assert result.absent == {"site-0": "quarantined"}


# Its weight and its metrics.


def returning(weight: float) -> Wrapped:
    """Site 1 is silent until it is forgotten, and comes back with another weight."""
    handlers, hellos = sites(REMEMBERING), 0
    heavy = Client(REMEMBERING, PROBLEM.client(1), weight=weight)

    def one(name: str, phase: str, payload: bytes) -> bytes | None:
        nonlocal hellos
        header, _ = wire.read_message(payload)
        hellos += name == "site-1" and header.kind == Kind.HELLO
        if name == "site-1" and hellos > 1:
            return heavy.handle(phase, payload)
        return None if name == "site-1" and header.round >= 2 else bytes(handlers[name](phase, payload))

    return Wrapped(handlers, one)


def test_who_comes_back_cannot_own_the_model() -> None:
    """The largest share is that of a run, not of its beginning."""
    policy = Policy.first(2, **QUICK, forget_after=3, max_share=0.9)
    result = serve(REMEMBERING, returning(1e12), 12, policy=policy)
    (outside,) = events(result, "not admitted")
    assert outside["client"] == "site-1"
    assert "it declares the weight 1e+12, which is 100.0% of all, and at most 90% is allowed" in outside["why"]
    assert result.absent == {"site-1": "left"}
    assert serve(REMEMBERING, returning(2.0), 12, policy=policy).absent == {}


def test_who_comes_beside_a_heavier_one_cannot_own_the_model() -> None:
    """What stays out is no part of all: two that come together do not let one another in."""
    weights = [1.0, 1e12, 1e11]

    class Growing(Loopback):
        exchanges = 0

        def exchange(self, phase: str, payloads: Any, clients: Any, timeout: float, enough: Any = None) -> Any:
            self.exchanges += 1
            return super().exchange(phase, payloads, clients, timeout, enough)

        def clients(self) -> list[str]:
            return ["site-0", "site-1", "site-2"][: 3 if self.exchanges > 5 else 1]

    handlers = {f"site-{i}": Client(REMEMBERING, PROBLEM.client(i), weight=weights[i]).handle for i in range(M)}
    policy = Policy.everyone(**QUICK, max_share=0.9)
    result = serve(REMEMBERING, Growing(handlers), 8, policy=policy, plan=fedlin.Plan(1, 0.2), expect=1)
    assert [event["client"] for event in events(result, "not admitted")] == ["site-1", "site-2"]
    assert result.clients == ["site-0"]


def test_a_weight_that_was_approved_may_be_any_share() -> None:
    """As the refusal says."""
    weights = [1.0, 100.0, 1.0]
    handlers = {f"site-{i}": Client(fedlin.fedlin(), PROBLEM.client(i), weight=weights[i]).handle for i in range(M)}
    policy = Policy.everyone(**QUICK, max_share=0.9)
    with pytest.raises(FederationError, match=r"site-1 declares the weight 100, which is 98\.0% of all.*approve"):
        serve(fedlin.fedlin(), Loopback(handlers), 2, policy=policy)
    assert serve(fedlin.fedlin(), Loopback(handlers), 2, policy=policy, weights={"site-1": 100.0}).status == "done"


def test_the_mean_of_metrics_is_a_number_whatever_sites_declare(tmp_path: Path) -> None:
    """An infinite one would be the best for good, and end a run that has patience."""

    def evaluated(number: int, weight: float, value: float) -> Client:
        evaluate = lambda x: {"score": value}  # noqa: E731
        return Client(fedlin.fedlin(), PROBLEM.client(number), evaluate=evaluate, evaluation_weight=weight)

    lying = [evaluated(0, 1.0, 0.5), evaluated(1, 1e200, 1e200), evaluated(2, 1e299, -9e299)]
    handlers = {f"site-{number}": client.handle for number, client in enumerate(lying)}
    result = serve(
        fedlin.fedlin(), Loopback(handlers), 2, evaluation=Evaluation(every=1, best="score"), folder=tmp_path
    )
    assert [np.isfinite(line["mean"]["score"]) for line in result.evaluations] == [True, True]
    assert [line["mean"] for line in read_log(tmp_path / LOG) if line.get("event") == "evaluation"] == [
        line["mean"] for line in result.evaluations
    ]
