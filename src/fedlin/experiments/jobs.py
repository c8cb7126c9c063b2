"""Members made ready to run; everything that can be wrong is found here, before any work."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from fedlin.core import Algorithm
from fedlin.engines.checkpoint import digest
from fedlin.engines.simulation.run import prepare_run
from fedlin.engines.simulation.stop import Stop
from fedlin.errors import FedLinError, UnknownError
from fedlin.experiments import build
from fedlin.experiments import build_problem as problem
from fedlin.experiments.config import ExperimentConfig
from fedlin.experiments.load import Loaded
from fedlin.experiments.members import PlannedRun
from fedlin.plan import Plan
from fedlin.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class Job:
    """A member with what it runs on; members of equal problems share one."""

    member: PlannedRun
    built: problem.Built
    algorithm: Algorithm[Any, Any]

    @property
    def problem(self) -> Problem:
        """What is minimised."""
        return self.built.problem

    def plan(self, rounds: int, tuned: float | None = None) -> Plan:
        """The plan, given the step size if it is a tuned one."""
        return build.plan(self.member.plan, self.problem, rounds, tuned)

    def fingerprint(self) -> str:
        """What the problem's numbers are, to tell when data have changed."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.problem.data)]
        return digest(self.problem.signature(), *leaves, self.problem.weights)


def jobs(loaded: Loaded) -> list[Job]:
    """Every member built and checked as `simulate` would; the first that is wrong is told with its place."""
    experiment, shared = loaded.experiment, dict[str, problem.Built]()
    found: list[Job] = []
    for member in loaded.members:
        with _told(loaded, "[problem]"):
            key = member.problem_key
            if key not in shared:
                shared[key] = problem.build(member.problem)
                _check_measure(experiment, shared[key].problem)
        with _told(loaded, member.label):
            job = Job(member, shared[key], build.algorithm(member.method, member.arguments))
            prepare_run(
                job.algorithm,
                job.problem,
                # A step size that is still to be found stands at 1 for the check of everything else.
                job.plan(experiment.rounds, 1.0),
                experiment.rounds,
                seed=member.seed,
                x0=None,
                participation=member.participation,
                weights=None,
                stop=stop(experiment),
            )
        found.append(job)
    return found


def stop(experiment: ExperimentConfig) -> Stop:
    """When a run ends early."""
    return Stop(**experiment.stop.model_dump())


def cells(found: Sequence[Job]) -> Iterator[Job]:
    """One job of each group that differs in its seed only: the first."""
    seen: set[tuple[str, str]] = set()
    for job in found:
        if job.member.cell not in seen:
            seen.add(job.member.cell)
            yield job


@contextmanager
def _told(loaded: Loaded, where: str) -> Iterator[None]:
    try:
        yield
    except FedLinError as error:
        raise type(error)(f"{loaded.source}: {where}: {error}") from error


def _check_measure(experiment: ExperimentConfig, on: Problem) -> None:
    if experiment.measure != "grad_norm":
        try:
            on.optimum  # noqa: B018 - raises with the reason
        except UnknownError as error:
            raise UnknownError(f'{error} To measure the gradient instead, set measure = "grad_norm".') from error
