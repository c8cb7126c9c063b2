"""A site's own limits hold whatever the server asks, in whichever run, and over restarts."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_federation import PRIVATE, PROBLEM, X0, Wrapped, events, serve, sites, undisturbed

import fedlin
from fedlin import Client, Limits
from fedlin.audit import AuditTrail
from fedlin.engines.federation import wire
from fedlin.engines.federation.limits import COUNTS, LEDGER, most_releases
from fedlin.engines.federation.wire import Header, Kind, Task
from fedlin.errors import ArgumentError, CheckpointError, FederationError
from fedlin.privacy import account
from fedlin.transports.loopback import Loopback

ONE_STEP = fedlin.Plan([1, 3, 2], [0.1, 0.1, 0.1])


def with_limits(limits: Limits, algorithm: Any = None, folder: Path | None = None) -> Loopback:
    """Three sites, of which the second has limits."""
    method = fedlin.fedlin() if algorithm is None else algorithm
    site = Client(method, PROBLEM.client(1), limits=limits, folder=folder)
    return Loopback({**sites(method), "site-1": site.handle})


def reason(reply: bytes) -> str:
    """Why a client refused; empty where it did not."""
    header, rest = wire.read_message(reply)
    return str(wire.read_facts(wire.read_reply(rest)[1])["reason"]) if header.kind == Kind.REFUSED else ""


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(tau=2), "tau = 3 is beyond this site's limit of 2"),
        (Limits(eta=0.05), "eta = 0.1 is beyond this site's limit of 0.05"),
        (Limits(rounds=3), "rounds = 4 is beyond this site's limit of 3"),
        (Limits(methods=("fedavg", "scaffold")), "the method fedlin is not one of this site's: fedavg, scaffold"),
        (Limits(runs=("00" * 8,)), "is not one that this site's owner has approved"),
        (Limits(epsilon=1.0), "fedlin uploads without noise of the site's own in phase 0"),
        (Limits(secure=True), "this site takes part in secure sums alone"),
    ],
)
def test_a_run_beyond_a_limit_is_refused_before_it_begins(
    limits: Limits, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Told on both sides, by name."""
    with pytest.raises(FederationError, match=f"site-1 refused to take part: .*{why}"):
        serve(fedlin.fedlin(), with_limits(limits), 4, plan=ONE_STEP)
    assert why in caplog.text


def test_a_run_within_the_limits_is_as_ever(tmp_path: Path) -> None:
    limits = Limits(tau=3, eta=1.0, rounds=4, requests=2, methods=("fedlin",))
    result = serve(fedlin.fedlin(), with_limits(limits, folder=tmp_path), 4)
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.fedlin(), 4))


def test_an_approved_run_is_the_one_that_was_named() -> None:
    with pytest.raises(FederationError, match=r"run [0-9a-f]{16} is not one") as refused:
        serve(fedlin.fedlin(), with_limits(Limits(runs=())), 2)
    run = str(refused.value).partition("run ")[2].split()[0]
    approved = Limits(runs=(run,))
    assert serve(fedlin.fedlin(), with_limits(approved), 2).status == "done"
    with pytest.raises(FederationError, match="approved"):
        serve(fedlin.fedlin(), with_limits(approved), 2, seed=9)


class Asked:
    """A site and the messages of a server that keeps to no rule."""

    def __init__(self, limits: Limits, algorithm: Any = None, folder: Path | None = None) -> None:
        self.algorithm = fedlin.fedlin() if algorithm is None else algorithm
        self.site = Client(self.algorithm, PROBLEM.client(0), limits=limits, folder=folder)
        self.run = self.site.handshake.fingerprint + b"run1"

    def hello(self, run: bytes, **said: Any) -> str:
        facts = wire.write_facts({**self.facts, **said})
        return reason(self.site.handle("hello", wire.write_message(Header(Kind.HELLO, run), facts)))

    @property
    def facts(self) -> dict[str, Any]:
        return self.site.handshake.facts

    def task(self, number: int, x: Any = X0, run: bytes | None = None, **changes: Any) -> str:
        """A request for the first phase at any model, from a state that is begun for it; why it was refused."""
        begin = wire.write_message(Header(Kind.BEGIN, run or self.run, number))
        refused = reason(self.site.handle("begin", begin))
        task = Task(wire.identify(begin), 0, 0, 1, 0.1)._replace(**changes)
        header = Header(Kind.TASK, run or self.run, number, 0, self.algorithm.opening is not None)
        return refused or reason(self.site.handle("phase", wire.write_task(header, task, wire.pack(np.asarray(x)))))


def test_a_server_that_asks_for_more_than_it_said_is_refused() -> None:
    server = Asked(Limits(tau=5, eta=1.0, rounds=10))
    assert server.hello(server.run) == ""
    assert server.task(0) == ""
    assert "tau = 6" in server.task(1, tau=6)
    assert "eta = 2.0" in server.task(1, eta=2.0)
    assert "rounds = 11" in server.task(10)
    assert server.task(9) == ""


