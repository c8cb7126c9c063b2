"""A federation makes the simulated run, whatever fails on the way."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_wire import mutated, resealed

import fedlin
from faults import CLIENT_FAULTS, MEMORY_FAULTS, SERVER_FAULTS, Fault, Faulty, flipped, until_done
from fedlin import Client, FederationResult, Policy, identity, innovation, top_k
from fedlin.core import Algorithm
from fedlin.engines.federation import array_files, wire
from fedlin.engines.federation.wire import Header, Kind
from fedlin.errors import ArgumentError, CheckpointError, FederationError, FedLinError, PlanError
from fedlin.problems.problem import Problem
from fedlin.transports.loopback import Loopback
from fedlin.transports.transport import digest
from quadratics import Array, assert_close

M, D = 3, 3
RNG = np.random.default_rng(0)
SKEW = 0.15 * RNG.standard_normal((M, D, D))
A, B = np.eye(D) + (SKEW + SKEW.transpose(0, 2, 1)) / 2, RNG.standard_normal((M, D))
PROBLEM = fedlin.problems.quadratic(A, B)  # well conditioned, so that few rounds show where a run ends
PLAN = fedlin.Plan([1, 3, 2], [0.7, 0.25, 0.33])
X0 = np.array([1.0, -2.0, 0.5])
QUICK: dict[str, Any] = {"pause": 0.0, "patience": 20.0}
SINGLE = fedlin.problems.quadratic(A.astype(np.float32), B.astype(np.float32))
REMEMBERING = fedlin.fedlin(uplink=innovation(identity()))  # ends at x* whoever misses which round


def sites(algorithm: Algorithm[Any, Any], problem: Problem = PROBLEM, **options: Any) -> dict[str, Any]:
    return {f"site-{i}": Client(algorithm, problem.client(i), **options).handle for i in range(problem.clients)}


def serve(algorithm: Algorithm[Any, Any], transport: Any, rounds: int, **options: Any) -> FederationResult:
    settled = {"plan": PLAN, "policy": Policy.everyone(**QUICK), "x0": X0, "seed": 1, **options}
    return fedlin.serve(algorithm, transport, rounds=rounds, **settled)


@cache
def undisturbed(algorithm: Algorithm[Any, Any], rounds: int) -> Any:
    """The model of a federation in which nothing goes wrong."""
    return serve(algorithm, Loopback(sites(algorithm)), rounds).x


def simulate(algorithm: Algorithm[Any, Any], rounds: int, **options: Any) -> fedlin.Result:
    return fedlin.simulate(
        algorithm, **{"problem": PROBLEM, "plan": PLAN, "rounds": rounds, "x0": X0, "seed": 1, **options}
    )


def near(x: Array, minimizer: Array = PROBLEM.minimizer) -> bool:
    return bool(np.linalg.norm(x - minimizer) < 1e-4 * np.linalg.norm(X0 - minimizer))


def events(result: FederationResult, name: str) -> list[dict[str, Any]]:
    return [event for event in result.events if event["event"] == name]


class Wrapped(Loopback):
    """A loopback whose messages go through `between`, (client, phase, payload) -> reply or None."""

    def __init__(self, handlers: Mapping[str, Any], between: Callable[[str, str, bytes], bytes | None]) -> None:
        def through(name: str) -> Callable[[str, bytes], bytes]:
            def handle(phase: str, payload: bytes) -> bytes:
                reply = between(name, phase, payload)
                if reply is None:
                    raise ConnectionError
                return reply

            return handle

        super().__init__({name: through(name) for name in handlers})


# The same run as simulate's.


@pytest.mark.parametrize(
    "algorithm",
    [fedlin.compressed(2), fedlin.fedlin(uplink=top_k(2), downlink=top_k(2)), fedlin.scaffold()],
    ids=lambda a: a.name,
)
def test_the_simulated_run_up_to_rounding(algorithm: Algorithm[Any, Any]) -> None:
    models = [X0]
    result = serve(algorithm, Loopback(sites(algorithm)), 10, on_round=lambda t, x, _: models.append(x))
    simulated = simulate(algorithm, 10)
    # Another program: the simulator multiplies for all clients at once.
    np.testing.assert_allclose(np.array(models), simulated.iterates, rtol=1e-13)
    np.testing.assert_allclose(result.x, simulated.x, rtol=1e-13)
    assert result.status == "done"
    assert result.rounds == 10
    assert result.answered == [["site-0", "site-1", "site-2"]] * 10
    np.testing.assert_allclose(result.move[1:], np.linalg.norm(np.diff(simulated.iterates, axis=0), axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "known"),
    [
        (fedlin.fedlin(), True),
        (fedlin.fedlin(uplink=fedlin.innovation(fedlin.identity())), True),
        (fedlin.marina(fedlin.identity(), 0.5), True),
        (fedlin.fedlin(downlink=fedlin.innovation(top_k(2))), False),
        (fedlin.fedavg(), False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_servers_gradient_is_the_objectives(algorithm: Algorithm[Any, Any], known: bool) -> None:
    """Where its method leaves the server an exact one; elsewhere there is none to be shown."""
    result = serve(algorithm, Loopback(sites(algorithm)), 5)
    expected = simulate(algorithm, 5).grad_norm[:-1] if known else np.full(5, np.nan)
    np.testing.assert_allclose(result.gradient[1:], expected, rtol=1e-9)


def test_declared_weights_make_the_weighted_objective() -> None:
    rows = [10.0, 1.0, 4.0]
    handlers = {f"site-{i}": Client(fedlin.fedlin(), PROBLEM.client(i), weight=rows[i]).handle for i in range(M)}
    result = serve(fedlin.fedlin(), Loopback(handlers), 8)
    assert_close(result.x, simulate(fedlin.fedlin(), 8, weights=rows).x, 1e-12)


def test_a_noisy_oracle_draws_the_same_on_both_engines() -> None:
    noisy = fedlin.problems.noisy(PROBLEM, 0.1)
    result = serve(fedlin.fedlin(), Loopback(sites(fedlin.fedlin(), noisy)), 5)
    assert_close(result.x, simulate(fedlin.fedlin(), 5, problem=noisy).x, 1e-12)


def test_single_precision_and_a_changing_plan() -> None:
    plan = fedlin.Plan(np.arange(1, 16).reshape(5, 3), np.linspace(0.1, 0.2, 15).reshape(5, 3))
    start = X0.astype(np.float32)
    result = serve(fedlin.fedavg(), Loopback(sites(fedlin.fedavg(), SINGLE)), 5, plan=plan, x0=start)
    assert result.x.dtype == np.float32
    assert_close(result.x, simulate(fedlin.fedavg(), 5, problem=SINGLE, plan=plan, x0=start).x, 1e-5)


def test_those_who_stay_away_are_simulate_s_absent_clients() -> None:
    """Whole rounds missed by a schedule: the same models as `participation` gives, links' memories included."""
    present = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]])
    algorithm = fedlin.fedlin(uplink=innovation(top_k(2)))
    handlers = sites(algorithm)

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        header = wire.read_message(payload)[0]
        here = header.kind != Kind.TASK or present[header.round, int(name[-1])]
        return handlers[name](phase, payload) if here else None

    result = serve(algorithm, Wrapped(handlers, between), 6, policy=Policy.within(5.0, **QUICK))
    simulated = simulate(algorithm, 6, participation=present)
    np.testing.assert_allclose(result.x, simulated.x, rtol=1e-13)
    np.testing.assert_array_equal(result.bytes_up, simulated.bytes_up)
    assert [len(names) for names in result.answered] == present.sum(axis=1).tolist()


