"""All clients in one process: the rounds of one run, or of a batch of runs, in one compiled program."""

import time
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedlin.core import Algorithm
from fedlin.engines import checkpoint as saved
from fedlin.engines.checkpoint import Checkpoint
from fedlin.engines.interrupt import Interrupt
from fedlin.engines.log import Log, ended, keeps_iterates
from fedlin.engines.member import Member, Participation, check_rounds, prepare
from fedlin.engines.pace import Pace
from fedlin.engines.program import DIVERGED, RUNNING, STOPPED, Records, Shape, State, program, structure
from fedlin.engines.progress import bar
from fedlin.engines.stop import Stop
from fedlin.errors import CheckpointError
from fedlin.layout import choose_block, one_pass_block
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from fedlin.result import Result, Status

Callback = Callable[[int, dict[str, float]], object]
NAMES: dict[int, Status] = {RUNNING: "done", STOPPED: "stopped", DIVERGED: "diverged"}


def simulate(
    algorithm: Algorithm[Any, Any],
    problem: Problem,
    plan: Plan,
    rounds: int,
    *,
    seed: int = 0,
    x0: ArrayLike | None = None,
    participation: Participation = 1.0,
    weights: ArrayLike | None = None,
    stop: Stop | None = None,
    progress: bool = False,
    callbacks: Sequence[Callback] = (),
    layout: str = "auto",
    checkpoint: str | PathLike[str] | Checkpoint | None = None,
    iterates: bool | None = None,
) -> Result:
    """Run `rounds` rounds and measure the model after each.

    `participation` is the share of clients drawn in each round, or an array (rounds, clients) that says who
    answers. `weights` makes f = Σ w_i f_i. A callback gets the round and its measures; if it returns True the
    run ends there. `checkpoint` saves as the run goes, and goes on from what was saved. `seconds` in the
    result do not count compilation.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=4, dim=5, samples=20)
    >>> plan = fedlin.theory.strongly_convex(problem, tau=[1, 2, 3, 4])
    >>> result = fedlin.simulate(fedlin.fedlin(), problem, plan, rounds=2000, stop=fedlin.Stop(gap=1e-12))
    >>> result.status, bool(result.gap[-1] <= 1e-12)
    ('stopped', True)
    """
    rounds = check_rounds(rounds)
    member = prepare(
        algorithm,
        problem,
        plan,
        rounds,
        seed=seed,
        x0=x0,
        participation=participation,
        weights=weights,
        stop=stop,
    )
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    with precision(member.problem.dtype):
        batch = Batch([member], rounds, layout, iterates)
        log = batch.logs[0]
        identity = member.identity(batch.block) if checkpoint is not None else {}
        if checkpoint is not None:
            batch.resume(saved.read(checkpoint.path, identity))
        status: Status = "done"
        with Interrupt() as interrupt, bar(progress, rounds, member.algorithm.name) as shown:
            while batch.done < rounds and batch.running:
                until = rounds if checkpoint is None else _next_multiple(batch.done, checkpoint.every, rounds)
                before = batch.done
                records = batch.advance(until - before)
                asked = _call(callbacks, log, before)
                if asked is not None:
                    log.cut(asked, records.x[asked - before - 1])
                    status = "stopped"
                    break
                if checkpoint is not None and batch.running and (batch.done == until or interrupt.asked):
                    saved.write(checkpoint.path, identity, batch.arrays())
                latest = log.latest()
                known = np.isfinite(latest.gap)
                shown.update(batch.done, f"gap {latest.gap:.2e}" if known else f"gradient {latest.grad_norm:.2e}")
                if interrupt.asked and batch.done < rounds and batch.running:
                    status = "interrupted"
                    break
    return log.result(status if batch.running else NAMES[int(batch.status[0])])


