"""Metrics that the server takes of its model on data of its own, as a simulation does."""

from collections.abc import Mapping

from fedlin.core import Array
from fedlin.engines.evaluation_rounds import Evaluations, plan_evaluations, reached
from fedlin.engines.federation.round_log import METRICS_EVENT
from fedlin.engines.federation.session import Session
from fedlin.errors import ArgumentError
from fedlin.precision import precision
from fedlin.problems.metrics import Evaluate, Metric, as_it_is, evaluate_in_blocks
from fedlin.problems.objective import Data
from fedlin.problems.problem import Problem


class CentralMetrics:
    """Evaluates the server's model when it is time; the values are an event of the log, and of what callbacks get."""

    def __init__(self, evaluations: Evaluations, evaluate: Evaluate, limits: Mapping[str, float]) -> None:
        self.names = evaluations.names
        self._every, self._evaluate, self._limits = evaluations.every, evaluate, limits

    def after_round(self, session: Session) -> dict[str, float]:
        """The metrics after this round, none where it is not their turn."""
        played = session.progress.round
        if played % self._every and played != session.rounds:
            return {}
        values = self._evaluate(session.progress.x)
        session.round_log.note(METRICS_EVENT, played, **values)
        return values

    def reached(self, values: Mapping[str, float]) -> bool:
        """Whether a metric is at its limit."""
        return reached(self._limits, values)


def central_metrics(
    metrics: Mapping[str, Metric] | None,
    test: Data,
    every: int,
    model: Problem | None,
    start: Array,
    limits: Mapping[str, float],
) -> CentralMetrics | None:
    """What the server was asked to evaluate, checked; None where it was asked for nothing."""
    evaluations = plan_evaluations(metrics, test, every)
    if model is not None and (not isinstance(model, Problem) or model.dim != start.size):
        raise ArgumentError(
            f"model = {model!r} is not allowed: give a fedlin Problem with models of {start.size} entries."
        )
    unknown = limits.keys() - set(() if evaluations is None else evaluations.names)
    if unknown:
        raise ArgumentError(f"stop names {', '.join(sorted(unknown))}: a federation ends by its metrics, or by a move.")
    if evaluations is None:
        return None
    if model is not None:
        return CentralMetrics(evaluations, evaluations.of(model), limits)
    with precision(start.dtype):
        evaluate = evaluate_in_blocks(evaluations.metrics, as_it_is, start, test)
    return CentralMetrics(evaluations, evaluate, limits)
