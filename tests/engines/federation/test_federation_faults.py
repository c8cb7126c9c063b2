"""What is told of a client that fails, and what a run makes of it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_federation import (
    PROBLEM,
    QUICK,
    REMEMBERING,
    A,
    B,
    D,
    M,
    Wrapped,
    events,
    near,
    serve,
    sites,
    undisturbed,
)
from test_wire import resealed

import fedlin
from clocked import Clocked
from fedlin import Client, Policy
from fedlin.deploy.event_lines import event_line
from fedlin.engines.federation import wire
from fedlin.engines.federation.faults import Faults
from fedlin.engines.federation.membership import READMIT
from fedlin.engines.federation.round_log import RoundLog
from fedlin.engines.federation.upload_norms import UploadNorms
from fedlin.errors import FederationError
from fedlin.transports.loopback import Loopback
from quadratics import Array

WITHOUT_1 = fedlin.problems.quadratic(A[[0, 2]], B[[0, 2]]).minimizer
Change = Callable[[wire.Task, Array], Array]


def changed(round_: int, change: Change, handlers: dict[str, Any]) -> Wrapped:
    """Site 1's gradients from this round on are changed, by what it was asked."""

    def between(name: str, phase: str, payload: bytes) -> bytes:
        reply: bytes = handlers[name](phase, payload)
        header, rest = wire.read_message(payload)
        if name != "site-1" or phase != "gradient" or header.round < round_:
            return reply
        vector = np.frombuffer(reply[-8 * D :], np.float64)
        return resealed(reply[: -8 * D] + change(wire.read_task(rest)[0], vector).tobytes())

    return Wrapped(handlers, between)


# Uploads that are not acceptable.


def test_a_bad_upload_is_answered_anew_and_leaves_no_trace_in_the_model() -> None:
    """The first answer to each request is NaN, as of a machine that fails now and then; a new one is asked for."""
    failing = changed(2, lambda task, v: v * np.nan if task.attempt == 0 else v, sites(fedlin.fedlin()))
    result = serve(fedlin.fedlin(), failing, 4)
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.fedlin(), 4))
    assert [(e["client"], e["round"], e["attempt"]) for e in events(result, "rejected")] == [
        ("site-1", 2, 1),
        ("site-1", 3, 1),
    ]
    assert [event["client"] for event in events(result, "recovered")] == ["site-1", "site-1"]
    assert result.absent == {}


@pytest.mark.parametrize(("factor", "why"), [(np.nan, "NaN"), (1e9, "norm")])
def test_a_client_that_only_sends_bad_uploads_is_kept_out_until_it_is_let_in(
    factor: float, why: str, tmp_path: Path
) -> None:
    """Visible all the while, also where every round waits for everyone; then the run ends where all would."""
    bad = True

    def change(task: wire.Task, vector: Array) -> Array:
        return vector * factor if bad else vector

    def mend(played: int, x: Array, measures: dict[str, Any]) -> None:
        nonlocal bad
        if played == 6:
            bad = False
            (tmp_path / READMIT).write_text(json.dumps(["site-1"]))

    policy = Policy.everyone(**QUICK, norm_bound=1e6)
    transport = changed(3, change, sites(REMEMBERING))
    result = serve(REMEMBERING, transport, 45, policy=policy, folder=tmp_path, on_round=mend)
    assert [event["attempt"] for event in events(result, "rejected")] == [1, 2, 3]
    kinds = [(event["kind"], event["client"]) for event in events(result, "fault")]
    assert kinds == [("rejected", "site-1"), ("quarantined", "site-1")]
    assert why in events(result, "fault")[0]["why"]
    assert [event["why"] for event in events(result, "started afresh")] == ["site-1 was quarantined", "site-1 joined"]
    assert [event["client"] for event in events(result, "readmitted")] == ["site-1"]
    assert "site-1" not in result.answered[4]
    assert near(result.x)


def test_a_run_that_ends_without_someone_says_so() -> None:
    transport = changed(3, lambda task, v: v * np.nan, sites(fedlin.fedlin()))
    result = serve(fedlin.fedlin(), transport, 30)
    assert (result.status, result.absent, result.clients) == ("done", {"site-1": "quarantined"}, ["site-0", "site-2"])
    assert near(result.x, WITHOUT_1)