# Faults.


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """A process that dies leaves the operating system's files as they are: only a power cut needs fsync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


def disturbed(
    algorithm: Algorithm[Any, Any],
    faults: Sequence[Fault],
    rounds: int,
    policy: Policy | None = None,
    long: int = array_files.LONG,
) -> tuple[FederationResult, Faulty]:
    """A run with these faults, in which arrays of so many bytes are long: they have files of their own."""
    chosen = Policy.everyone(**QUICK, rejections=10**6) if policy is None else policy
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_files, "LONG", long)
        folder = Path(name)
        transport = Faulty(lambda i, place: Client(algorithm, PROBLEM.client(i), folder=place), M, folder, faults)
        result = until_done(lambda: serve(algorithm, transport, rounds, policy=chosen, folder=folder / "server"))
    return result, transport


def schedules(kinds: Sequence[str], exchanges: int) -> st.SearchStrategy[list[Fault]]:
    fault = st.builds(Fault, st.integers(0, exchanges), st.integers(0, M - 1), st.sampled_from(kinds))
    return st.lists(fault, min_size=1, max_size=6)


lengths = st.sampled_from([1, array_files.LONG])


def chaos(examples: int) -> Callable[[Any], Any]:
    ignored = [HealthCheck.too_slow]
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=ignored
    )


DRAWN = fedlin.tamuna(clients=M, cohort=2, sparsity=2)
ALIKE = fedlin.Plan(2, 0.3)


def test_those_who_are_drawn_are_those_of_the_simulated_run() -> None:
    """One that is silent when it is drawn is waited for; who is not drawn is neither asked nor late."""
    handlers, asked, silent = sites(DRAWN), dict.fromkeys(range(8), frozenset[str]()), [3]

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        header = wire.read_message(payload)[0]
        if header.kind == Kind.TASK:
            asked[header.round] |= {name}
            if phase == "correction" and name == "site-1" and silent:
                silent.pop()
                return None
        reply: bytes = handlers[name](phase, payload)
        return reply

    result = serve(DRAWN, Wrapped(handlers, between), 8, plan=ALIKE, policy=Policy.drawn(2, **QUICK))
    simulated = simulate(DRAWN, 8, plan=ALIKE, participation=2 / 3)
    np.testing.assert_allclose(result.x, simulated.x, rtol=1e-12)
    for name in ("bytes_up", "bytes_down", "gradients"):
        np.testing.assert_array_equal(getattr(result, name), getattr(simulated, name))
    assert [sorted(names) for names in asked.values()] == result.answered
    assert {len(names) for names in result.answered} == {2}
    assert len(set(map(tuple, result.answered))) == 3
    assert not silent


def test_a_method_for_so_many_clients_takes_no_more_and_no_fewer() -> None:
    handlers = {**sites(DRAWN), "site-9": Client(DRAWN, PROBLEM.client(0)).handle}
    loopback = Loopback({name: handlers[name] for name in handlers if name != "site-9"})

    def let_in(played: int, x: Array, measures: dict[str, Any]) -> None:
        loopback.handlers["site-9"] = handlers["site-9"]

    result = serve(DRAWN, loopback, 4, plan=ALIKE, policy=Policy.drawn(2, **QUICK), on_round=let_in)
    (event,) = events(result, "not admitted")
    assert event["why"] == f"{DRAWN.name} is made for 3 clients"
    np.testing.assert_allclose(result.x, simulate(DRAWN, 4, plan=ALIKE, participation=2 / 3).x, rtol=1e-12)
    with pytest.raises(ArgumentError, match="made for 3 clients, and there are 4"):
        serve(DRAWN, Loopback(handlers), 4, plan=ALIKE, policy=Policy.drawn(2, **QUICK))

    def spoil(name: str, phase: str, payload: bytes) -> bytes | None:
        reply: bytes = handlers[name](phase, payload)
        return reply[:-8] + np.float64(np.nan).tobytes() if name == "site-1" and phase == "model" else reply

    spoilt = Wrapped({name: handlers[name] for name in handlers if name != "site-9"}, spoil)
    with pytest.raises(ArgumentError, match="made for 3 clients, and there are 2"):
        serve(DRAWN, spoilt, 8, plan=ALIKE, policy=Policy.drawn(2, **QUICK))


ALL_LINKS = fedlin.compressed(2)


@pytest.mark.slow
@chaos(300)
@given(schedules((*CLIENT_FAULTS, *SERVER_FAULTS), exchanges=14), lengths)
def test_who_waits_for_everyone_ends_bit_for_bit_where_an_undisturbed_run_ends(faults: list[Fault], long: int) -> None:
    """Crashes before and after persisting, a server dead between and in phases, a truncated checkpoint, late and
    repeated and damaged messages: every memory is counted once."""
    result, _ = disturbed(ALL_LINKS, faults, 4, long=long)
    np.testing.assert_array_equal(result.x, undisturbed(ALL_LINKS, 4))
    assert not events(result, "started afresh")
    assert result.rounds == 4


@pytest.mark.parametrize("kind", [*CLIENT_FAULTS, *SERVER_FAULTS])
@pytest.mark.parametrize(("client", "exchanges"), [(0, (1, 6, 10)), (2, (2, 9, 12))])
def test_each_fault_in_both_phases(kind: str, client: int, exchanges: tuple[int, ...]) -> None:
    result, transport = disturbed(ALL_LINKS, [Fault(number, client, kind) for number in exchanges], 4)
    np.testing.assert_array_equal(result.x, undisturbed(ALL_LINKS, 4))
    assert not events(result, "started afresh")
    assert kind in transport.met


@pytest.mark.slow
@chaos(100)
@given(schedules((*CLIENT_FAULTS, *SERVER_FAULTS, *MEMORY_FAULTS, *MEMORY_FAULTS), exchanges=14), lengths)
def test_a_lost_memory_does_not_move_the_limit(faults: list[Fault], long: int) -> None:
    result, _ = disturbed(REMEMBERING, faults, 18, long=long)
    assert near(result.x)


def test_a_lost_memory_is_told_and_the_run_starts_afresh() -> None:
    result, _ = disturbed(ALL_LINKS, [Fault(9, 1, "wipe")], 8)
    (fresh,) = events(result, "started afresh")
    assert fresh["why"] == "site-1 lost its memory"
    # From the model of that round on, this is the run that begins there.
    before = simulate(ALL_LINKS, 8).iterates[fresh["round"]]
    again = fedlin.simulate(ALL_LINKS, PROBLEM, PLAN, 8 - fresh["round"], x0=before)
    assert_close(result.x, again.x, 1e-12)


def test_a_method_without_memory_has_none_to_lose() -> None:
    faults = [Fault(number, number % 3, "wipe") for number in range(2, 12)]
    result, _ = disturbed(fedlin.fedlin(), faults, 5)
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.fedlin(), 5))
    assert not events(result, "started afresh")


@pytest.mark.slow
@chaos(100)
@given(schedules((*CLIENT_FAULTS, *SERVER_FAULTS, *MEMORY_FAULTS), exchanges=14), lengths)
def test_a_quorum_goes_on_and_ends_at_the_same_minimiser(faults: list[Fault], long: int) -> None:
    policy = Policy.within(1.0, at_least=2, **QUICK, rejections=10**6)
    result, _ = disturbed(REMEMBERING, faults, 24, policy, long)
    assert near(result.x)


def test_the_first_two_of_three_are_enough_while_one_is_dead() -> None:
    """Nobody waits for the dead; what it last sent still counts, so that the limit is its objective's too."""
    handlers = sites(REMEMBERING)

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        header = wire.read_message(payload)[0]
        dead = name == "site-1" and header.kind == Kind.TASK and 3 <= header.round < 20
        return None if dead else handlers[name](phase, payload)

    policy = Policy.within(1.0, at_least=2, **QUICK)
    result = serve(REMEMBERING, Wrapped(handlers, between), 45, policy=policy)
    assert all("site-1" not in names for names in result.answered[3:20])
    assert near(result.x)
    eager = serve(REMEMBERING, Loopback(sites(REMEMBERING)), 3, policy=Policy.first(2, **QUICK))
    assert [len(names) for names in eager.answered] == [2, 2, 2]


