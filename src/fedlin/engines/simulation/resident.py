"""Runs that advance together, some rounds a call, in one compiled program; a single run is a batch of one."""

import time
from collections.abc import Collection, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from fedlin.columns import Measures, unmeasured
from fedlin.core import PyTree, structure
from fedlin.devices import choose_spread, share_out
from fedlin.engines.phase import ClientProgram
from fedlin.engines.simulation.program import Inputs, ProgramKey, Records, State, program
from fedlin.engines.simulation.records import RunRecords, keeps_iterates
from fedlin.engines.simulation.run import Run
from fedlin.engines.simulation.stop import RUNNING, STOPPED
from fedlin.layout import BY_RUN, EVERYWHERE, choose_block, of_clients, one_pass_block
from fedlin.memory import fitting_block
from fedlin.problems.objective import Data
from fedlin.result import Result, Status

HELD = 2_000_000  # numbers of models that a program keeps on the device before they are copied to the host: 16 MB
MOST_ROUNDS = 1024  # rounds of one call, enough that calling costs nothing beside them
ALIKE = ("limits", "every", "last")  # inputs that the runs of a batch share
_BLOCKS: dict[Hashable, int | None] = {}  # clients at a time with which a program fits, by what fixes it
_CALL = 0.2  # seconds of one call, between which Ctrl-C and the callbacks are looked at
_GROWTH = 64  # times as many rounds as in the call before, at most: the first ones may be quicker than the rest


class Pace:
    """How many rounds to run in one call: enough that calling costs nothing, few enough to react."""

    def __init__(self) -> None:
        self.count = 1
        self._compiled: set[bool] = set()

    def compiles(self, opening: bool) -> bool:
        """Whether this is the first call of its program."""
        new = opening not in self._compiled
        self._compiled.add(opening)
        return new

    def note(self, count: int, seconds: float) -> None:
        """Learn from how long `count` rounds took."""
        fitting = int(count * _CALL / max(seconds, 1e-9))
        self.count = max(1, min(fitting, _GROWTH * self.count))


