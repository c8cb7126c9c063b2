"""A run in chunks of clients: data and states stay on the host, and the device holds two chunks of them at a time.

The host's arrays may be memory-mapped files: a round reads the rows of those who take part and no others.
"""

import time
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedlin.core import Central
from fedlin.engines.keys import draw_cohort, phase_keys
from fedlin.engines.simulation.program import RUNNING, STOPPED, Records, Structure, outcome, rebuild, structure
from fedlin.engines.simulation.records import RunRecords, keeps_iterates
from fedlin.engines.simulation.round import ClientProgram, Clients, answer
from fedlin.engines.simulation.run import Run
from fedlin.engines.simulation.wide_sum import wide_sum
from fedlin.layout import choose_block, of_clients, one_pass_block
from fedlin.problems.objective import Objective
from fedlin.problems.problem import Measures, measure, survey, unmeasured
from fedlin.result import Result, Status

Array = NDArray[Any]
_outcome = jax.jit(outcome)


class Chunked:
    """One run; it goes on round by round, as `Batch` does, with every phase played chunk by chunk."""

    def __init__(self, run: Run, layout: str, iterates: bool | None, chunk: int) -> None:
        problem = run.problem
        self.run = run
        self.chunk = min(chunk, run.cohort or problem.clients)
        self.survey = min(chunk, problem.clients)  # clients at a time when measuring, which asks them all
        block = choose_block(layout, of_clients(problem.data, self.chunk), self.chunk, run.tau, run.looped)
        self.client_program = ClientProgram(problem.objective, problem.sampling, block)
        self.layout = f"{block} of {self.chunk}"
        x = jnp.asarray(run.x0)
        self.server = run.algorithm.init_server(x)
        self.states = jax.tree.map(
            lambda leaf: np.repeat(np.asarray(leaf)[None], problem.clients, axis=0), run.algorithm.init_client(x)
        )
        found = self._measure(x)
        self.logs = [RunRecords(run, keeps_iterates(iterates, run.rounds, problem.dim), found)]
        self.done = 0
        self.status = np.array([STOPPED if run.reached(found) else RUNNING], np.int32)
        self._totals = run.totals(run.eta)
        self._compiled: set[bool] = set()

    @property
    def running(self) -> bool:
        """Whether the run goes on."""
        return bool(self.status[0] == RUNNING)

    def advance(self, most: int) -> Records:
        """Play one round."""
        parts = _split(self._who(), self.chunk)
        opening = self.done == 0 and self.run.algorithm.opening is not None
        if opening not in self._compiled:  # on chunks of which nothing is kept, so that the clock sees rounds only
            self._compiled.add(opening)
            self._play(parts[:2], opening, keep=False)
        began = time.perf_counter()
        self.server, calls = self._play(parts, opening, keep=True)
        self.done += 1
        x = np.asarray(self.server.x)
        due = self.done % self.run.every == 0 or self.done == self.run.rounds
        found = self._measure(x) if due else _home(unmeasured(x.dtype))
        seconds = time.perf_counter() - began
        status = int(_outcome(x, self.run.x0, found, self.run.limits, due))
        rows = jax.tree.map(lambda value: np.asarray(value)[None], found)
        records = Records(x[None], rows, calls[None], np.int32(1), np.int32(status))
        self.status[0] = self.logs[0].extend(records, seconds)
        return records

    def _who(self) -> Array:
        """The numbers of the clients that take part in this round, in order."""
        run, clients = self.run, self.run.problem.clients
        if run.present is not None:
            return np.flatnonzero(run.present[self.done])
        if run.cohort is None:
            return np.arange(clients)
        return np.asarray(_drawing(clients, run.cohort)(np.uint32(run.seed), np.int32(self.done)))

    def _play(self, parts: list[Array], opening: bool, keep: bool) -> tuple[Any, Array]:
        """The server's state after the round and the wide_sum of its gradients; the clients' states change in place."""
        run, dtype = self.run, self.run.problem.dtype
        weights, totals = run.problem.weights, self._totals
        # A round's is above 0, that of the chunks it is compiled on may not be.
        answering = sum(float(weights[part].sum()) for part in parts) or 1.0
        largest = max(float(weights[part].max()) for part in parts) / answering
        eta = totals.eta[self.done] if totals.eta.ndim else totals.eta
        central = (np.asarray(answering, dtype) / totals.weight, eta, np.asarray(largest, dtype))
        now = (
            {name: np.asarray(value, dtype) for name, value in run.numbers.items()},
            np.uint32(run.seed),
            np.int32(self.done),
        )
        server, calls = self.server, []
        states = [_take(self.states, part, self.chunk) for part in parts]
        held = self._load(parts[0], answering) if len(parts) == 1 else None
        algorithm = run.algorithm
        for work, close in _programs(
            structure(algorithm), opening, self.client_program, len(algorithm.phases_in(opening))
        ):
            mean, before = None, None
            for number, part in enumerate(parts):
                # The device works on one chunk while the host reads the next and takes back the one before.
                clients = (held or self._load(part, answering))._replace(state=states[number])
                states[number], total, taken = work(now, server, clients, np.int32(len(part)))
                mean = _plus(mean, total)
                calls.append(taken)
                if before is not None:
                    states[before] = jax.tree.map(np.array, states[before])
                before = number
            states[-1] = jax.tree.map(np.array, states[-1])
            server = close(now, server, mean, *central)
        if keep:
            for part, new in zip(parts, states, strict=True):
                jax.tree.map(lambda old, new, part=part: old.__setitem__(part, new[: len(part)]), self.states, new)
        return server, np.sum(calls, axis=0)

    def _load(self, part: Array, answering: float) -> Clients:
        """A chunk's clients on the device, without their states."""
        problem, rows, dtype = self.run.problem, _rows(part, self.chunk), self.run.problem.dtype
        tau, eta = (a[self.done] if a.ndim == 2 else a for a in (self.run.tau, self.run.eta))
        data, noise = _take((problem.data, problem.noise), part, self.chunk)
        index = part if isinstance(rows, slice) else rows
        weight = _weigh(problem.weights, part, self.chunk) / answering
        clients = Clients(
            index.astype(np.int32), data, noise, weight.astype(dtype), tau[rows], eta[rows].astype(dtype), None
        )
        placed: Clients = jax.device_put(clients)
        return placed

    def _measure(self, x: Any) -> Measures:
        """The measures of a model, from one pass over all clients where they do not follow from the optimum alone."""
        problem, point = self.run.problem, jnp.asarray(x)
        optimum = problem.known_optimum

        def look() -> Any:
            total = None
            block = one_pass_block(of_clients(problem.data, self.survey), self.survey)
            for part in _split(np.arange(problem.clients), self.survey):
                weight = _weigh(problem.weights, part, self.survey).astype(problem.dtype)
                data = jax.device_put(_take(problem.data, part, self.survey))
                total = _plus(total, _survey(problem.objective, block)(data, weight, optimum, point))
            return total

        return _home(measure(problem.objective, optimum, point, look))

    def result(self, number: int, status: Status) -> Result:
        """The run as the user gets it."""
        return self.logs[number].result(status, self._measure)

    def arrays(self) -> dict[str, Any]:
        """Everything a checkpoint needs."""
        return self.logs[0].save((self.server, self.states))

    def resume(self, arrays: dict[str, Any] | None) -> None:
        """Go on from what `arrays` returned, if there is anything."""
        if arrays is not None:
            self.done, (self.server, self.states) = self.logs[0].resume(arrays, (self.server, self.states))