def test_a_client_that_never_begins_is_asked_ever_more_rarely() -> None:
    handlers = sites(REMEMBERING)
    asked: list[bytes] = []

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        if name == "site-1" and phase == "begin":
            asked.append(payload)
            return None
        reply: bytes = handlers[name](phase, payload)
        return reply

    result = serve(REMEMBERING, Wrapped(handlers, between), 20, policy=Policy.first(2, **QUICK))
    assert result.answered == [["site-0", "site-2"]] * 20
    assert len(asked) == 6  # after 0, 1, 2, 4, 8 and 16 rounds


def test_a_client_that_misses_the_second_phase_keeps_what_was_counted_of_the_first() -> None:
    """Its gradient's memory has moved on both sides, its model's on neither: the limit does not move."""
    handlers = sites(REMEMBERING)

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        header = wire.read_message(payload)[0]
        gone = header.kind == Kind.TASK and phase == "model" and (header.round + int(name[-1])) % 4 == 0
        return None if gone else handlers[name](phase, payload)

    result = serve(REMEMBERING, Wrapped(handlers, between), 40, policy=Policy.within(1.0, at_least=2, **QUICK))
    assert near(result.x)
    assert min(map(len, result.answered)) == 2


# Coming, going, misbehaving.


def test_a_client_that_joins_changes_the_objective_and_the_log_says_so(tmp_path: Path) -> None:
    handlers = sites(REMEMBERING)
    loopback = Loopback({name: handlers[name] for name in ("site-0", "site-2")})
    plan = fedlin.Plan(2, 0.3)

    def let_in(played: int, x: Array, measures: dict[str, Any]) -> None:
        if played == 5:
            loopback.handlers["site-1"] = handlers["site-1"]

    result = serve(REMEMBERING, loopback, 35, plan=plan, on_round=let_in, folder=tmp_path)
    (fresh,) = events(result, "started afresh")
    assert fresh["why"] == "site-1 joined"
    assert fresh["weights"] == pytest.approx({"site-0": 1 / 3, "site-1": 1 / 3, "site-2": 1 / 3})
    assert near(result.x)
    assert result.clients == ["site-0", "site-2", "site-1"]  # by number: the newcomer's is the next