class Batch:
    """Runs of one structure that advance together; a single run is a batch of one without the extra axis."""

    def __init__(self, members: list[Member], rounds: int, layout: str, iterates: bool | None) -> None:
        first = members[0]
        self.members = members
        self.rounds = rounds
        problem = first.problem
        data = [problem.data for problem in {id(m.problem): m.problem for m in members}.values()]
        looped = problem.objective.descend is None or problem.sampling is not None
        self.block = choose_block(layout, data, problem.clients, first.tau, looped)
        self.survey = one_pass_block(data, problem.clients)
        dim = first.problem.dim
        self.logs = [Log(member, keeps_iterates(iterates, rounds, dim)) for member in members]
        self.capacity = int(np.clip(2_000_000 // (dim * len(members)), 1, 1024))
        self.done = 0
        self.status = np.full(len(members), RUNNING, np.int32)
        states = [member.state() for member in members]
        self.state: State = states[0] if len(members) == 1 else jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        self._pace = Pace()
        self._inputs: Any = None

    @property
    def running(self) -> bool:
        """Whether any member goes on."""
        return bool(np.any(self.status == RUNNING))

    def advance(self, most: int) -> Records:
        """Play some rounds, at most `most`; the records come back as host arrays, rounds first."""
        opening = self.done == 0 and self.members[0].algorithm.opening is not None
        capacity = 1 if opening else self.capacity
        inputs, differing = self._stacked(capacity)
        single = len(self.members) == 1
        first = self.members[0]
        run = program(
            Shape(
                structure(first.algorithm),
                opening,
                first.problem.objective,
                first.problem.sampling,
                self.block,
                self.survey,
                capacity,
                first.cohort,
                None if single else differing,
            )
        )
        status = jnp.asarray(self.status[0] if single else self.status)
        at = np.int32(self.done)
        if self._pace.fresh(opening):  # compile without playing, so that the clock sees rounds only
            _finish(run(inputs, self.state, status, at, np.int32(0)))
        count = min(most, capacity, self._pace.count)
        began = time.perf_counter()
        self.state, records = _finish(run(inputs, self.state, status, at, np.int32(count)))
        seconds = time.perf_counter() - began
        self._pace.saw(count, seconds)
        for number, log in enumerate(self.logs):
            if not ended(int(self.status[number])):
                mine = records if single else _one(records, number)
                self.status[number] = log.extend(mine, seconds)
        self.done += count if self.running else int(np.max(records.filled))
        return records

    def _stacked(self, capacity: int) -> tuple[Any, frozenset[str]]:
        """The inputs of all members: what they share once, what differs stacked."""
        varying = self.members[0].tau.ndim == 2 or self.members[0].present is not None
        if self._inputs is not None and not varying and self._inputs[0] == capacity:
            return self._inputs[1], self._inputs[2]
        each = [member.inputs(self.done, capacity) for member in self.members]
        # What must not be stacked is the limits: they are the same for all.
        differing = frozenset(
            name
            for name in each[0]._fields
            if name != "limits" and any(not _same(getattr(each[0], name), getattr(i, name)) for i in each[1:])
        )
        merged = each[0]._replace(
            **{
                name: jax.tree.map(lambda *leaves: jnp.stack(leaves), *(getattr(i, name) for i in each))
                for name in differing
            }
        )
        self._inputs = (capacity, jax.device_put(merged), differing)
        return self._inputs[1], differing

    def arrays(self) -> dict[str, Any]:
        """Everything a checkpoint needs, of a single run."""
        leaves = {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.state))}
        return {**leaves, **{f"log_{name}": a for name, a in self.logs[0].arrays().items()}}

    def resume(self, arrays: dict[str, Any] | None) -> None:
        """Go on from what `arrays` returned, if there is anything."""
        if arrays is None:
            return
        log = {name[4:]: a for name, a in arrays.items() if name.startswith("log_")}
        rounds = len(log["loss"]) - 1
        if rounds > self.rounds:
            raise CheckpointError(f"the checkpoint is at round {rounds}, beyond rounds = {self.rounds}: ask for more.")
        self.logs[0].restore(log)
        self.done = rounds
        leaves, shape = jax.tree.flatten(self.state)
        self.state = jax.tree.unflatten(shape, [jnp.asarray(arrays[f"state_{i}"]) for i in range(len(leaves))])


def _call(callbacks: Sequence[Callback], log: Log, before: int) -> int | None:
    """Call back for every round since `before`; the round a callback asked to end at, if any."""
    if not callbacks or log.rounds == before:
        return None
    names = ("loss", "grad_norm", "gap", "distance", "gradients", "bytes_up", "bytes_down", "seconds")
    rows = {name: log.columns[name][-1] for name in names}
    for offset in range(log.rounds - before):
        measures = {name: column[offset].item() for name, column in rows.items()}
        asked = [callback(before + offset + 1, measures) for callback in callbacks]
        if any(answer is True for answer in asked):
            return before + offset + 1
    return None


def _next_multiple(done: int, every: int, rounds: int) -> int:
    return min(rounds, (done // every + 1) * every)


def _finish(computed: tuple[State, Records]) -> tuple[State, Records]:
    """Wait for the device, and bring the records home."""
    state, records = computed
    for leaf in jax.tree.leaves(state):
        leaf.block_until_ready()
    home: Records = jax.tree.map(np.asarray, records)
    return state, home


def _one(records: Records, number: int) -> Records:
    x, measures, calls = jax.tree.map(lambda leaf: leaf[:, number], (records.x, records.measures, records.calls))
    return Records(x, measures, calls, records.filled[number], records.status[number])


def _same(a: Any, b: Any) -> bool:
    """Whether two members share an input: the very same arrays, or small ones that are equal."""
    left, right = jax.tree.leaves(a), jax.tree.leaves(b)
    return all(x is y for x, y in zip(left, right, strict=True))