@pytest.mark.parametrize(
    "limits", [Limits(secure=True), Limits(runs=()), Limits(methods=("fedavg",)), Limits(epsilon=1.0)]
)
def test_what_an_owner_forbids_is_refused_whatever_the_server_says_or_leaves_out(limits: Limits) -> None:
    """A hello that speaks of secure sums where there are none, and no hello at all."""
    server = Asked(limits)
    assert server.hello(server.run, secure=True) != ""
    assert Asked(limits).task(0) != ""
    assert Asked(Limits()).task(0) == ""


def test_a_round_can_be_asked_so_often_and_no_more(tmp_path: Path) -> None:
    """At other models each time, which is how one reads a site's loss; also after its process was restarted."""
    server = Asked(Limits(requests=3), folder=tmp_path)
    for turn in range(3):
        assert server.task(0, X0 + turn) == ""
    assert server.task(0, X0 + 2) == ""  # a repetition costs nothing
    assert "requests = 4 is beyond this site's limit of 3" in server.task(0, X0 + 3)
    restarted = Asked(Limits(requests=3), folder=tmp_path)
    assert "requests = 4" in restarted.task(0, X0 + 4)
    assert restarted.task(1) == ""


def test_a_site_takes_part_in_one_run_at_a_time(tmp_path: Path) -> None:
    """A message of another run is refused until that run greets it, and then those of the first are."""
    server = Asked(Limits(), folder=tmp_path)
    other = server.run[:4] + b"run2"
    assert server.hello(server.run) == ""
    assert f"the message is of run {other.hex()}" in server.task(0, run=other)
    assert f"takes part in {server.run.hex()}" in Asked(Limits(), folder=tmp_path).task(0, run=other)
    assert server.hello(other) == ""
    assert server.task(0, run=other) == ""
    assert f"takes part in {other.hex()}" in server.task(0)


def test_the_privacy_budget_is_that_of_all_runs_together(tmp_path: Path) -> None:
    """Exactly as many uploads as the exact account allows, over runs and restarts."""
    epsilon, delta = 300.0, 1e-6
    allowed = next(n for n in range(1, 99) if account(PRIVATE, n + 1, delta=delta).epsilon > epsilon)
    assert allowed > 2
    spent = 0
    for run in range(allowed + 3):
        server = Asked(Limits(epsilon=epsilon, delta=delta), PRIVATE, folder=tmp_path)
        name = server.run[:4] + run.to_bytes(4, "big")
        assert server.hello(name) == ""
        refused = server.task(0, run=name)
        assert server.task(0, run=name) == refused  # the same answer again gives nothing away
        assert (refused == "") == (run < allowed), (run, refused)
        spent += refused == ""
    assert spent == allowed
    assert "privacy budget of epsilon = 300.0 is spent" in refused


def test_a_run_with_noise_keeps_to_the_budget() -> None:
    """The site refuses once the budget is spent, and the server is told; with enough of it the run is done."""
    enough = account(PRIVATE, 3, delta=1e-6).epsilon + 1e-6
    assert most_releases(enough, 1e-6) >= 3 / 0.1**2
    handlers = with_limits(Limits(epsilon=enough), PRIVATE).handlers
    assert serve(PRIVATE, Loopback(handlers), 3).status == "done"
    quick = fedlin.Policy.everyone(patience=0.2, pause=0.0)
    with pytest.raises(FederationError, match=r"site-1: this site's privacy budget of epsilon = .* is spent"):
        serve(PRIVATE, Loopback(handlers), 4, policy=quick, seed=2)


def test_a_refusal_in_the_middle_of_a_run_is_told(tmp_path: Path) -> None:
    """A site's owner tightens a limit while a run goes on, and lifts it again."""
    site = Client(fedlin.fedlin(), PROBLEM.client(1))
    handlers, refused = {**sites(fedlin.fedlin()), "site-1": site.handle}, 0

    def between(name: str, phase: str, payload: bytes) -> bytes:
        nonlocal refused
        if name == "site-1" and wire.read_message(payload)[0].round == 2:
            site.limits = Limits(tau=1) if refused < 4 else Limits()
            refused += 1
        return bytes(handlers[name](phase, payload))

    result = serve(fedlin.fedlin(), Wrapped(handlers, between), 4)
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.fedlin(), 4))
    (fault,) = events(result, "fault")
    assert (fault["kind"], fault["why"]) == ("refused", "tau = 3 is beyond this site's limit of 1.")


@pytest.mark.parametrize(
    "wrong", [{"tau": 0}, {"eta": -1.0}, {"delta": 2.0}, {"methods": "fedlin"}, {"runs": [3]}, {"epsilon": np.nan}]
)
def test_limits_that_cannot_be_met_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"limits.{next(iter(wrong))}"):
        Limits(**wrong)


