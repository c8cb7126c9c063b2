"""The clients measure the model on their own data: the mean is reported, the best model kept, and a run ended by it."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedlin.checks import positive_integer, shown
from fedlin.core import Array
from fedlin.engines import checkpoint
from fedlin.engines.federation import wire
from fedlin.engines.federation.exchange import Reply
from fedlin.engines.federation.policy import LONGEST_PAUSE
from fedlin.engines.federation.replies import Refusal, refusal
from fedlin.engines.federation.round_log import BestModel
from fedlin.engines.federation.session import Session
from fedlin.engines.federation.wire import Header, Kind
from fedlin.errors import ArgumentError, CheckpointError, WireError

BEST = "best.ckpt"  # in the server's folder
FINAL = "final"  # the route of a run's last message, with its model
MOST = 64  # metrics of one client, and characters of a name


@dataclass(frozen=True)
class Evaluation:
    """When clients measure the model, and what follows from it.

    Args:
        every: After how many rounds each time.
        best: The metric by which the best model is kept; none is kept unless given.
        largest: Whether the largest value of that metric is the best, as of an accuracy; False for a loss.
        patience: The run ends once so many evaluations in a row brought no better model.

    >>> Evaluation(every=5, best="accuracy").better(0.9, 0.8)
    True
    """

    every: int = 10
    best: str | None = None
    largest: bool = True
    patience: int | None = None

    def __post_init__(self) -> None:
        positive_integer("evaluation.every", self.every)
        if self.patience is not None:
            positive_integer("evaluation.patience", self.patience)
            if self.best is None:
                raise ArgumentError("evaluation.patience means nothing without evaluation.best: name a metric there.")

    def better(self, value: float, than: float) -> bool:
        """Whether one value of the metric is better than another.

        Args:
            value: The one value.
            than: The other.

        Returns:
            True if `value` is the better one.
        """
        return value > than if self.largest else value < than


class FederationEvaluator:
    """Asks for evaluations, and remembers the best model; with a folder also over a restart of the server."""

    def __init__(
        self, session: Session, evaluation: Evaluation | None, folder: Path | None, central: str | None = None
    ) -> None:
        self.session = session
        self.evaluation = evaluation
        self.path = None if folder is None else folder / BEST
        self.best: BestModel | None = None
        self._fruitless = 0
        # The metric that decides: one of the clients', or else one that the server takes itself.
        self.central = central if evaluation is None or evaluation.best is None else None
        decisive = self.central if evaluation is None else evaluation.best or self.central
        if decisive is not None and self.path is not None:
            self.best = self._read(decisive)
        if self.best is not None and evaluation is not None:  # evaluations before a restart of the server count
            self._fruitless = max(0, session.progress.round // evaluation.every - self.best.round // evaluation.every)

    def after_round(self) -> bool:
        """Evaluate if it is time; whether the run is to end."""
        evaluation, played = self.evaluation, self.session.progress.round
        if evaluation is None or played % evaluation.every:
            return False
        mean = self._evaluate()
        if evaluation.best is None or evaluation.best not in mean:
            return False
        value = mean[evaluation.best]
        self._fruitless = 0 if self.consider(evaluation.best, value, evaluation) else self._fruitless + 1
        return evaluation.patience is not None and self._fruitless >= evaluation.patience

    def consider(self, metric: str, value: float, evaluation: Evaluation) -> bool:
        """Keep the model if its metric is the best so far; whether it is."""
        played = self.session.progress.round
        if self.best is not None and self.best.round <= played and not evaluation.better(value, self.best.value):
            return False
        self.best = BestModel(played, value, self.session.progress.x)
        self._write(metric)
        return True

    def _evaluate(self) -> dict[str, float]:
        """The clients' metrics: Σ v_i m_i / Σ v_i, with v_i the clients' own weights, over those who answer."""
        session, x = self.session, self.session.progress.x
        eager = session.policy.quorum is not None and session.policy.eager
        replies = self._send(Kind.EVALUATE, "evaluate", x, 0 if eager else None)
        sites: dict[str, dict[str, float]] = {}
        weights: dict[str, float] = {}
        refused: dict[str, Refusal] = {}
        for name, reply in replies.items():
            try:
                if reply.kind != Kind.METRICS:
                    refused[name] = refusal(reply)
                    continue
                weights[name], sites[name] = read_metrics(reply)
            except WireError as cause:
                refused[name] = Refusal(str(cause))
        names = dict.fromkeys(metric for metrics in sites.values() for metric in metrics)
        mean = {}
        for metric in names:
            counted = [name for name in sites if metric in sites[name]]
            total = sum(weights[name] for name in counted)
            # By shares, since the product of two large numbers may be none.
            mean[metric] = sum(weights[name] / total * sites[name][metric] for name in counted)
        facts: dict[str, object] = {"mean": mean, "sites": sites}
        if refused:
            facts["refused"] = {name: str(why) for name, why in refused.items()}
        if missing := [name for name in session.roster.active if name not in replies]:
            facts["missing"] = missing
        session.round_log.note("evaluation", session.progress.round, **facts)
        return mean

    def deliver(self) -> None:
        """Send every client the model of a run that is over: the best one, where there is one."""
        session = self.session
        x = session.progress.x if self.best is None else self.best.x
        replies = self._send(Kind.FINAL, FINAL, x, None if session.policy.quorum is None else 0)
        received = sorted(name for name, reply in replies.items() if reply.kind == Kind.RECEIVED)
        missing = [name for name in session.roster.active if name not in received]
        session.round_log.note("delivered", session.progress.round, clients=received, missing=missing)

    def _send(self, kind: Kind, route: str, x: Array, needed: int | None) -> dict[str, Reply]:
        """Send a model to all who take part; waits for all where `needed` is None, else only briefly.

        Who is waited for and away is asked once it is back, if that is within the time that one exchange may take.
        """
        session, replies = self.session, dict[str, Reply]()
        message = wire.write_message(Header(kind, session.run, session.progress.round), wire.pack(x))
        again = "it is left out" if needed is not None else "it is asked again, and left out once its time is over"
        deadline, pause = time.monotonic() + session.policy.timeout, session.policy.pause
        while missing := [name for name in session.roster.active if name not in replies]:
            reachable = session.exchange.transport.clients()
            if names := [name for name in missing if name in reachable]:
                replies |= session.ask(route, dict.fromkeys(names, message), needed, due=names, doing=again)
            if needed is not None or replies.keys() >= set(missing) or time.monotonic() > deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return replies

    def _write(self, metric: str) -> None:
        if self.path is not None and self.best is not None:
            place = {"x": self.best.x, "round": np.array(self.best.round), "value": np.array(self.best.value)}
            checkpoint.write(self.path, {"metric": metric, "run": self.session.run.hex()}, place, 0o600)

    def _read(self, metric: str) -> BestModel | None:
        assert self.path is not None
        try:
            arrays = checkpoint.read(self.path, {"metric": metric, "run": self.session.run.hex()})
        except CheckpointError:  # of another metric, or cut off: the next evaluation is the best so far
            return None
        return None if arrays is None else BestModel(int(arrays["round"]), float(arrays["value"]), arrays["x"])


def read_metrics(reply: Reply) -> tuple[float, dict[str, float]]:
    """A client's weight in an evaluation, and its metrics by name."""
    facts = wire.read_facts(reply.body)
    weight, metrics = facts.get("weight"), facts.get("metrics")
    if not isinstance(metrics, dict) or len(metrics) > MOST or not all(map(_is_name, metrics)):
        raise WireError(
            f"an evaluation has at most {MOST} metrics by name, each of at most {MOST} characters that can be printed."
        )
    numbers = {name: _number(name, value) for name, value in metrics.items()}
    return max(_number("weight", weight), np.finfo(float).tiny), numbers


def _is_name(name: str) -> bool:
    return len(name) <= MOST and name.isprintable()


def _number(name: str, value: Any) -> float:
    if not wire.is_finite(value):
        raise WireError(f"{name} = {shown(value)} is no metric: give a finite number.")
    return float(value)
