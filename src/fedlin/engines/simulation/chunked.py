"""A run in chunks of clients: data and states stay on the host, and the device holds two chunks of them at a time.

While the device works on one chunk the host reads the next, that of the next round where a round is one chunk, and
takes back the states of the one before: a round does not wait for the states of the last one to reach the host.

The host's arrays may be memory-mapped files: a round reads the rows of those who take part and no others.
"""

import time
from collections.abc import Collection
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from numpy.typing import NDArray

from fedlin.columns import Measures, unmeasured
from fedlin.core import Array, Message, Numbers, PyTree, Scalar, Structure, Vector, rebuild, structure
from fedlin.engines.keys import draw_cohort, phase_keys
from fedlin.engines.local import wide_sum
from fedlin.engines.opening import opening_rounds
from fedlin.engines.phase import (
    ClientArrays,
    ClientProgram,
    Leaf,
    State,
    Weighting,
    clients_step,
    combine,
    mean_loss,
    server_step,
    weigh,
)
from fedlin.engines.simulation.program import Records
from fedlin.engines.simulation.records import RunRecords, keeps_iterates
from fedlin.engines.simulation.run import Run
from fedlin.engines.simulation.stop import RUNNING, STOPPED, outcome
from fedlin.layout import choose_block, count_bytes, of_clients, one_pass_block
from fedlin.memory import PART, WHOLE, check_fits, device_memory
from fedlin.problems.measure_model import Optimum, Sums, measure, survey
from fedlin.problems.objective import Data, Objective
from fedlin.result import Result, Status

_outcome = jax.jit(outcome)


class Chunk(NamedTuple):
    """Some of the clients, filled up to one size with the last of them, for one program to serve all chunks."""

    numbers: NDArray[np.int32]  # who they are, in order
    weights: Array  # zero for those that fill it up
    used: int  # how many there are without those
    first: int  # the place of the first among all that take part

    def take(self, tree: PyTree) -> PyTree:
        """The rows of these clients; by a slice where they lie together, since that copies nothing."""
        rows: Any = self.numbers
        if self.used == len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            rows = slice(int(rows[0]), int(rows[-1]) + 1)
        return jax.tree.map(lambda leaf: leaf[rows], tree)


def split(numbers: Array, weights: Array, size: int) -> list[Chunk]:
    """Clients in chunks of one size."""
    chunks = []
    for first in range(0, len(numbers), size):
        part = numbers[first : first + size]
        missing = size - len(part)
        chunks.append(
            Chunk(
                np.concatenate([part, np.repeat(part[-1:], missing)]).astype(np.int32),
                np.concatenate([weights[first : first + size], np.zeros(missing)]),
                len(part),
                first,
            )
        )
    return chunks


class ComingRound(NamedTuple):
    """Who takes part in a round and how they count; where they are one chunk, that is on its way to the device."""

    number: int
    chunks: list[Chunk]
    weighting: Weighting
    placed: tuple[ClientArrays, Vector] | None


class RoundInputs(NamedTuple):
    """What every program of a round is given."""

    numbers: Numbers
    seed: Leaf
    round_index: Leaf