def test_a_stranger_without_numbers_in_the_plan_stays_outside() -> None:
    handlers = sites(fedlin.fedlin())
    loopback = Loopback({name: handlers[name] for name in ("site-0", "site-2")})
    plan = fedlin.Plan([2, 3], 0.01)

    def let_in(played: int, x: Array, measures: dict[str, Any]) -> None:
        loopback.handlers["site-1"] = handlers["site-1"]

    result = serve(fedlin.fedlin(), loopback, 4, plan=plan, on_round=let_in)
    (event,) = events(result, "not admitted")
    assert event["client"] == "site-1"
    assert result.clients == ["site-0", "site-2"]


def test_a_client_that_leaves_for_good_takes_its_part_of_the_objective_along() -> None:
    loopback = Loopback(sites(REMEMBERING))

    def leave(played: int, x: Array, measures: dict[str, Any]) -> None:
        if played == 4:
            del loopback.handlers["site-1"]

    policy = Policy.within(1.0, at_least=1, forget_after=3, **QUICK)
    result = serve(REMEMBERING, loopback, 35, policy=policy, on_round=leave)
    (fresh,) = events(result, "started afresh")
    assert (fresh["why"], fresh["round"]) == ("site-1 left", 7)
    assert near(result.x, fedlin.problems.quadratic(A[[0, 2]], B[[0, 2]]).minimizer)


@pytest.mark.parametrize("poison", [np.nan, 1e9])
def test_a_client_that_sends_nonsense_is_quarantined(poison: float) -> None:
    handlers = sites(fedlin.fedlin())

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        reply: bytes = handlers[name](phase, payload)
        if name == "site-1" and phase == "gradient" and wire.read_message(payload)[0].round >= 3:
            return resealed(reply[:-8] + np.array(poison).tobytes())
        return reply

    result = serve(
        fedlin.fedlin(), Wrapped(handlers, between), 30, policy=Policy.everyone(**QUICK, norm_bound=1e6, rejections=2)
    )
    assert len(events(result, "rejected")) == 2
    assert [event["why"] for event in events(result, "started afresh")] == ["site-1 was quarantined"]
    assert result.clients == ["site-0", "site-2"]
    assert near(result.x, fedlin.problems.quadratic(A[[0, 2]], B[[0, 2]]).minimizer)


def test_a_run_that_diverges_says_so_and_keeps_its_last_model() -> None:
    result = serve(fedlin.fedavg(), Loopback(sites(fedlin.fedavg())), 2000, plan=fedlin.Plan(2, 5.0))
    assert result.status == "diverged"
    assert 0 < result.rounds < 2000
    assert np.all(np.isfinite(result.x))


def test_bad_bytes_never_crash_a_client_nor_touch_its_memory() -> None:
    """Mutated requests, with their checksums made right: refused, or answered as the other request they are."""
    algorithm, rng = fedlin.scaffold(), np.random.default_rng(0)
    requests: list[bytes] = []
    site = Client(algorithm, PROBLEM.client(0))

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        if phase != "final":
            requests.append(payload)
        return site.handle(phase, payload)

    serve(algorithm, Wrapped({"site-0": None}, between), 2, plan=fedlin.Plan(2, 0.02))
    replies = [site.handle("", request) for request in requests]
    for turn in range(3000):
        bad = mutated(rng, requests[turn % len(requests)])
        reply = site.handle("", bad if turn % 2 else resealed(bad))
        _, rest = wire.read_message(reply)
        assert wire.read_reply(rest)[0].request == wire.identify(bad if turn % 2 else resealed(bad))
    assert [site.handle("", request) for request in requests[-2:]] == replies[-2:]


