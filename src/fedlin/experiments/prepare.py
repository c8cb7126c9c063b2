"""Planned runs made ready; everything that can be wrong is found here, before any work."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import jax
import numpy as np

from fedlin.aggregation import Aggregator
from fedlin.algorithms import fedlin
from fedlin.columns import column
from fedlin.core import Method
from fedlin.data.held_out_report import OwnMetric
from fedlin.engines.checkpoint import digest
from fedlin.engines.simulation.run import prepare_run
from fedlin.engines.simulation.stop import Stop
from fedlin.errors import ArgumentError, FedLinError, UnknownError
from fedlin.experiments import build_method
from fedlin.experiments.build_problem import BuiltProblem, build_problem
from fedlin.experiments.config import ExperimentConfig, PythonConfig
from fedlin.experiments.experiment_file import ExperimentFile
from fedlin.experiments.own_code import code_fingerprints, is_own, own_function
from fedlin.experiments.planned_runs import PlannedRun
from fedlin.plan import Plan
from fedlin.privacy import promise
from fedlin.problems.problem import Problem
from fedlin.trackers import check_tracker


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A planned run with what it runs on; runs on equal problems share one."""

    planned: PlannedRun
    built: BuiltProblem
    algorithm: Method
    experiment: ExperimentConfig
    aggregate: Aggregator

    @property
    def problem(self) -> Problem:
        """What is minimised."""
        return self.built.problem

    @property
    def is_certified(self) -> bool:
        """Whether certified steps are proved for this run: FedLin, whole messages, all clients and their mean."""
        return self.algorithm == fedlin() and self.planned.participation == 1 and self.aggregate.is_mean

    def plan(self, rounds: int, tuned: float | None = None) -> Plan:
        """The plan, given the step size if it is a tuned one."""
        if self.planned.plan.eta == "certified" and not self.is_certified:
            raise ArgumentError(
                'eta = "certified" is proved for FedLin with whole messages and the mean of all clients, not for '
                f"{self.algorithm.name} with participation = {self.planned.participation:g} and aggregate = "
                f'{self.aggregate}: give eta_bar = "tuned".'
            )
        return build_method.plan(self.planned.plan, self.problem, rounds, tuned)

    def fingerprint(self) -> str:
        """What the problem's numbers are, so that changed data are noticed."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.problem.data)]
        return digest(self.problem.signature(), *leaves, self.problem.weights)

    def promise(self) -> str | None:
        """What the run gives away of its clients, in words; None where its method makes no upload private."""
        share, clients = self.planned.participation, self.problem.clients
        return promise(
            self.algorithm, self.experiment.rounds, delta=self.experiment.delta, share=share, clients=clients
        )


def prepare(file: ExperimentFile) -> list[PreparedRun]:
    """Every run built and checked as `simulate` would; an error names the first that is wrong, with its place."""
    experiment, problems = file.experiment, dict[str, BuiltProblem]()
    prepared: list[PreparedRun] = []
    if experiment.track is not None:
        check_tracker(experiment.track)
    with _place_named(file, "metrics"):
        metrics = {name: own_function(place) for name, place in experiment.metrics.items()}
    for planned in file.runs:
        with _place_named(file, "[problem]"):
            key = planned.problem_key
            if key not in problems:
                problems[key] = _with_metrics(build_problem(planned.problem), metrics)
                _check_measure(experiment, problems[key].problem)
        with _place_named(file, planned.label):
            algorithm = build_method.algorithm(planned.method, planned.arguments)
            run = PreparedRun(planned, problems[key], algorithm, experiment, build_method.aggregator(planned.aggregate))
            prepare_run(
                run.algorithm,
                run.problem,
                # A step size that is still to be tuned is 1 for the check of everything else.
                run.plan(experiment.rounds, 1.0),
                experiment.rounds,
                seed=planned.seed,
                x0=None,
                participation=planned.participation,
                weights=None,
                stop=stop(experiment),
                metrics=tuple(run.built.metrics or ()),
                aggregate=run.aggregate,
            )
        prepared.append(run)
    return prepared


def _with_metrics(built: BuiltProblem, metrics: Mapping[str, OwnMetric]) -> BuiltProblem:
    if metrics and (built.rows is None or built.rows.test is None):
        raise ArgumentError("metrics need rows that are held out: give test, such as test = 0.25.")
    return replace(built, own_metrics=metrics)


def own_code(file: ExperimentFile) -> dict[str, str]:
    """The files of the user's own that an experiment runs, by their content."""
    named = [run.method for run in file.runs if is_own(run.method)]
    named += [run.problem.python for run in file.runs if isinstance(run.problem, PythonConfig)]
    return code_fingerprints([*named, *file.experiment.metrics.values()])


def stop(experiment: ExperimentConfig) -> Stop:
    """When a run ends early."""
    return Stop(**experiment.stop.model_dump())


def first_seeds(prepared: Sequence[PreparedRun]) -> Iterator[PreparedRun]:
    """One run of each group that differs in its seed only: the first."""
    groups: set[tuple[str, str]] = set()
    for run in prepared:
        if run.planned.cell not in groups:
            groups.add(run.planned.cell)
            yield run


@contextmanager
def _place_named(file: ExperimentFile, place: str) -> Iterator[None]:
    """An error in the block is raised again with the file and the place in it."""
    try:
        yield
    except FedLinError as error:
        raise type(error)(f"{file.source}: {place}: {error}") from error


def _check_measure(experiment: ExperimentConfig, problem: Problem) -> None:
    if column(experiment.measure).minimizer:
        try:
            problem.optimum  # noqa: B018 - raises with the reason
        except UnknownError as error:
            raise UnknownError(
                f'{error} To measure the gradient or the loss instead, set measure = "grad_norm" or "loss".'
            ) from error
