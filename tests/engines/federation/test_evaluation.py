"""Clients measure the model on data of their own; the best model is kept, ends a run, and is what they are given."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_federation import PROBLEM, QUICK, M, Wrapped, events, serve, sites, undisturbed

import fedlin
from fedlin import Client, Evaluation, Limits, Policy
from fedlin.core import Method
from fedlin.deploy.event_lines import event_line
from fedlin.engines.federation import wire
from fedlin.engines.federation.evaluation import MOST, read_metrics
from fedlin.engines.federation.exchange import Reply
from fedlin.engines.federation.wire import Kind, ReplyHeader
from fedlin.errors import ArgumentError, WireError
from fedlin.transports.loopback import Loopback
from quadratics import Array

ROWS = [10.0, 1.0, 4.0]
TARGET = np.array([1.0, -1.0, 0.5])  # where the sites' own test data would have the model


def error(x: Array) -> float:
    return float(np.sum((x - TARGET) ** 2))


class Evaluating:
    """Three sites that measure a model each in its own way, and what they were given at the end."""

    def __init__(self, method: Method = fedlin.fedlin(), **options: Any) -> None:  # noqa: B008 - cached, and immutable
        self.method = method
        self.asked: list[Array] = []
        self.given: dict[str, Array] = {}
        self.sites = {f"site-{i}": self.site(i, **options) for i in range(M)}

    def site(self, number: int, **options: Any) -> Client:
        def evaluate(x: Array) -> dict[str, float]:
            self.asked.append(x)
            return {"error": (number + 1) * error(x), f"own-{number}": number}

        keep = lambda x: self.given.update({f"site-{number}": x})  # noqa: E731
        settled = {"evaluate": evaluate, "evaluation_weight": ROWS[number], "on_model": keep, **options}
        return Client(self.method, PROBLEM.client(number), **settled)

    @property
    def loopback(self) -> Loopback:
        return Loopback({name: site.handle for name, site in self.sites.items()})


def test_the_mean_is_weighted_and_each_site_s_numbers_are_there() -> None:
    evaluating, models = Evaluating(), dict[int, Array]()
    result = serve(
        fedlin.fedlin(),
        evaluating.loopback,
        6,
        evaluation=Evaluation(every=2),
        on_round=lambda t, x, line: models.update({t: x}),
    )
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.fedlin(), 6))  # it changes nothing
    assert [line["round"] for line in result.evaluations] == [2, 4, 6]
    for line in result.evaluations:
        x = models[line["round"]]
        expected = np.average([(i + 1) * error(x) for i in range(M)], weights=ROWS)
        assert line["mean"]["error"] == pytest.approx(expected, rel=1e-12)
        assert line["mean"]["own-2"] == 2  # the mean over those who have it
        assert line["sites"]["site-1"] == {"error": pytest.approx(2 * error(x), rel=1e-12), "own-1": 1.0}
    assert result.best is None


def best_by_hand(rounds: int, every: int) -> tuple[int, Array]:
    models: dict[int, Array] = {}
    serve(fedlin.fedlin(), Loopback(sites(fedlin.fedlin())), rounds, on_round=lambda t, x, _: models.update({t: x}))
    best = min(range(every, rounds + 1, every), key=lambda t: error(models[t]))
    return best, models[best]


def test_the_best_model_is_kept_and_delivered(tmp_path: Path) -> None:
    """Also where the server was started again in between; the last model is the run's all the same."""
    number, x = best_by_hand(8, 1)
    assert number < 8
    evaluation = Evaluation(every=1, best="error", largest=False)
    first = Evaluating()
    serve(fedlin.fedlin(), first.loopback, 4, folder=tmp_path, evaluation=evaluation)
    result = serve(fedlin.fedlin(), first.loopback, 8, folder=tmp_path, evaluation=evaluation)
    assert result.best is not None
    assert result.best.round == number
    np.testing.assert_array_equal(result.best.x, x)
    np.testing.assert_array_equal(result.x, undisturbed(fedlin.fedlin(), 8))
    assert first.given.keys() == {"site-0", "site-1", "site-2"}
    for given in first.given.values():
        np.testing.assert_array_equal(given, x)


def test_without_a_metric_the_last_model_is_delivered() -> None:
    evaluating = Evaluating()
    result = serve(fedlin.fedlin(), evaluating.loopback, 3)
    for given in evaluating.given.values():
        np.testing.assert_array_equal(given, result.x)
    (delivered,) = events(result, "delivered")
    assert (delivered["clients"], delivered["missing"]) == (["site-0", "site-1", "site-2"], [])


def test_a_run_ends_when_no_better_model_comes() -> None:
    number, _ = best_by_hand(30, 1)
    evaluation = Evaluation(every=1, best="error", largest=False, patience=3)
    result = serve(fedlin.fedlin(), Evaluating().loopback, 30, evaluation=evaluation)
    assert (result.status, result.rounds) == ("stopped", number + 3)