def test_a_model_that_is_ruined_goes_back_and_the_upload_that_did_it_is_named(tmp_path: Path) -> None:
    """A million times its gradient from round 7 on: the model is that of round 7 again, and another run goes on."""
    plan = fedlin.Plan([5, 5, 5], [0.1, 0.1, 0.1])
    transport = changed(7, lambda task, v: v * 1e6, sites(fedlin.fedlin()))
    result = serve(fedlin.fedlin(), transport, 200, plan=plan, folder=tmp_path)
    (back,) = events(result, "went back")
    assert (result.status, back["client"], back["round"], result.rounds) == ("diverged", "site-1", 7, 7)
    assert "site-1's upload in phase gradient of round 7" in back["why"]
    assert back["norm"] / back["usual"] == pytest.approx(1e6, rel=0.9)
    whole = serve(fedlin.fedlin(), Loopback(sites(fedlin.fedlin())), 7, plan=plan)
    np.testing.assert_array_equal(result.x, whole.x)
    again = serve(fedlin.fedlin(), Loopback(sites(fedlin.fedlin())), 60, plan=plan, folder=tmp_path)
    assert (again.status, again.rounds) == ("done", 60)
    assert near(again.x)


def test_steps_that_are_too_large_are_nobody_s_fault(tmp_path: Path) -> None:
    result = serve(fedlin.fedavg(), Loopback(sites(fedlin.fedavg())), 2000, plan=fedlin.Plan(2, 5.0), folder=tmp_path)
    (back,) = events(result, "went back")
    assert "give smaller steps" in back["why"]
    assert "client" not in back
    assert result.rounds < 3  # the models only ever moved faster


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_the_first_upload_to_stand_out_is_the_one_named(culprit: int) -> None:
    """Sites differ by orders of magnitude, gradients fall, and all uploads grow once the model is off."""
    rng, norms = np.random.default_rng(culprit), UploadNorms()
    scales = np.array([1.0, 30.0, 0.05])
    for number in range(30):
        sizes = scales * 0.8**number * rng.uniform(0.5, 2.0, 3)
        if number >= 20:
            sizes[culprit] *= 1e4
        if number > 20:
            sizes *= 1e4 ** (number - 20)
        norms.enter(number, {"gradient": dict(zip("abc", sizes.tolist(), strict=True))})
    suspect = norms.suspect()
    assert suspect is not None
    assert (suspect.client, suspect.round) == ("abc"[culprit], 20)


def test_who_comes_late_does_not_stand_out() -> None:
    """Where sites send what changed, their first uploads are far larger than later ones, whenever they come."""
    norms = UploadNorms()
    for number in range(20):
        sizes = {"a": 100.0 * 0.5**number, "b": 80.0 * 0.5**number}
        late = {"late": 120.0} if number == 15 else {}
        assert norms.enter(number, {"gradient": {**sizes, **late}}) is None
    poisoned = norms.enter(20, {"gradient": {"a": 1e-4, "b": 1e-4, "new": 1e6}})
    assert poisoned is not None
    assert poisoned.client == "new"


@pytest.mark.parametrize("eps", [np.finfo(np.float64).eps, np.finfo(np.float32).eps])
@pytest.mark.parametrize("model", [0.0, 1.0])
def test_what_rounding_leaves_of_an_upload_does_not_stand_out(eps: float, model: float) -> None:
    """Uploads fall to a few units in the last place of the first ones, or of a model that they begin near to."""
    scale = 1.0 if model == 0.0 else 50 * eps
    norms = UploadNorms(float(eps))
    for number in range(60):
        shrinking = max(scale * 0.5**number, float(eps))
        assert norms.enter(number, {"model": dict.fromkeys("abc", shrinking)}, model) is None
    assert norms.enter(60, {"model": {"a": float(eps), "b": float(eps), "c": 170 * float(eps)}}, model) is None
    poisoned = norms.enter(61, {"model": {"a": float(eps), "b": 0.5, "c": float(eps)}}, model)
    assert poisoned is not None
    assert poisoned.client == "b"


def test_no_bound_is_proposed_that_would_have_kept_out_what_was_right() -> None:
    """The bound holds for all phases: gradients were large before the models' changes fell."""
    norms = UploadNorms()
    norms.enter(0, {"gradient": dict.fromkeys("ab", 1e3), "model": dict.fromkeys("ab", 1e-3)})
    for norm, told in ((5e3, "set policy.norm_bound to about 2e+03"), (1.0, "its owner checks its data and its loss")):
        suspect = norms.enter(1, {"model": {"a": 1e-3, "b": norm}})
        assert suspect is not None
        event = {"event": "outlier", "round": 1, "why": str(suspect), "norm": norm, "usual": suspect.usual}
        assert told in event_line({**event, "largest": norms.largest})
        norms.enter(1, {"model": dict.fromkeys("ab", 1e-3)})


