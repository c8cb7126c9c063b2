"""Metrics of the models of running runs, between two calls of their program."""

from collections.abc import Sequence

from fedlin.engines.evaluation_rounds import Evaluations, reached
from fedlin.engines.simulation.chunked import Chunked
from fedlin.engines.simulation.resident import Resident
from fedlin.engines.simulation.run import Run
from fedlin.engines.simulation.stop import RUNNING, STOPPED


class Evaluator:
    """Evaluates the models of a batch of runs when it is their turn, and ends runs whose metric is at its limit."""

    def __init__(self, evaluations: Evaluations, runs: Sequence[Run]) -> None:
        self._plan, self._rounds = evaluations, runs[0].rounds
        by_problem = {id(run.problem): evaluations.of(run.problem) for run in runs}
        self._evaluate = [by_problem[id(run.problem)] for run in runs]

    def next(self, done: int) -> int:
        """The next round after which models are evaluated."""
        return next_multiple(done, self._plan.every, self._rounds)

    def __call__(self, batch: Resident | Chunked, last: bool = False) -> None:
        for number, log in enumerate(batch.logs):
            over = batch.status[number] != RUNNING
            due = last or over or log.rounds % self._plan.every == 0 or log.rounds == self._rounds
            if not due or log.evaluated:
                continue
            values = self._evaluate[number](log.models[-1][-1])
            log.note_metrics(values, self._plan.better(values, log.best))
            if not over and reached(log.run.stop.limits, values):
                batch.status[number] = STOPPED


def next_multiple(done: int, every: int, rounds: int) -> int:
    """The next multiple of `every`, or the last round if that comes first."""
    return min(rounds, (done // every + 1) * every)
