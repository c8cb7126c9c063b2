"""One run, checked and put into numbers: the only way from what a user says to what a program takes."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedlin.aggregation import Aggregator, mean
from fedlin.checks import finite, positive_integer, real, shape_of, shown
from fedlin.columns import Measures, RoundCosts, reached
from fedlin.core import Algorithm, Array, Method, Requirement
from fedlin.devices import runs_kernels
from fedlin.engines.checkpoint import digest
from fedlin.engines.messages import RoundSize, message_sizes
from fedlin.engines.opening import opening_rounds
from fedlin.engines.phase import Leaf, Totals, total
from fedlin.engines.requirements import (
    check_aggregate,
    check_clients,
    check_cohort,
    check_convexity,
    check_oracle,
    check_plan,
    check_presence,
    check_uploads,
)
from fedlin.engines.simulation.program import Inputs, State, When
from fedlin.engines.simulation.stop import Stop
from fedlin.errors import ArgumentError
from fedlin.plan import Plan
from fedlin.problems.objective import Data
from fedlin.problems.problem import Problem

Participation = float | ArrayLike
RARE = 100  # clients to each that takes part, from which not every round is measured unless asked for


@dataclass(frozen=True, eq=False)
class Run:
    """A run ready to start."""

    algorithm: Method
    problem: Problem
    numbers: dict[str, float]
    tau: Array
    eta: Array
    present: Array | None  # (rounds, m), who answers in each round
    cohort: int | None  # how many are drawn each round
    seed: int
    x0: Array
    stop: Stop
    sizes: RoundSize
    rounds: int
    every: int  # rounds from one measure to the next, 0 for none
    aggregate: Aggregator = field(default_factory=mean)  # what the server makes of the uploads

    def inputs(self, first: int, capacity: int, data: Data = None) -> Inputs:
        """The program's inputs for the rounds from `first` on; `data` is the clients' where it was placed already."""
        dtype = self.problem.dtype
        return Inputs(
            {name: np.asarray(value, dtype) for name, value in self.numbers.items()},
            self.problem.device_data if data is None else data,
            self.problem.noise,
            self.problem.weights.astype(dtype),
            self.problem.known_optimum,
            seed=np.uint32(self.seed),
            limits=self.limits,
            start=self.x0,
            every=np.int32(self.every),
            last=np.int32(self.rounds),
            **self.windows(first, capacity),
        )

    def windows(self, first: int, capacity: int) -> dict[str, Leaf]:
        """The inputs that move on with the rounds."""
        eta = _window(self.eta, first, capacity)
        return {
            "tau": _window(self.tau, first, capacity),
            "eta": eta.astype(self.problem.dtype),
            "totals": self.totals(eta),
            "present": None if self.present is None else _window(self.present, first, capacity),
        }

    @cached_property
    def when(self) -> When:
        """Which rounds are measured."""
        return "never" if self.every == 0 else "always" if self.every == 1 else "seldom"

    @cached_property
    def steady(self) -> bool:
        """Whether every round has the same plan, and the same clients or ones that it draws itself."""
        return self.tau.ndim == self.eta.ndim == 1 and self.present is None

    def totals(self, eta: Array) -> Totals:
        """What the server knows of all clients together, of one round or of each row of η."""
        weights, dtype = self.problem.weights, self.problem.dtype
        return Totals(*(np.asarray(value, dtype) for value in total(weights, eta)))

    @cached_property
    def limits(self) -> Measures:
        """What each measure must come to for the run to stop."""
        return self.stop.measures(self.problem)

    def reached(self, measures: Measures) -> bool:
        """Whether the run may stop with these measures."""
        return any(reached(measures, self.limits))

    @cached_property
    def looped(self) -> bool:
        """Whether local steps are taken one by one."""
        sampling, objective = self.problem.sampling, self.problem.objective
        return objective.descend is None if sampling is None else sampling.looped

    @property
    def in_step(self) -> bool:
        """Whether all clients take as many local steps in every round."""
        return bool(np.all(self.tau == self.tau[..., :1]))

    @property
    def passes(self) -> float:
        """About how often a round reads the clients' data: once a step, and to measure the model."""
        sampling = self.problem.sampling
        whole_steps = self.looped and (sampling is None or sampling.batch is None)
        return 2 + float(np.mean(self.tau)) if whole_steps else 2

    def packed(self, devices: int) -> Data:
        """The clients' rows in blocks, where clients differ much in length and every round reads all rows."""
        reads_all = self.cohort is None and self.problem.sampling is None
        whole = {Requirement.PROX, Requirement.HESSIAN}  # which are differentiated over all of a client's rows at once
        by_rows = not whole & self.algorithm.requires and not runs_kernels()
        return self.problem.packed_data(devices) if reads_all and by_rows else None

    def state(self) -> State:
        """The server's and the clients' states before the first round."""
        x = jnp.asarray(self.x0)
        client = self.algorithm.init_client(x)
        everyone = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.problem.clients, axis=0), client)
        # Copies, since a program takes its state over and no buffer can be given twice.
        return State(jax.tree.map(jnp.copy, self.algorithm.init_server(x)), everyone)

    def answering(self, first: int, count: int) -> Array:
        """How many clients take part in each of the rounds."""
        if self.present is not None:
            return np.asarray(self.present[first : first + count].sum(axis=1))
        return np.full(count, self.cohort or self.problem.clients)

    def costs(self, first: int, calls: Array, seconds: float) -> RoundCosts:
        """What the rounds from `first` on took, from the gradients of each and the seconds of one."""
        count = len(calls)
        return RoundCosts(*self.bytes_sent(first, count), calls, np.full(count, seconds))

    @cached_property
    def bytes_each(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The bytes of one client, up and down, in the first round and in a later one."""
        return self.sizes.sums()

    def bytes_sent(self, first: int, count: int) -> tuple[Array, Array]:
        """The bytes of all clients in each of the rounds, up and down."""
        opening = opening_rounds(self.algorithm, self.seed, first, count)
        each = np.where(opening[:, None], *self.bytes_each)
        up, down = (self.answering(first, count)[:, None] * each).T
        return up, down

    def identity(self, layout: str) -> dict[str, str]:
        """What must agree for a checkpoint to go on from, by name."""
        problem = self.problem
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((problem.data, problem.noise))]
        recipe, sampling = self.algorithm.recipe, problem.sampling
        robust = {} if self.aggregate.is_mean else {"aggregate": self.aggregate.name}
        return {
            **robust,
            "algorithm": digest(self.algorithm.name, recipe and recipe.structure, sorted(self.numbers.items())),
            "problem": digest(problem.signature(), *leaves, problem.weights, sampling and sampling.name),
            "plan": digest(self.tau, self.eta),
            "seed": str(self.seed),
            "starting point": digest(self.x0),
            "participation": digest(self.present, self.cohort),
            "layout": layout,
        }


def prepare_run(
    algorithm: Method,
    problem: Problem,
    plan: Plan,
    rounds: int,
    *,
    seed: int,
    x0: ArrayLike | None,
    participation: Participation,
    weights: ArrayLike | None,
    stop: Stop | None,
    measure_every: int | None = None,
    metrics: Collection[str] = (),
    search: bool = True,
    aggregate: Aggregator | None = None,
) -> Run:
    """Check everything a user gave, before anything is compiled.

    `search` says whether x* is worth a search that holds all data in memory; a stop that needs it always is.
    """
    for name, value, kind in (
        ("algorithm", algorithm, Algorithm),
        ("problem", problem, Problem),
        ("plan", plan, Plan),
        ("stop", stop, Stop | None),
    ):
        if not isinstance(value, kind):
            expected = getattr(kind, "__name__", "Stop")
            raise ArgumentError(f"{name} = {shown(value)} is not allowed: give a fedlin {expected}.")
    seed = check_seed(seed)
    if weights is not None:
        problem = problem.weighted(weights)
    tau, eta = plan.rows(problem.clients, rounds)
    present, cohort = _participation(participation, problem.clients, rounds)
    _check_weight(problem.weights, present, cohort)
    stop = stop or Stop()
    if not search and not stop.needs_minimizer:
        problem = problem.without_search()
    stop.check(problem, metrics)
    check_plan(algorithm, tau, eta)
    check_oracle(algorithm, problem)
    check_clients(algorithm, problem.weights)
    check_convexity(algorithm, problem)
    check_presence(algorithm, everyone=present is None and cohort is None)
    answering = np.array([cohort or problem.clients]) if present is None else present.sum(axis=1)
    check_cohort(algorithm, answering, problem.clients)
    aggregate = check_aggregate(algorithm, aggregate, problem.weights)
    check_uploads(aggregate, int(answering.min()))
    declared = () if algorithm.recipe is None else algorithm.recipe.numbers
    # A number that was left open is the problem's own; one of a wrapped method has a name with dots.
    numbers = {name: getattr(problem, name.rpartition(".")[2]) if value is None else value for name, value in declared}
    return Run(
        algorithm,
        problem,
        numbers,
        tau,
        eta,
        present,
        cohort,
        seed,
        problem.start if x0 is None else problem.check_point(x0, "x0"),
        stop,
        message_sizes(algorithm, problem),
        rounds,
        _how_often(problem, cohort, stop)
        if measure_every is None
        else positive_integer("measure_every", measure_every, least=0),
        aggregate,
    )


def check_seed(seed: int) -> int:
    """The seed, if it fits 32 bits."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ArgumentError(f"seed = {shown(seed)} is not allowed: give a whole number from 0 to 2³² - 1.")
    return int(seed)


def _participation(value: Participation, clients: int, rounds: int) -> tuple[Array | None, int | None]:
    if shape_of("participation", value) == ():
        share = real("participation", value, lambda p: 0 < p <= 1, "a share in (0, 1], or an array (rounds, clients)")
        drawn = max(1, round(share * clients))
        return None, None if drawn == clients else drawn
    schedule = finite("participation", value, ArgumentError)
    if schedule.ndim != 2 or schedule.shape[0] < rounds or schedule.shape[1] != clients:
        raise ArgumentError(
            f"participation has shape {schedule.shape}: give a share in (0, 1], or who answers in each round as "
            f"an array ({rounds}, {clients}) of zeros and ones."
        )
    present = schedule[:rounds] > 0
    empty = np.flatnonzero(~present.any(axis=1))
    if empty.size:
        raise ArgumentError(f"participation leaves round {int(empty[0])} with no client: every round needs one.")
    return (None if present.all() else present), None


def _check_weight(weights: Array, present: Array | None, cohort: int | None) -> None:
    # A mean over clients that all weigh nothing is no number.
    idle = int(np.sum(weights == 0))
    if cohort is not None and cohort <= idle:
        raise ArgumentError(
            f"weights are zero for {idle} clients and a round draws {cohort}, which may all be of those: "
            "leave clients without weight out, or raise participation."
        )
    empty = np.flatnonzero(present @ weights == 0) if present is not None else np.zeros(0)
    if empty.size:
        raise ArgumentError(f"participation leaves round {int(empty[0])} with clients of zero weights only.")


def _how_often(problem: Problem, cohort: int | None, stop: Stop) -> int:
    """Rounds from one measure to the next: one, or so many that measuring costs a cohort's round as it would its own.

    To measure is to ask every client for a gradient over all its rows. Where a round draws clients or mini-batches of
    a problem without a known minimiser, such as a network, it is not done unless a stop needs it. Where a round asks
    one client in a hundred or fewer, it would be nearly all the cost.
    """
    optimum, sampling = problem.known_optimum, problem.sampling
    draws = cohort is not None or (sampling is not None and sampling.batch is not None)
    if draws and optimum is None and not stop.needs_measures:
        return 0
    if cohort is None or RARE * cohort > problem.clients:
        return 1
    return 1 if optimum is not None and optimum.hessian is not None else -(-problem.clients // cohort)


def _window(rows: Array, first: int, capacity: int) -> Array:
    """The rows of a changing plan for one call, the last repeated to fill; a fixed plan as it is."""
    if rows.ndim == 1:
        return rows
    part = rows[first : first + capacity]
    missing = capacity - len(part)
    return np.concatenate([part, np.repeat(part[-1:], missing, axis=0)]) if missing else part