class Chunked:
    """One run; it goes on round by round, as `Resident` does, with every phase computed chunk by chunk."""

    def __init__(self, run: Run, layout: str, iterates: bool | None, chunk: int, metrics: Collection[str] = ()) -> None:
        problem = run.problem
        self.run = run
        self.chunk = min(chunk, run.cohort or problem.clients)
        self.survey = min(chunk, problem.clients)  # clients at a time when measuring, which asks them all
        block = choose_block(layout, of_clients(problem.data, self.chunk), self.chunk, run.tau, run.looped)
        self.client_program = ClientProgram(problem.objective, problem.sampling, block, in_step=run.in_step)
        self.layout = f"{block} of {self.chunk}"
        x = jnp.asarray(run.x0)
        self.server = run.algorithm.init_server(x)
        self.states = jax.tree.map(
            lambda leaf: np.repeat(np.asarray(leaf)[None], problem.clients, axis=0), run.algorithm.init_client(x)
        )
        first = self._measure(x) if run.every else _to_host(unmeasured(problem.dtype))
        self.logs = [RunRecords(run, keeps_iterates(iterates, run.rounds, problem.dim), first, metrics)]
        self.done = 0
        self.status = np.array([STOPPED if run.reached(first) else RUNNING], np.int32)
        self._totals = run.totals(run.eta)
        self._compiled: set[bool] = set()
        self._coming: ComingRound | None = None
        self._unsaved: tuple[Chunk, State] | None = None  # the last round's states, on their way to the host

    @property
    def running(self) -> bool:
        """Whether the run goes on."""
        return bool(self.status[0] == RUNNING)

    def advance(self, most: int) -> Records:
        """Play one round."""
        run = self.run
        coming = self._coming if self._coming and self._coming.number == self.done else self._prepare(self.done)
        opening = bool(opening_rounds(run.algorithm, run.seed, self.done, 1)[0])
        if opening not in self._compiled:  # on chunks of which nothing is kept, so that the clock sees rounds only
            self._compiled.add(opening)
            self._play(coming._replace(chunks=coming.chunks[:2]), opening, keep=False)
        began = time.perf_counter()
        self.server, calls, training = self._play(coming, opening, keep=True)
        self.done += 1
        x = np.asarray(self.server.x)
        due = run.every > 0 and (self.done % run.every == 0 or self.done == run.rounds)
        measures = self._measure(x) if due else _to_host(unmeasured(x.dtype))
        seconds = time.perf_counter() - began
        status = int(_outcome(x, run.x0, measures, run.limits, due))
        rows = jax.tree.map(lambda value: np.asarray(value)[None], measures)
        records = Records(x[None], rows, calls[None], np.asarray(training)[None], np.int32(1), np.int32(status))
        self.status[0] = self.logs[0].extend(records, seconds)
        return records

    def _prepare(self, number: int) -> ComingRound:
        """The round of this number; its draws depend on no earlier round, so that it can be made ready early."""
        who = self._who(number)
        weighting = weigh(self.run.problem.weights[who], self._totals)
        chunks = split(who, weighting.each, self.chunk)
        placed = self._load(chunks[0], number) if len(chunks) == 1 else None
        return ComingRound(number, chunks, weighting, placed)

    def _who(self, number: int) -> Array:
        """The numbers of the clients that take part in a round, in order."""
        run, clients = self.run, self.run.problem.clients
        if run.present is not None:
            return np.flatnonzero(run.present[number])
        if run.cohort is None:
            return np.arange(clients)
        return np.asarray(_drawing(clients, run.cohort)(np.uint32(run.seed), np.int32(number)))

    def _play(self, coming: ComingRound, opening: bool, keep: bool) -> tuple[State, Array, Array]:
        """The server's state after the round, the wide_sum of its gradients and the training loss.

        The clients' states change in place.
        """
        algorithm, dtype = self.run.algorithm, self.run.problem.dtype
        chunks, weighting = coming.chunks, coming.weighting
        numbers = {name: np.asarray(value, dtype) for name, value in self.run.numbers.items()}
        inputs = RoundInputs(numbers, np.uint32(self.run.seed), np.int32(self.done))
        of_all = Weighting(None, *(np.asarray(value, dtype) for value in (weighting.share, weighting.largest)))
        eta = self._totals.eta[self.done] if self._totals.eta.ndim else self._totals.eta
        server, calls = self.server, []
        loss_sums: list[PyTree] = [None] * len(chunks)  # each client's sum of losses, and of how many
        single = coming.placed is not None
        states = [self._newest_states(chunk) for chunk in chunks]
        for clients_part, server_part in _programs(
            structure(algorithm), opening, self.client_program, len(algorithm.phases_in(opening))
        ):
            mean = None
            for number, chunk in enumerate(chunks):
                clients, weights = coming.placed or self._load(chunk, self.done)
                clients = clients._replace(state=states[number])
                arguments = (inputs, server, clients, weights, np.int32(chunk.used))
                if not keep:
                    check_fits(clients_part, arguments, self.chunk)
                states[number], uploads, taken, *losses = clients_part(*arguments)
                if keep:
                    self._save_states()  # the last round's, while the device works on this one
                loss_sums[number] = _plus(loss_sums[number], losses)
                mean = _plus(mean, uploads)
                calls.append(taken)
                if number > 0:
                    states[number - 1] = jax.tree.map(np.array, states[number - 1])
            if not single:
                states[-1] = jax.tree.map(np.array, states[-1])
            server = server_part(inputs, server, mean, of_all, eta)
        if keep and single:
            jax.tree.map(lambda leaf: leaf.copy_to_host_async(), states[0])
            self._unsaved = (chunks[0], states[0]) if jax.tree.leaves(states[0]) else None
            self._coming = self._prepare(self.done + 1) if self.done + 1 < self.run.rounds else None
        elif keep:
            for chunk, new in zip(chunks, states, strict=True):
                self._write_states(chunk, new)
        training = [
            mean_loss(chunk.weights, *map(np.asarray, sums)) for chunk, sums in zip(chunks, loss_sums, strict=True)
        ]
        return server, np.sum(calls, axis=0), np.sum(training, axis=0)

    def _newest_states(self, chunk: Chunk) -> State:
        """A chunk's states: the host's, and of those that took part in the last round what is not there yet."""
        on_host: State = chunk.take(self.states)
        if self._unsaved is None:
            return on_host
        last, newest = self._unsaved
        known = last.numbers[: last.used]
        place = np.minimum(np.searchsorted(known, chunk.numbers), last.used - 1).astype(np.int32)
        merged: State = _merge(known[place] == chunk.numbers, place, on_host, newest)
        return merged

    def _save_states(self) -> None:
        """Write the last round's states to the host, if they are not there yet."""
        if self._unsaved is not None:
            self._write_states(*self._unsaved)
            self._unsaved = None

    def _write_states(self, chunk: Chunk, states: State) -> None:
        rows = chunk.numbers[: chunk.used]
        jax.tree.map(lambda old, new: old.__setitem__(rows, np.asarray(new)[: len(rows)]), self.states, states)

    def _load(self, chunk: Chunk, number: int) -> tuple[ClientArrays, Vector]:
        """A chunk's clients in a round and their weights on the device, without their states."""
        problem, dtype = self.run.problem, self.run.problem.dtype
        tau, eta = (a[number] if a.ndim == 2 else a for a in (self.run.tau, self.run.eta))
        data, noise, tau, eta = chunk.take((problem.data, problem.noise, tau, eta))
        places = chunk.first + np.arange(len(chunk.numbers), dtype=np.int32)
        clients = ClientArrays(chunk.numbers, data, noise, tau, eta.astype(dtype), None, places)
        placed: tuple[ClientArrays, Vector] = jax.device_put((clients, chunk.weights.astype(dtype)))
        return placed

    def _measure(self, x: Leaf) -> Measures:
        """The measures of a model, from one pass over all clients where they do not follow from the optimum alone."""
        problem, point = self.run.problem, jnp.asarray(x)
        optimum = problem.known_optimum

        def look() -> Sums:
            sums: Sums | None = None
            block = one_pass_block(of_clients(problem.data, self.survey), self.survey)
            for chunk in split(np.arange(problem.clients), problem.weights, self.survey):
                data, weights = jax.device_put((chunk.take(problem.data), chunk.weights.astype(problem.dtype)))
                sums = _plus(sums, _survey(problem.objective, block)(data, weights, optimum, point))
            assert sums is not None
            return sums

        return _to_host(measure(problem.objective, optimum, point, look))

    def result(self, number: int, status: Status) -> Result:
        """The run as the user gets it."""
        return self.logs[number].result(status, self._measure)

    def arrays(self) -> dict[str, Any]:
        """Everything a checkpoint needs."""
        self._save_states()
        return self.logs[0].save((self.server, self.states))

    def resume(self, arrays: dict[str, Any] | None) -> None:
        """Go on from what `arrays` returned, if there is anything."""
        if arrays is not None:
            self.done, (self.server, self.states) = self.logs[0].resume(arrays, (self.server, self.states))