def test_bad_replies_never_crash_a_server() -> None:
    handlers, rng = sites(fedlin.scaffold()), np.random.default_rng(0)

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        reply: bytes = handlers[name](phase, payload)
        return mutated(rng, reply) if rng.random() < 0.3 else reply

    policy = Policy.everyone(**QUICK, rejections=10**6)
    result = serve(fedlin.scaffold(), Wrapped(handlers, between), 40, policy=policy)
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.scaffold(), 40))
    assert sum(event["event"] == "rejected" for event in result.events) > 20


# Agreeing, refusing, going on.


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (lambda: Client(fedlin.fedavg(), PROBLEM.client(0)), "algorithm 'fedlin' on the server and 'fedavg' here"),
        (lambda: Client(fedlin.fedlin(same_batch=True), PROBLEM.client(0)), "same_batch"),
        (
            lambda: Client(fedlin.fedlin(), fedlin.problems.quadratic([np.eye(5)], [np.ones(5)])),
            "dimension 3 on the server and 5 here",
        ),
        (
            lambda: Client(fedlin.fedlin(), SINGLE.client(0)),
            "precision 'float64' on the server and 'float32' here",
        ),
    ],
)  # fmt: skip
def test_who_runs_something_else_is_refused_on_both_sides(
    site: Callable[[], Client], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = {**sites(fedlin.fedlin()), "site-1": site().handle}
    with pytest.raises(FederationError, match="site-1 refused") as caught:
        serve(fedlin.fedlin(), Loopback(handlers), 2)
    assert words in str(caught.value)
    assert words in caplog.text


def test_a_task_of_another_contract_is_refused_without_a_hello() -> None:
    task = wire.write_message(Header(Kind.TASK, bytes(8)))
    header, rest = wire.read_message(Client(fedlin.fedlin(), PROBLEM.client(0)).handle("model", task))
    assert header.kind == Kind.REFUSED
    assert "another algorithm, dimension or precision" in wire.read_facts(wire.read_reply(rest)[1])["reason"]


def test_a_client_restarted_with_other_settings_is_waited_for() -> None:
    """It has sent nothing wrong, so it is not quarantined; what it says is told once."""
    handlers = sites(fedlin.fedlin())
    other = Client(fedlin.fedavg(), PROBLEM.client(1)).handle
    asked = 0

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        nonlocal asked
        astray = name == "site-1" and wire.read_message(payload)[0].round == 2 and asked < 10
        asked += astray
        return other(phase, payload) if astray else handlers[name](phase, payload)

    result = serve(fedlin.fedlin(), Wrapped(handlers, between), 4)
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.fedlin(), 4))
    (event,) = events(result, "fault")
    assert (event["client"], event["kind"], event["round"]) == ("site-1", "refused", 2)
    assert "start server and client with the same settings" in event["why"]
    assert [event["client"] for event in events(result, "recovered")] == ["site-1"]


def test_a_client_that_does_not_begin_says_why_once() -> None:
    handlers, asked = sites(fedlin.fedlin()), 0

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        nonlocal asked
        if name != "site-1" or phase != "begin" or asked == 5:
            return bytes(handlers[name](phase, payload))
        asked += 1
        return wire.write_refusal(wire.read_message(payload)[0], wire.identify(payload), "the disk is full")

    result = serve(fedlin.fedlin(), Wrapped(handlers, between), 2)
    assert [(event["client"], event["why"]) for event in events(result, "fault")] == [("site-1", "the disk is full")]


def test_a_client_whose_code_fails_is_not_taken_for_one_that_is_away() -> None:
    def broken(phase: str, payload: bytes) -> bytes:
        raise KeyError("column")

    with pytest.raises(KeyError, match="column"):
        serve(fedlin.fedlin(), Loopback({**sites(fedlin.fedlin()), "site-1": broken}), 1)


def loop(algorithm: Algorithm[Any, Any] | None = None, **options: Any) -> Loopback:
    return Loopback(sites(algorithm or fedlin.fedlin(), **options))