def _split(who: Array, size: int) -> list[Array]:
    return [who[first : first + size] for first in range(0, len(who), size)]


def _rows(part: Array, size: int) -> Any:
    """How to take a chunk from an array: by a slice where that is possible, since it copies nothing.

    A chunk that is short is filled up to `size` with its last client, for one program to serve all chunks.
    """
    if len(part) == size and part[-1] - part[0] == size - 1:
        return slice(int(part[0]), int(part[-1]) + 1)
    return np.concatenate([part, np.repeat(part[-1:], size - len(part))])


def _take(tree: Any, part: Array, size: int) -> Any:
    rows = _rows(part, size)
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _weigh(weights: Array, part: Array, size: int) -> Array:
    """The weights of a chunk's clients; those that fill it up have none."""
    return np.concatenate([weights[part], np.zeros(size - len(part))])


def _plus(total: Any, more: Any) -> Any:
    return more if total is None else jax.tree.map(jnp.add, total, more)


def _home(found: Measures) -> Measures:
    return Measures(*map(np.asarray, found))


@cache
def _drawing(clients: int, size: int) -> Any:
    return jax.jit(lambda seed, round_index: draw_cohort(jax.random.key(seed), round_index, clients, size))


@cache
def _programs(algorithm: Structure, opening: bool, client_program: ClientProgram, count: int) -> Any:
    """For each phase what a chunk of clients does, and what the server does with the mean."""

    def of_phase(number: int) -> tuple[Any, Any]:
        def work(now: Any, server: Any, clients: Clients, filled: Any) -> Any:
            numbers, seed, round_index = now
            keys = phase_keys(jax.random.key(seed), round_index, number)
            phase = rebuild(algorithm, numbers).phases_in(opening)[number]
            states, (total,), counts = answer(phase, keys, client_program, server, clients)
            return states, total, wide_sum(jnp.where(jnp.arange(counts.size, dtype=jnp.int32) < filled, counts, 0))

        def close(now: Any, server: Any, mean: Any, share: Any, eta: Any, largest: Any) -> Any:
            numbers, seed, round_index = now
            keys = phase_keys(jax.random.key(seed), round_index, number)
            central = Central(share, keys.server, keys.shared, eta, largest)
            return rebuild(algorithm, numbers).phases_in(opening)[number].server(server, mean, central)

        return jax.jit(work), jax.jit(close)

    return tuple(of_phase(number) for number in range(count))


@cache
def _survey(objective: Objective, block: int | None) -> Any:
    def run(data: Any, weights: Any, optimum: Any, x: Any) -> Any:
        return survey(objective, data, weights, optimum, x, block)

    return jax.jit(run)