class Resident:
    """Runs of one structure that advance together; a single run is a batch of one without the extra axis."""

    def __init__(
        self,
        runs: list[Run],
        layout: str,
        iterates: bool | None,
        mesh: Mesh | None = None,
        followed: bool = False,  # whether the model of any round may be asked for
        metrics: Collection[str] = (),
    ) -> None:
        first = runs[0]
        self.mesh = mesh
        problem = first.problem
        data = [problem.data for problem in {id(m.problem): m.problem for m in runs}.values()]
        self.spread = None if problem.objective.outside else choose_spread(data, len(runs))
        # Every core takes as many runs: the last is repeated, and over before it begins.
        idle = 0 if self.spread is None else -len(runs) % self.spread.size
        self.runs = runs + [runs[-1]] * idle
        active = first.cohort or problem.clients
        packed = first.packed(1 if mesh is None else mesh.size) if len(data) == 1 else None
        self.packed = packed is not None
        self.block = choose_block(layout, packed or of_clients(data, active), active, first.tau, first.looped)
        self.survey = None
        if self.packed:  # clients take turns or all take part at once: blocks of clients would read all rows each time
            self.block = None if self.block is None else 1
            self.survey = None if one_pass_block(packed, problem.clients) is None else 1
        elif mesh is not None:  # no device holds all clients, as `pass_block` would have one do
            self.survey = one_pass_block(data, problem.clients)
        elif first.when != "never":
            self.survey = problem.pass_block
        takes_gradients = first.algorithm.phases[0].gradient is not None and problem.sampling is None
        of_everyone_at_once = first.cohort is None and self.block is None and self.survey is None
        self._in_step = all(run.in_step for run in runs)
        self._late = takes_gradients and of_everyone_at_once and first.every == 1
        dim = first.problem.dim
        if packed is not None:
            placed = jax.device_put(packed) if mesh is None else share_out(packed, mesh)
            self._data = [placed] * len(self.runs)
        else:
            self._data = [m.problem.device_data if mesh is None else share_out(m.problem.data, mesh) for m in self.runs]
        kept = keeps_iterates(iterates, first.rounds, dim)
        starts = self._starts()
        self.logs = [RunRecords(m, kept, measures, metrics) for m, (measures, _) in zip(runs, starts, strict=False)]
        self._kept = kept or followed
        self.capacity = int(np.clip(HELD // (dim * len(runs)), 1, MOST_ROUNDS)) if self._kept else MOST_ROUNDS
        self.done = 0
        self.status = np.array([RUNNING] * len(runs) + [STOPPED] * idle, np.int32)
        self.state = self._settle(starts[0][1] if len(runs) == 1 else _stack([state for _, state in starts]))
        self._pace = Pace()
        self._inputs: tuple[int, Inputs, frozenset[str]] | None = None
        for number, log in enumerate(self.logs):
            if runs[number].reached(log.latest):
                self.status[number] = STOPPED
        if not problem.objective.outside:
            self._fit()

    def _starts(self) -> list[tuple[Measures, State]]:
        """Every run's first measures and state; runs that start alike share them."""
        by_kind: dict[Hashable, tuple[Measures, State]] = {}
        kinds = [(run.algorithm, id(run.problem), id(run.x0)) for run in self.runs]
        for kind, run, data in zip(kinds, self.runs, self._data, strict=True):
            if kind not in by_kind:
                by_kind[kind] = self._first_measures(run, data), run.state()
        return [by_kind[kind] for kind in kinds]

    def _first_measures(self, run: Run, data: Data) -> Measures:
        if run.when == "never":
            measures = unmeasured(run.problem.dtype)
        else:
            measures = run.problem.measure(run.x0, self._apart(data))
        return {name: np.asarray(value) for name, value in measures.items()}

    def _apart(self, data: Data) -> Data | None:
        """Data to measure with where it is not the problem's own."""
        return data if self.packed or self.mesh is not None else None

    @property
    def layout(self) -> str:
        """How the clients are laid out, for a checkpoint to agree with."""
        packed = ", packed" if self.packed else ""
        return f"{self.block} on {1 if self.mesh is None else self.mesh.size}{packed}"

    @property
    def running(self) -> bool:
        """Whether any run goes on."""
        return bool(np.any(self.status == RUNNING))

    def advance(self, most: int) -> Records:
        """Play some rounds, at most `most`; the records come back as host arrays, rounds first."""
        opening = self.done == 0 and self.runs[0].algorithm.opening is not None
        capacity = 1 if opening else self.capacity
        inputs, differing = self._stacked(capacity)
        single = len(self.runs) == 1
        compiled = program(self._key(opening, self.block, differing))
        if self._pace.compiles(opening):  # compile without running, so that the time measured is that of rounds only
            self.state, _ = _wait(compiled(*self._arguments(inputs, 0)))
        count = min(most, capacity, self._pace.count)
        began = time.perf_counter()
        self.state, computed = _wait(compiled(*self._arguments(inputs, count)))
        records: Records = jax.tree.map(np.asarray, computed)
        seconds = time.perf_counter() - began
        self._pace.note(count, seconds)
        for number, log in enumerate(self.logs):
            if self.status[number] == RUNNING:
                mine = records if single else _one(records, number)
                self.status[number] = log.extend(mine, seconds, measured_again=self._late and self.done > 0)
        self.done += count if self.running else int(np.max(records.filled))
        return records

    def _key(self, opening: bool, block: int | None, differing: frozenset[str]) -> ProgramKey:
        first = self.runs[0]
        problem = first.problem
        return ProgramKey(
            structure(first.algorithm),
            opening,
            ClientProgram(problem.objective, problem.sampling, block, self.mesh, self._in_step),
            self.survey,
            1 if opening else self.capacity,
            first.cohort,
            first.when,
            self._late and not opening,
            self._kept,
            self.spread,
            None if len(self.runs) == 1 else differing,
            first.aggregate,
        )

    def _arguments(self, inputs: Inputs, count: int) -> tuple[PyTree, ...]:
        """The program's arguments for so many rounds."""
        status = jnp.asarray(self.status[0] if len(self.runs) == 1 else self.status)
        return inputs, self.state, status, np.int32(self.done), np.int32(count)

    def _fit(self) -> None:
        """Take so many clients at a time that the program fits the device."""
        inputs, differing = self._stacked(self.capacity)
        arguments = self._arguments(inputs, 0)
        leaves, tree = jax.tree.flatten(arguments)
        kind = (self._key(False, self.block, differing), tree, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))
        if kind not in _BLOCKS:
            first = self.runs[0]
            _BLOCKS[kind] = fitting_block(
                lambda block: program(self._key(False, block, differing)),
                arguments,
                first.cohort or first.problem.clients,
                self.block,
                measuring=False,
            )
        self.block = _BLOCKS[kind]

    def _stacked(self, capacity: int) -> tuple[Inputs, frozenset[str]]:
        """The inputs of all runs: what they share once, what differs stacked."""
        if self._inputs is None or self._inputs[0] != capacity:
            each = [run.inputs(self.done, capacity, data) for run, data in zip(self.runs, self._data, strict=True)]
            # When to measure and to stop is the same for all; of the rest, what is not the very same arrays is stacked.
            differing = frozenset(
                name
                for name in Inputs._fields
                if name not in ALIKE and any(not _same(getattr(each[0], name), getattr(i, name)) for i in each[1:])
            )
            merged = each[0]._replace(**{name: _stack([getattr(i, name) for i in each]) for name in differing})
            placed = {name: self._place(name, part, differing) for name, part in merged._asdict().items()}
            self._inputs = (capacity, Inputs(**placed), differing)
        elif not all(run.steady for run in self.runs):
            _, merged, differing = self._inputs
            windows = [run.windows(self.done, capacity) for run in self.runs]
            moved = {
                name: _stack([window[name] for window in windows]) if name in differing else windows[0][name]
                for name in windows[0]
            }
            moved = {name: self._place(name, part, differing) for name, part in moved.items()}
            self._inputs = (capacity, merged._replace(**moved), differing)
        return self._inputs[1:]

    def _place(self, name: str, part: PyTree, differing: frozenset[str]) -> PyTree:
        """A part of the inputs where the program wants it in every call, for it to compile once."""
        if self.mesh is not None:
            return part
        if self.spread is None:
            return jax.device_put(part)
        return jax.device_put(part, NamedSharding(self.spread, BY_RUN if name in differing else EVERYWHERE))

    def _settle(self, state: State) -> State:
        """The state where the program will leave it."""
        if self.mesh is not None:
            whole = NamedSharding(self.mesh, EVERYWHERE)
            return State(jax.device_put(state.server, whole), share_out(state.clients, self.mesh))
        if self.spread is not None:
            settled: State = jax.device_put(state, NamedSharding(self.spread, BY_RUN))
            return settled
        return state

    def result(self, number: int, status: Status) -> Result:
        """A run as the user gets it."""
        problem, data = self.runs[number].problem, self._apart(self._data[number])
        return self.logs[number].result(status, lambda x: problem.measure(x, data))

    def arrays(self) -> dict[str, Any]:
        """Everything a checkpoint needs, of a single run."""
        return self.logs[0].save(self.state)

    def resume(self, arrays: dict[str, Any] | None) -> None:
        """Go on from what `arrays` returned, if there is anything."""
        if arrays is not None:
            self.done, state = self.logs[0].resume(arrays, self.state)
            self.state = self._settle(state)


def _wait(computed: tuple[State, Records]) -> tuple[State, Records]:
    """What the device computes, once it has."""
    done: tuple[State, Records] = jax.block_until_ready(computed)  # type: ignore[no-untyped-call]
    return done


def _one(records: Records, number: int) -> Records:
    """A run's own records."""
    measures = {name: rows[:, number] for name, rows in records.measures.items()}
    x, calls, training = (rows[:, number] for rows in (records.x, records.calls, records.training))
    return Records(x, measures, calls, training, records.filled[number], records.status[number])


def _stack(trees: list[PyTree]) -> PyTree:
    """Equal trees as one with a leading axis; on the host, where it needs no program of its own."""
    on_host = {id(tree): jax.tree.map(np.asarray, tree) for tree in trees}
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(on_host[id(tree)] for tree in trees))


def _same(a: PyTree, b: PyTree) -> bool:
    """Whether two runs share an input: the very same arrays."""
    left, right = jax.tree.leaves(a), jax.tree.leaves(b)
    return all(x is y for x, y in zip(left, right, strict=True))