def chunk_that_fits(run: Run) -> int | None:
    """Clients that visit the device at a time where the data and states of all exceed its memory; None where not.

    Two chunks are there at once, and local work needs as much again and more.
    """
    problem, memory = run.problem, device_memory()
    client_bytes = count_bytes(of_clients((problem.data, problem.noise), 1))
    client_bytes += count_bytes(jax.eval_shape(run.algorithm.init_client, problem.start))
    if client_bytes * problem.clients <= WHOLE * memory:
        return None
    models = 4 * problem.start.nbytes  # a client's own, its gradient, its upload and its step
    return max(1, min(run.cohort or problem.clients, int(PART * memory / (client_bytes + models))))


@jax.jit
def _merge(newer: Vector, place: Vector, old: State, new: State) -> State:
    """Row i of `old`, or row `place[i]` of `new` where `newer[i]`."""

    def choose(old: Leaf, new: Leaf) -> Leaf:
        return jnp.where(newer.reshape((-1,) + (1,) * (new.ndim - 1)), new[place], old)

    return jax.tree.map(choose, old, new)


def _plus(total: PyTree, more: PyTree) -> PyTree:
    return more if total is None else jax.tree.map(jnp.add, total, more)


def _to_host(measures: Measures) -> Measures:
    return {name: np.asarray(value) for name, value in measures.items()}