BAD: list[tuple[Callable[[], object], type[FedLinError], str]] = [
    (lambda: serve(ALL_LINKS, loop(), 2, policy=Policy.first(2)), ArgumentError, "every client in every round"),
    (lambda: serve(fedlin.fedlin(), loop(), 2, policy=Policy.first(4)), ArgumentError, "quorum = 4 is more than the 3"),
    (lambda: serve(fedlin.fedlin(), loop(), 2, policy=Policy.drawn(4)), ArgumentError, "cohort = 4 is more than the 3"),
    (lambda: serve(ALL_LINKS, loop(), 2, policy=Policy.drawn(2)), ArgumentError, "the policy goes on with 2"),
    (lambda: serve(DRAWN, loop(), 2), ArgumentError, r"use Policy.drawn\(2\)"),
    (lambda: serve(DRAWN, loop(), 2, policy=Policy.first(2)), ArgumentError, r"Policy.drawn\(2\), or"),
    (lambda: Policy(quorum=2, cohort=2), ArgumentError, "exclude each other"),
    (
        lambda: serve(fedlin.fedlin(), loop(), 2, secure=True, policy=Policy.drawn(2, norm_bound=1.0)),
        ArgumentError,
        "secure = True and policy.cohort = 2",
    ),
    (lambda: serve(fedlin.fednova(), Loopback(sites(fedlin.fednova())), 2), PlanError, "one step size"),
    (lambda: serve(fedlin.fedlin(), loop(), 2, plan=fedlin.Plan([1, 2], 0.1)), PlanError, "2 entries for 3 clients"),
    (lambda: serve(fedlin.fedlin(), loop(), 2, dim=3), ArgumentError, "give one of them"),
    (lambda: serve(fedlin.fedlin(), loop(), 2, x0=[[1.0]]), ArgumentError, "give a vector"),
    (lambda: serve(fedlin.fedlin(), loop(), 2, x0=None, dim=3, dtype=int), ArgumentError, "float32 or float64"),
    (lambda: serve(fedlin.fedlin(), loop(), 0), ArgumentError, "rounds = 0"),
    (lambda: serve(fedlin.fedlin(), loop(), 2, expect="site-0"), ArgumentError, "list of their names"),
    (lambda: serve(fedlin.fedlin(), loop(), 2, policy="all"), ArgumentError, "policy = 'all'"),
    (lambda: serve(fedlin.fedsplit(steps=2), loop(), 2), ArgumentError, "give smoothness="),
    (lambda: serve(fedlin.fedlin(uplink=top_k(9)), loop(), 2), ArgumentError, "k = 9"),
    (
        lambda: serve(fedlin.fedlin(), loop(), 2, expect=4, policy=Policy.everyone(patience=0.0, pause=0.0)),
        FederationError,
        "begin with 4",
    ),
    (lambda: Policy(forget_after=2), ArgumentError, "waits for everyone"),
    (lambda: Policy.within(0.0), ArgumentError, "policy.timeout"),
    (lambda: Client(fedlin.fedlin(), PROBLEM), ArgumentError, "a problem with one client"),
    (lambda: Client(fedlin.fedlin(), PROBLEM.client(0), weight=0.0), ArgumentError, "weight = 0"),
    (
        lambda: Client(fedlin.fedlin(), PROBLEM.client(0), folder=__file__),
        CheckpointError,
        "folder = .* cannot be made",
    ),
    (lambda: serve(fedlin.fedlin(), loop(), 2, folder=__file__), CheckpointError, "folder = .* cannot be made"),
    (lambda: PROBLEM.client(3), ArgumentError, "index = 3"),
]