def test_a_run_ends_when_no_better_model_comes_also_after_a_restart(tmp_path: Path) -> None:
    number, _ = best_by_hand(30, 1)
    evaluation = Evaluation(every=1, best="error", largest=False, patience=3)
    for rounds in (number + 2, 30):
        result = serve(fedlin.fedlin(), Evaluating().loopback, rounds, folder=tmp_path, evaluation=evaluation)
    assert (result.status, result.rounds) == ("stopped", number + 3)


def test_who_is_away_is_evaluated_and_given_the_model_once_it_is_back() -> None:
    """Where all are waited for: the best model and a run's end do not depend on who was away for a moment."""
    evaluating, lost = Evaluating(), set[str]()
    handlers = {name: site.handle for name, site in evaluating.sites.items()}

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        if name == "site-1" and phase in ("evaluate", "final") and phase not in lost:
            lost.add(phase)
            return None
        return handlers[name](phase, payload)

    result = serve(fedlin.fedlin(), Wrapped(handlers, between), 4, evaluation=Evaluation(every=2))
    assert lost == {"evaluate", "final"}
    assert [line["sites"].keys() for line in result.evaluations] == [{"site-0", "site-1", "site-2"}] * 2
    (delivered,) = events(result, "delivered")
    assert delivered["missing"] == []


def test_who_does_not_answer_an_evaluation_is_named_and_the_run_goes_on() -> None:
    """And nobody is told that the round waits for it."""
    evaluating = Evaluating()
    handlers = {name: site.handle for name, site in evaluating.sites.items()}

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        return None if (name, phase) == ("site-1", "evaluate") else handlers[name](phase, payload)

    policy = fedlin.Policy.everyone(timeout=0.2)
    result = serve(fedlin.fedlin(), Wrapped(handlers, between), 2, evaluation=Evaluation(every=2), policy=policy)
    (line,) = result.evaluations
    assert line["sites"].keys() == {"site-0", "site-2"}
    assert event_line(line).endswith("; no answer from site-1)")
    (fault,) = events(result, "fault")
    assert fault["doing"] == "it is asked again, and left out once its time is over"


@pytest.mark.parametrize("failure", [ValueError, SystemExit])
def test_a_site_that_cannot_or_may_not_evaluate_is_left_out_and_named(failure: type[BaseException]) -> None:
    """One without a function, one whose function fails on its data, and one with a privacy budget."""
    evaluating = Evaluating()
    evaluating.sites["site-1"].evaluate = None

    def failing(x: Array) -> dict[str, float]:
        raise failure("patient 4711")

    evaluating.sites["site-2"].evaluate = failing
    result = serve(fedlin.fedlin(), evaluating.loopback, 2, evaluation=Evaluation(every=2))
    (line,) = result.evaluations
    assert line["sites"].keys() == {"site-0"}
    assert "nothing to evaluate" in line["refused"]["site-1"]
    assert f"it failed with {failure.__name__} [reference " in line["refused"]["site-2"]
    assert "4711" not in str(result.events)
    private = fedlin.fedpaq(fedlin.privacy.gaussian(1.0, 5.0))
    site = Evaluating(private, limits=Limits(epsilon=1e9)).sites["site-0"]
    site.ledger.enter(run := site.handshake.fingerprint + b"run1")
    message = wire.write_message(wire.Header(Kind.EVALUATE, run), wire.pack(np.zeros(3)))
    header, rest = wire.read_message(site.handle("evaluate", message))
    assert header.kind == Kind.REFUSED
    assert "told without noise" in wire.read_facts(wire.read_reply(rest)[1])["reason"]


def test_a_quorum_does_not_wait_for_an_evaluation() -> None:
    evaluating = Evaluating()
    handlers = {name: site.handle for name, site in evaluating.sites.items()}

    def between(name: str, phase: str, payload: bytes) -> bytes | None:
        return None if phase in ("evaluate", "final") and name == "site-1" else handlers[name](phase, payload)

    policy = Policy.first(2, **QUICK)
    result = serve(fedlin.fedlin(), Wrapped(handlers, between), 4, policy=policy, evaluation=Evaluation(every=2))
    assert [sorted(line["sites"]) for line in result.evaluations] == [["site-0", "site-2"]] * 2
    assert events(result, "delivered")[0]["missing"] == ["site-1"]


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"weight": 1.0, "metrics": [1]},
        {"weight": 1.0, "metrics": {"a": "b"}},
        {"weight": 1.0, "metrics": {"a": float("nan")}},
        {"weight": 1.0, "metrics": {"a": True}},
        {"weight": None, "metrics": {"a": 1.0}},
        {"weight": 1.0, "metrics": {"a" * (MOST + 1): 1.0}},
        {"weight": 1.0, "metrics": {str(i): 1.0 for i in range(MOST + 1)}},
    ],
)
def test_metrics_that_are_none_are_refused(facts: dict[str, Any]) -> None:
    body = memoryview(wire.write_facts(facts))
    with pytest.raises(WireError):
        read_metrics(Reply(Kind.METRICS, ReplyHeader(bytes(8), 0), body))


@pytest.mark.parametrize("wrong", [{"every": 0}, {"patience": 0, "best": "a"}, {"patience": 3}])
def test_an_evaluation_that_means_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"evaluation\."):
        Evaluation(**wrong)