@cache
def _drawing(clients: int, size: int) -> Wrapped:
    return jax.jit(lambda seed, round_index: draw_cohort(jax.random.key(seed), round_index, clients, size))


@cache
def _programs(
    algorithm: Structure, opening: bool, client_program: ClientProgram, count: int
) -> tuple[tuple[Wrapped, Wrapped], ...]:
    """For each phase what a chunk of clients does, and what the server does with the mean."""

    def of_phase(number: int) -> tuple[Wrapped, Wrapped]:
        def clients_part(
            inputs: RoundInputs, server: State, clients: ClientArrays, weights: Vector, count: Scalar
        ) -> tuple[State, Message, jax.Array, Vector, jax.Array]:
            keys = phase_keys(jax.random.key(inputs.seed), inputs.round_index, number)
            phase = rebuild(algorithm, inputs.numbers).phases_in(opening)[number]
            answers = clients_step(phase, client_program, keys, server, clients)
            uploads, _ = combine(weights, answers.upload)
            real = jnp.arange(weights.size, dtype=jnp.int32) < count
            calls = wide_sum(jnp.where(real, answers.calls, 0))
            losses = jnp.full(weights.shape, jnp.nan, weights.dtype) if answers.losses is None else answers.losses
            return answers.state, uploads, calls, losses, answers.seen

        def server_part(inputs: RoundInputs, server: State, mean: Message, weighting: Weighting, eta: Scalar) -> State:
            keys = phase_keys(jax.random.key(inputs.seed), inputs.round_index, number)
            phase = rebuild(algorithm, inputs.numbers).phases_in(opening)[number]
            return server_step(phase, keys, server, mean, weighting, eta)

        return jax.jit(clients_part), jax.jit(server_part)

    return tuple(of_phase(number) for number in range(count))


@cache
def _survey(objective: Objective, block: int | None) -> Wrapped:
    def run(data: Data, weights: Vector, optimum: Optimum | None, x: Vector) -> Sums:
        return survey(objective, data, weights, optimum, x, block)

    return jax.jit(run)