@pytest.mark.parametrize("name", [LEDGER, COUNTS])
def test_a_damaged_ledger_is_not_taken_for_an_empty_one(tmp_path: Path, name: str) -> None:
    server = Asked(Limits(requests=2), folder=tmp_path)
    server.task(0)
    (path,) = tmp_path.rglob(name)
    path.write_text("{")
    with pytest.raises(CheckpointError, match="it tells what was spent"):
        Asked(Limits(requests=2), folder=tmp_path)


@pytest.mark.parametrize("spent", ["NaN", "-Infinity", "-1.0", "1e999", "true", '"1.0"'])
def test_a_ledger_that_would_leave_a_budget_without_end_is_damaged(tmp_path: Path, spent: str) -> None:
    (tmp_path / LEDGER).write_text(f'{{"run": "{"00" * 8}", "spent": {spent}}}')
    with pytest.raises(CheckpointError, match="it tells what was spent"):
        Asked(Limits(epsilon=1.0), PRIVATE, folder=tmp_path)


def test_what_a_server_says_is_shown_as_text_of_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """In the site's own log a line that the server has made up would be taken for one of the site's."""
    server = Asked(Limits(tau=5))
    refused = server.hello(server.run, tau="6\n2026-01-01 ERROR fedlin: remove site.toml\x1b[2J")
    assert "beyond this site's limit of 5" in refused
    assert refused.isprintable()
    assert all(record.getMessage().isprintable() for record in caplog.records)


@pytest.mark.parametrize(
    "digest", [None, 7, {"of": 10_000 * "x"}, [[[]]], 10_000 * "0"], ids=lambda value: str(value)[:9]
)
def test_a_site_s_trail_holds_of_a_server_s_no_more_than_a_hash(tmp_path: Path, digest: Any) -> None:
    """Else a server could fill it, and write into it what whoever reads it later cannot."""
    trail = AuditTrail(tmp_path)
    site = Client(fedlin.fedlin(), PROBLEM.client(0), audit=trail)
    facts = wire.write_facts({**site.handshake.facts, "trail": digest})
    hello = wire.write_message(Header(Kind.HELLO, site.handshake.fingerprint + b"run1"), facts)
    assert reason(site.handle("hello", hello)) == ""
    witnessed = [entry.facts["digest"] for entry in trail.entries() if entry.facts["event"] == "trail"]
    assert all(isinstance(known, str) and len(known) <= 64 for known in witnessed)
    assert trail.path.stat().st_size < 1000


@pytest.mark.parametrize("kept", [True, False])
def test_another_run_in_between_gives_no_requests_back(tmp_path: Path, kept: bool) -> None:
    """Else a server with two runs could ask for a round at as many models as it likes."""
    server = Asked(Limits(requests=2), folder=tmp_path if kept else None)
    other = server.run[:4] + b"run2"
    for turn in range(2):
        assert server.hello(server.run) == ""
        assert server.task(0, X0 + turn) == ""
        assert server.hello(other) == ""
        assert server.task(0, X0 + turn, run=other) == ""
    assert server.hello(server.run) == ""
    assert "requests = 3 is beyond" in server.task(0, X0 + 3)
    if kept:
        assert "requests = 3 is beyond" in Asked(Limits(requests=2), folder=tmp_path).task(0, X0 + 4)
        assert len(server.site._stores) == 1  # a server that names ever new runs does not fill the memory


def test_the_model_of_the_last_round_allowed_is_evaluated() -> None:
    handlers = {
        f"site-{i}": Client(
            fedlin.fedlin(), PROBLEM.client(i), limits=Limits(rounds=4), evaluate=lambda x: {"a": 1.0}
        ).handle
        for i in range(3)
    }
    result = serve(fedlin.fedlin(), Loopback(handlers), 4, evaluation=fedlin.Evaluation(every=2))
    assert [(line["round"], line["mean"]) for line in result.evaluations] == [(2, {"a": 1.0}), (4, {"a": 1.0})]
    server = Asked(Limits(rounds=4))
    server.site.evaluate = lambda x: {"a": 1.0}
    late = wire.write_message(Header(Kind.EVALUATE, server.run, 5), wire.pack(X0))
    assert "rounds = 5 is beyond this site's limit of 4" in reason(server.site.handle("evaluate", late))


def test_limits_hold_and_a_run_goes_on_where_the_folder_was_removed(tmp_path: Path) -> None:
    """What was spent is still in the memory, and is on disk again with the next request."""
    place = tmp_path / "site"
    enough = account(PRIVATE, 3, delta=1e-6).epsilon + 1e-6
    limits = Limits(requests=2, epsilon=enough, delta=1e-6)
    server = Asked(limits, PRIVATE, folder=place)
    assert server.task(0) == ""
    shutil.rmtree(place)
    assert server.task(0, X0 + 1) == ""
    assert "requests = 3" in server.task(0, X0 + 2)
    assert server.task(1) == ""
    assert "is spent" in Asked(limits, PRIVATE, folder=place).task(2)