# Weights.


def test_a_weight_that_would_own_the_model_is_refused_and_can_be_approved() -> None:
    weights = [1.0, 1e12, 1.0]
    handlers = {f"site-{i}": Client(fedlin.fedlin(), PROBLEM.client(i), weight=weights[i]).handle for i in range(M)}
    policy = Policy.everyone(**QUICK, max_share=0.9)
    with pytest.raises(FederationError, match=r"site-1 declares the weight 1e\+12, which is 100.0% of all"):
        serve(fedlin.fedlin(), Loopback(handlers), 2, policy=policy)
    with pytest.raises(FederationError, match=r"it declares the weight 1e\+12, and 2 is approved"):
        serve(fedlin.fedlin(), Loopback(handlers), 2, weights={"site-1": 2.0})
    result = serve(fedlin.fedlin(), Loopback(handlers), 2, weights={"site-1": 1e12})
    assert events(result, "began")[0]["weights"] == {"site-0": 1.0, "site-1": 1e12, "site-2": 1.0}


# Clients that are slow, frozen or refuse.


def rounds_within(seconds: float, latency: Callable[[str, float], float], patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A run with a quorum of two of three that ends when this many seconds have passed on its clock."""
    transport = Clocked(sites(REMEMBERING), latency)
    transport.patch(patch)
    policy = Policy.first(2, **QUICK)
    result = serve(REMEMBERING, transport, 2000, policy=policy, on_round=lambda t, x, line: transport.now > seconds)
    return result, transport


def test_a_frozen_client_costs_a_quorum_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a minute at least 80 % of the rounds that are played where nobody is frozen."""
    whole, _ = rounds_within(60.0, lambda name, now: 0.05, monkeypatch)
    frozen, _ = rounds_within(60.0, lambda name, now: np.inf if name == "site-1" and now > 2.0 else 0.05, monkeypatch)
    assert frozen.rounds >= 0.8 * whole.rounds
    assert sum("site-1" in names for names in frozen.answered[60:]) == 0


def test_a_slow_client_is_counted_often_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second behind the others, it is waited for in every tenth round, and the run ends where all would."""
    slow, _ = rounds_within(60.0, lambda name, now: 0.55 if name == "site-1" else 0.05, monkeypatch)
    counted = [number for number, names in enumerate(slow.answered) if "site-1" in names]
    assert max(np.diff(counted)) <= 10
    assert near(slow.x)


def test_a_slow_client_on_a_busy_machine_is_counted_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answers take anything from 0.2 to 6 s, so that what the last one took tells little of the next."""
    rng = np.random.default_rng(0)
    drawn = lambda name, now: float(0.2 * 30 ** rng.uniform()) if name == "site-1" else 0.05  # noqa: E731
    slow, _ = rounds_within(240.0, drawn, monkeypatch)
    counted = [number for number, names in enumerate(slow.answered) if "site-1" in names]
    assert max(np.diff(counted)) <= 12
    assert near(slow.x)


def test_who_was_frozen_takes_part_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def latency(name: str, now: float) -> float:
        return max(0.05, 20.0 - now) if name == "site-1" and now > 2.0 else 0.05

    result, _ = rounds_within(40.0, latency, monkeypatch)
    counted = [number for number, names in enumerate(result.answered) if "site-1" in names]
    gap = int(np.argmax(np.diff(counted)))
    begun = [line for line in result.events if line["event"] == "started afresh"]
    assert begun == []  # it kept its memory
    assert max(np.diff(counted[gap + 1 :])) <= 10
    assert near(result.x)


def test_a_silent_client_is_told_once_and_again_when_it_is_back() -> None:
    handlers, asked = sites(fedlin.fedlin()), 0

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        nonlocal asked
        silent = name == "site-1" and wire.read_message(payload)[0].round == 2 and asked < 7
        asked += silent
        return None if silent else bytes(handlers[name](phase, payload))

    result = serve(fedlin.fedlin(), Wrapped(handlers, between), 4)
    told = [(e["event"], e["client"], e["kind"], e["round"]) for e in result.events if "kind" in e]
    assert told == [("fault", "site-1", "silent", 2), ("recovered", "site-1", "silent", 2)]
    assert "the round waits for it" in events(result, "fault")[0]["doing"]


def test_who_is_silent_for_several_reasons_by_turns_is_told_once() -> None:
    """Not connected, then asked in vain, and so on; what comes next of another kind is told, with the newest reason."""
    log = RoundLog(None)
    faults = Faults(log)
    for why in ("it is not connected", "its process has ended", "it is not connected"):
        faults.report(1, "silent", {"north": why}, "it is asked again")
    assert faults.open == {"north": ("silent", "it is not connected")}
    for why in ("tau = 5 is too many", "tau = 4 is too many", "tau = 4 is too many"):
        faults.report(2, "refused", {"north": why}, "it is asked again")
    assert [(event["kind"], event["why"]) for event in log.events] == [
        ("silent", "it is not connected"),
        ("refused", "tau = 5 is too many"),
        ("refused", "tau = 4 is too many"),
    ]


def test_a_round_is_asked_again_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1, 0.2, 0.4, ... up to five seconds, until patience ends; and the error says who failed and how."""
    slept: list[float] = []
    clock = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    handlers, asked = sites(fedlin.fedlin()), list[float]()

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        if name == "site-1" and phase == "begin":
            asked.append(clock[0])
            return wire.write_refusal(wire.read_message(payload)[0], wire.identify(payload), "it failed", "ab12")
        return bytes(handlers[name](phase, payload))

    policy = Policy.everyone(timeout=5.0, patience=60.0)
    with pytest.raises(FederationError, match=r"within 60 s \(site-1: it failed\)"):
        serve(fedlin.fedlin(), Wrapped(handlers, between), 2, policy=policy)
    pauses = np.diff(asked)
    np.testing.assert_allclose(pauses[:6], [0.1, 0.2, 0.4, 0.8, 1.6, 3.2], atol=0.11)
    assert max(pauses) <= 5.2
    assert len(asked) < 25


def test_a_site_whose_folder_was_removed_goes_on(tmp_path: Path) -> None:
    """What it needs is still in its memory; the folder is made anew, and a restart finds its state."""
    algorithm = fedlin.scaffold()
    handlers = sites(algorithm)
    handlers["site-0"] = Client(algorithm, PROBLEM.client(0), folder=tmp_path / "site").handle

    def remove(played: int, x: Array, measures: dict[str, Any]) -> None:
        if played == 3:
            shutil.rmtree(tmp_path / "site")
        if played == 5:
            handlers["site-0"] = Client(algorithm, PROBLEM.client(0), folder=tmp_path / "site").handle

    carrier = Wrapped(handlers, lambda name, phase, payload: handlers[name](phase, payload))
    result = serve(algorithm, carrier, 8, on_round=remove)
    np.testing.assert_array_equal(result.x, undisturbed(algorithm, 8))
    assert not events(result, "fault")
    assert not events(result, "started afresh")


def test_a_client_that_took_part_in_another_run_meanwhile_is_greeted_again(tmp_path: Path) -> None:
    handlers = sites(fedlin.fedlin())
    serve(fedlin.fedlin(), Loopback(handlers), 3, folder=tmp_path)
    serve(fedlin.fedlin(), Loopback(handlers), 2, plan=fedlin.Plan(1, 0.1))
    result = serve(fedlin.fedlin(), Loopback(handlers), 6, folder=tmp_path)
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.fedlin(), 6))
    assert not events(result, "fault")


def test_another_weight_than_a_client_counts_with_is_told(tmp_path: Path) -> None:
    """Its data have changed since the run began, and in this run it counts as before."""
    algorithm, handlers = fedlin.fedlin(), sites(fedlin.fedlin())
    for rounds in (3, 4):
        result = serve(algorithm, Loopback(handlers), rounds, folder=tmp_path)
        assert not events(result, "another weight")
    handlers["site-0"] = Client(algorithm, PROBLEM.client(0), weight=5.0).handle
    result = serve(algorithm, Loopback(handlers), 6, folder=tmp_path)
    (told,) = events(result, "another weight")
    expected = "site-0 declares the weight 5 now, and counts with 1, as when it was let in, until another run begins"
    assert expected in event_line(told)