@pytest.mark.parametrize(("call", "error", "words"), BAD, ids=[words for _, _, words in BAD])
def test_mistakes_are_told_before_any_work(call: Callable[[], object], error: type[FedLinError], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_a_server_gives_up_when_its_patience_ends() -> None:
    handlers = sites(fedlin.fedlin())
    policy = Policy.everyone(patience=0.0, pause=0.0)
    silent = Wrapped(handlers, lambda name, phase, p: handlers[name](phase, p) if phase == "hello" else None)
    with pytest.raises(FederationError, match="round 0 did not get the answers"):
        serve(fedlin.fedlin(), silent, 2, policy=policy)


def test_a_run_goes_on_where_it_ended_and_others_do_not(tmp_path: Path) -> None:
    algorithm = fedlin.scaffold()
    handlers = sites(algorithm, folder=None)
    first = serve(algorithm, Loopback(handlers), 4, folder=tmp_path)
    played: list[int] = []
    result = serve(algorithm, Loopback(handlers), 9, folder=tmp_path, on_round=lambda t, *_: played.append(t))
    assert played == [5, 6, 7, 8, 9]
    np.testing.assert_array_equal(result.x, undisturbed(algorithm, 9))
    np.testing.assert_array_equal(result.bytes_up[:5], first.bytes_up)
    np.testing.assert_array_equal(result.bytes_up, simulate(algorithm, 9).bytes_up)
    assert sorted(int(path.stem[-2:]) for path in tmp_path.glob("server-*.ckpt")) == [0, 4, 6, 7, 8, 9]
    with open(tmp_path / "log.jsonl", "a") as log:
        log.write('{"round": 9, "mo')  # cut off by a crash
    longer = serve(algorithm, Loopback(handlers), 11, folder=tmp_path)
    np.testing.assert_array_equal(longer.bytes_up, simulate(algorithm, 11).bytes_up)
    with pytest.raises(CheckpointError, match="another seed"):
        serve(algorithm, Loopback(handlers), 9, folder=tmp_path, seed=2)
    for path in tmp_path.glob("server-*.ckpt"):
        path.write_bytes(flipped(path.read_bytes()))
    with pytest.raises(CheckpointError, match="damaged"):
        serve(algorithm, Loopback(handlers), 9, folder=tmp_path)


def test_a_run_ends_when_asked_or_when_the_model_rests() -> None:
    asked = serve(fedlin.fedlin(), loop(), 50, on_round=lambda t, *_: t == 3)
    assert (asked.status, asked.rounds) == ("stopped", 3)
    rests = serve(fedlin.fedlin(), loop(), 5000, stop=1e-6)
    assert rests.status == "stopped"
    assert rests.move[-1] <= 1e-6 < rests.move[-2]


def test_what_a_killed_process_left_half_written_is_cleared(tmp_path: Path) -> None:
    site = Client(ALL_LINKS, PROBLEM.client(0), folder=tmp_path)
    handlers = {**sites(ALL_LINKS), "site-0": site.handle}
    serve(ALL_LINKS, Loopback(handlers), 2)
    (run,) = filter(Path.is_dir, tmp_path.iterdir())
    (run / "0000000002-00.state.7.part").write_bytes(b"half a sta")
    handlers["site-0"] = Client(ALL_LINKS, PROBLEM.client(0), folder=tmp_path).handle
    result = serve(ALL_LINKS, Loopback(handlers), 4)
    assert not (run / "0000000002-00.state.7.part").exists()
    np.testing.assert_array_equal(result.x, undisturbed(ALL_LINKS, 4))


def test_a_client_keeps_two_rounds_and_no_more(tmp_path: Path) -> None:
    handlers = sites(ALL_LINKS, folder=None)
    handlers["site-0"] = Client(ALL_LINKS, PROBLEM.client(0), folder=tmp_path).handle
    serve(ALL_LINKS, Loopback(handlers), 9)
    rounds = sorted(int(path.name.split("-")[0]) for path in tmp_path.glob("*/*.state"))
    assert rounds == [6, 7, 7, 8, 8]  # two phases of the last two rounds, and what they went on from


def test_a_client_keeps_as_little_of_a_run_that_is_played_again(tmp_path: Path) -> None:
    """Its server lost its folder and begins anew: the old run's last states stay, and two rounds of the new one."""
    handlers = sites(ALL_LINKS, folder=None)
    handlers["site-0"] = Client(ALL_LINKS, PROBLEM.client(0), folder=tmp_path).handle
    for rounds in (9, 6):
        serve(ALL_LINKS, Loopback(handlers), rounds)
    kept = sorted(int(path.name.split("-")[0]) for path in tmp_path.glob("*/*.state"))
    assert kept == [3, 4, 4, 5, 5, 6, 7, 7, 8, 8]


def test_a_state_that_could_not_be_written_is_not_answered_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when asked again: who hears of a state may ask for it after a crash."""
    site = Client(ALL_LINKS, PROBLEM.client(0), folder=tmp_path)
    begin = wire.write_message(Header(Kind.BEGIN, site.handshake.fingerprint + bytes(4)))

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedlin.engines.checkpoint.write", full)
        for _ in range(2):
            header, rest = wire.read_message(site.handle("begin", begin))
            assert header.kind == Kind.REFUSED
            assert "OSError" in wire.read_facts(wire.read_reply(rest)[1])["reason"]
    assert wire.read_message(site.handle("begin", begin))[0].kind == Kind.BEGUN


def test_the_log_tells_rounds_and_events_and_nothing_of_the_data(tmp_path: Path) -> None:
    result = serve(fedlin.fedlin(), loop(), 3, folder=tmp_path)
    lines = [json.loads(text) for text in (tmp_path / "log.jsonl").read_text().splitlines()]
    rounds = [line for line in lines if "event" not in line]
    assert [line["round"] for line in rounds] == [1, 2, 3]
    assert set(rounds[0]) == {
        "round", "move", "gradient", "bytes_up", "bytes_down", "wire_up", "wire_down", "gradients", "seconds",
        "answered", "late", "stale", "attempts", "took", "time",
    }  # fmt: skip
    assert [line["event"] for line in lines if "event" in line] == ["began", "delivered"]
    assert [line["wire_up"] for line in rounds] == result.wire_up[1:].tolist()


@pytest.mark.slow
def test_what_goes_over_the_wire_is_what_the_algorithm_counts() -> None:
    """TOP-1 % of 100 000 entries on every message: headers add less than 5 %, for any message and for the run."""
    dim, rng = 100_000, np.random.default_rng(0)
    X = rng.standard_normal((2, 2, dim)) / np.sqrt(dim)
    problem = fedlin.problems.logistic(X, np.sign(X[..., 0]), l2=0.1)
    algorithm = fedlin.compressed(dim // 100)
    result = serve(algorithm, Loopback(sites(algorithm, problem)), 4, plan=fedlin.Plan(2, 0.1), x0=None, dim=dim)
    for counted, sent in ((result.bytes_up, result.wire_up), (result.bytes_down, result.wire_down)):
        assert np.all(np.diff(sent) >= np.diff(counted))
        assert np.all(np.diff(sent)[1:] <= 1.05 * np.diff(counted)[1:])
        assert sent[-1] <= 1.05 * counted[-1]
    assert np.diff(result.bytes_up)[-1] == 2 * 2 * 1000 * (8 + 4)


# Privacy.

PRIVATE = fedlin.fedpaq(fedlin.privacy.gaussian(1.0, 0.1))


def test_a_client_s_noise_is_its_own_and_outlives_its_process(tmp_path: Path) -> None:
    """Who knows the seed knows what `simulate` draws, and must not know what a site adds to its uploads."""
    first = serve(PRIVATE, loop(PRIVATE), 3)
    assert not np.array_equal(first.x, serve(PRIVATE, loop(PRIVATE), 3).x)
    assert not np.array_equal(first.x, simulate(PRIVATE, 3).x)
    np.testing.assert_allclose(serve(PRIVATE, loop(PRIVATE, secret=b""), 3).x, simulate(PRIVATE, 3).x, rtol=1e-12)
    place = tmp_path / "site"
    kept = [Client(PRIVATE, PROBLEM.client(0), folder=place) for _ in range(2)]
    others = {f"site-{i}": Client(PRIVATE, PROBLEM.client(i), secret=bytes(16)).handle for i in (1, 2)}
    runs = [serve(PRIVATE, Loopback({**others, "site-0": site.handle}), 3) for site in kept]
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    assert (place / "secret").stat().st_mode & 0o077 == 0
    assert (place / "secret").stat().st_size == 16


def test_a_client_s_noise_never_comes_twice_in_different_uploads() -> None:
    """A round is asked again from its start, and what differs between two attempts must not show beneath the noise."""
    site, requests = Client(PRIVATE, PROBLEM.client(0), secret=bytes(range(16))), dict[str, bytes]()

    def between(name: str, phase: str, payload: bytes) -> bytes:
        requests[phase] = payload
        return site.handle(phase, payload)

    serve(PRIVATE, Wrapped({"site-0": None}, between), 1, plan=fedlin.Plan(2, 0.02))
    (task,) = (payload for phase, payload in requests.items() if phase not in ("hello", "begin", "final"))
    header, rest = wire.read_message(task)
    numbers, body = wire.read_task(rest)
    again = wire.write_task(header, numbers._replace(eta=numbers.eta * (1 + 1e-12)), bytes(body))
    assert site.handle("", task) == site.handle("", task)
    bodies = [wire.read_reply(wire.read_message(site.handle("", sent))[1])[1] for sent in (task, again)]
    first, second = (wire.unpack(body, X0) for body in bodies)
    assert np.min(np.abs(first - second)) > 1e-6


def test_noise_differs_between_messages_that_share_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server can find two messages with the same eight bytes; here one byte is the whole name."""
    monkeypatch.setattr(wire, "identify", lambda message: bytes(7) + digest(message)[:1])
    begin = wire.write_message(Header(Kind.BEGIN, Client(PRIVATE, PROBLEM.client(0)).handshake.fingerprint + bytes(4)))
    header, found = Header(Kind.TASK, wire.read_message(begin)[0].run), dict[bytes, bytes]()
    for attempt in range(1000):
        task = wire.write_task(header, wire.Task(wire.identify(begin), 0, 0, 2, 0.02, attempt), wire.pack(X0))
        other = found.setdefault(wire.identify(task), task)
        if other is not task:
            break
    uploads = []
    for message in (other, task):  # to a site that has forgotten the first meanwhile
        site = Client(PRIVATE, PROBLEM.client(0), secret=bytes(range(16)))
        site.handle("begin", begin)
        reply, rest = wire.read_message(site.handle("", message))
        assert reply.kind == Kind.UPLOAD
        uploads.append(wire.unpack(wire.read_reply(rest)[1], X0))
    assert np.min(np.abs(uploads[0] - uploads[1])) > 1e-6


def test_noise_differs_between_states_that_share_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server can find two messages that lead to states of one name, and ask for the next upload from each of them."""
    monkeypatch.setattr(wire, "identify", lambda message: bytes(7) + digest(message)[:1])
    hidden = fedlin.privacy.gaussian(1.0, 0.1)
    algorithm = fedlin.fedlin(uplink=hidden, model_uplink=hidden)
    begin = wire.write_message(
        Header(Kind.BEGIN, Client(algorithm, PROBLEM.client(0)).handshake.fingerprint + bytes(4))
    )
    header, found = Header(Kind.TASK, wire.read_message(begin)[0].run), dict[bytes, bytes]()
    for number in range(1000):
        first = wire.write_task(header, wire.Task(wire.identify(begin), 0, 0, 2, 0.02), wire.pack((1 + number) * X0))
        other = found.setdefault(wire.identify(first), first)
        if other is not first:
            break
    task = wire.Task(wire.identify(first), 0, 0, 2, 0.02)
    second = wire.write_task(header._replace(phase=1), task, wire.pack(X0))
    noise = []
    for message in (other, first):
        uploads = []
        for secret in (bytes(range(16)), b""):  # without a secret the noise is the same for both
            site = Client(algorithm, PROBLEM.client(0), secret=secret)
            for asked in (begin, message, second):
                reply, rest = wire.read_message(site.handle("", asked))
            assert reply.kind == Kind.UPLOAD
            uploads.append(wire.unpack(wire.read_reply(rest)[1], X0))
        noise.append(uploads[0] - uploads[1])
    assert np.min(np.abs(noise[0] - noise[1])) > 1e-6


def test_a_secret_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"")
    with pytest.raises(CheckpointError, match="secret has 0 bytes"):
        Client(PRIVATE, PROBLEM.client(0), folder=tmp_path)


def test_a_server_s_noise_is_its_own_and_outlives_its_process(tmp_path: Path) -> None:
    """Every client is told the seed, and must not know what the server adds to the mean."""
    central = fedlin.fedpaq(fedlin.privacy.gaussian(1.0, 0.1, where="central"))
    first = serve(central, loop(central), 3)
    assert not np.array_equal(first.x, serve(central, loop(central), 3).x)
    assert not np.array_equal(first.x, simulate(central, 3).x)
    np.testing.assert_allclose(serve(central, loop(central), 3, secret=b"").x, simulate(central, 3).x, rtol=1e-12)
    site = loop(central)
    serve(central, site, 2, folder=tmp_path)
    kept = (tmp_path / "secret").read_bytes()
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    resumed = serve(central, site, 3, folder=tmp_path)
    np.testing.assert_array_equal(resumed.x, serve(central, loop(central), 3, secret=kept).x)
