"""The compiled part of a simulation: many rounds in one call, stopping by itself.

A program is fixed by structure alone (algorithm, objective, layout, shapes). Numbers, data, plans and seeds
are its inputs, so a second run of the same shape compiles nothing.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.stages import Wrapped

from fedlin.aggregation import Aggregator, mean
from fedlin.columns import MEASURED, Measures, unmeasured
from fedlin.core import MethodPhase, PyTree, Scalar, Structure, Vector, rebuild
from fedlin.engines.keys import draw_cohort
from fedlin.engines.opening import renews
from fedlin.engines.phase import ClientArrays, ClientProgram, Leaf
from fedlin.engines.simulation.round import Cohort, Played, play_round
from fedlin.engines.simulation.stop import DIVERGED, RUNNING, STOPPED, outcome
from fedlin.layout import BY_ROUND_AND_RUN, BY_RUN, EVERYWHERE, SHARED_OUT
from fedlin.problems.measure_model import Sums, in_closed_form, measure, survey, views
from fedlin.problems.objective import Data


class Inputs(NamedTuple):
    """What a run is made of, in numbers."""

    numbers: PyTree  # the algorithm's hyperparameters, by name
    data: Data
    noise: Data
    weights: Leaf
    optimum: PyTree  # an Optimum, or None
    tau: Leaf  # (m,), or (capacity, m) where the plan changes every round
    eta: Leaf
    totals: PyTree  # Totals; its eta is (capacity,) where the plan changes every round
    present: Leaf  # (capacity, m) or None
    seed: Leaf
    limits: PyTree  # Measures: stop when one is at its limit
    start: Leaf  # x0
    every: Leaf  # rounds from one measure to the next
    last: Leaf  # the round that is measured whatever its number


class State(NamedTuple):
    """What one round passes to the next."""

    server: PyTree
    clients: PyTree


class Records(NamedTuple):
    """What is kept of every round, rounds first; the first `filled` rows of a run count."""

    x: Leaf  # one row where models are not kept: the latest that has not diverged
    measures: Measures
    calls: Leaf  # a `wide_sum` of gradients
    training: Leaf  # the mean loss that came with them
    filled: Leaf
    status: Leaf


When = Literal["always", "seldom", "never"]  # all rounds, some and the last, or none


@dataclass(frozen=True)
class ProgramKey:
    """Everything that fixes the program; equal keys share one."""

    algorithm: Structure
    opening: bool
    client_program: ClientProgram
    survey: int | None  # clients at a time when measuring
    capacity: int
    cohort: int | None  # clients drawn a round; None: all of them, or as the schedule says
    when: When  # which rounds are measured
    # Whether a model is measured where the next round begins. A run that ends is then a round ahead of its records, but
    # where that round takes every client's gradient there, the compiler takes both in one pass over the data. A call's
    # last model is measured apart, which may differ in the last bit, and again by the next call, which is what counts:
    # how many rounds a call runs depends on measured time.
    late: bool = False
    kept: bool = True  # whether every round's model is recorded, or the latest alone
    spread: Mesh | None = None  # the devices that share the runs of a batch
    runs: frozenset[str] | None = None  # in a batch: the inputs that differ between its runs
    aggregate: Aggregator = field(default_factory=mean)  # what is made of the uploads


def _note(log: Vector, index: Scalar, value: Vector) -> Vector:
    """`log` with its row `index` set, without the check of the bounds that `.at` compiles to."""
    noted: Vector = jax.lax.dynamic_update_index_in_dim(log, value, index, 0)
    return noted


@cache
def program(key: ProgramKey) -> Wrapped:
    """The compiled function (inputs, state, status, first, count) -> (state, records).

    In a batch every input named in `key.runs`, the state and the status have a leading run axis.
    """

    def play(
        inputs: Inputs, state: State, first: Scalar, index: Scalar
    ) -> tuple[State, tuple[Vector, Scalar], Sums | None]:
        """The state after a round, its gradients and training loss, and what a survey of the model before it found."""
        seed = jax.random.key(inputs.seed)
        cohort = Cohort()
        if key.cohort is not None:
            cohort = Cohort(chosen=draw_cohort(seed, first + index, inputs.weights.size, key.cohort))
        elif inputs.present is not None:
            cohort = Cohort(present=inputs.present[index])
        clients = ClientArrays(
            jnp.arange(inputs.weights.size),
            inputs.data,
            inputs.noise,
            inputs.tau[index] if inputs.tau.ndim == 2 else inputs.tau,
            inputs.eta[index] if inputs.eta.ndim == 2 else inputs.eta,
            state.clients,
        )
        totals = inputs.totals
        also = []
        if key.late and not in_closed_form(inputs.optimum):
            client_program = key.client_program
            own_views = views(
                client_program.objective, inputs.data, inputs.optimum, state.server.x, key.survey, client_program.mesh
            )
            also = [(inputs.weights, own_views)]
        algorithm = rebuild(key.algorithm, inputs.numbers)

        def by(phases: tuple[MethodPhase, ...]) -> Played:
            return play_round(
                phases,
                key.client_program,
                state.server,
                clients,
                inputs.weights,
                totals._replace(eta=totals.eta[index]) if totals.eta.ndim else totals,
                cohort,
                seed,
                first + index,
                *also,
                aggregate=key.aggregate,
            )

        if key.opening or algorithm.renewal is None:
            played = by(algorithm.phases_in(key.opening))
        else:
            again = renews(seed, first + index, algorithm.renewal)
            played = jax.lax.cond(
                again, lambda: by(algorithm.phases_in(opening=True)), lambda: by(algorithm.phases_in(opening=False))
            )
        noted = (played.calls, played.training)
        return State(played.server, played.clients), noted, played.sums[0] if also else None

    def judge(inputs: Inputs, x: Vector, done: Scalar, surveyed: Sums | None) -> tuple[Measures, Scalar]:
        client_program, optimum = key.client_program, inputs.optimum

        def look() -> Sums:
            if surveyed is not None:
                return surveyed
            return survey(
                client_program.objective, inputs.data, inputs.weights, optimum, x, key.survey, client_program.mesh
            )

        def measured() -> Measures:
            return measure(client_program.objective, optimum, x, look)

        if key.when == "never":
            due, measures = False, unmeasured(x.dtype)
        elif key.when == "always":
            due, measures = True, measured()
        else:
            due = (done % inputs.every == 0) | (done == inputs.last)
            measures = jax.lax.cond(due, measured, lambda: unmeasured(x.dtype))
        return measures, outcome(x, inputs.start, measures, inputs.limits, due)

    if key.runs is not None:
        axes = Inputs(*(0 if name in key.runs else None for name in Inputs._fields))
        play = jax.vmap(play, in_axes=(axes, 0, None, None))
        judge = jax.vmap(judge, in_axes=(axes, 0, None, 0))

    def advance(inputs: Inputs, state: State, status: Scalar, first: Scalar, count: Scalar) -> tuple[State, Records]:
        def judged(
            records: Records, state: State, rounds: Scalar, surveyed: Sums | None = None, apart: bool = False
        ) -> Records:
            """The records with what is found after so many rounds of this call; there is nothing to find at the start.

            Measures after none of its rounds go to the last row, and can stop a run: those taken `apart`, at the end of
            the call before, stop it after its last round alone.
            """
            x = state.server.x
            measures, status = judge(inputs, x, first + rounds, surveyed)
            new = (records.status == RUNNING) & (first + rounds > 0)
            fine = (new & (status != DIVERGED))[..., None]
            if apart:
                new &= (status == DIVERGED) | (first + rounds == inputs.last)
            new &= (status == STOPPED) | (rounds > 0)
            return records._replace(
                x=records.x if key.kept else jnp.where(fine, x, records.x),
                measures=jax.tree.map(lambda log, value: _note(log, rounds - 1, value), records.measures, measures),
                status=jnp.where(new, status, records.status),
            )

        def unfinished(carry: tuple[Scalar, State, Records]) -> Scalar:
            index, _, records = carry
            return (index < count) & jnp.any(records.status == RUNNING)

        def step(carry: tuple[Scalar, State, Records]) -> tuple[Scalar, State, Records]:
            index, before, records = carry
            after, (calls, training), surveyed = play(inputs, before, first, index)
            if key.late:
                records = judged(records, before, index, surveyed)
            running = records.status == RUNNING
            if key.runs is not None:  # a run that has finished waits for the others as it is
                after = jax.tree.map(
                    lambda new, old: jnp.where(running.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                    after,
                    before,
                )
            records = records._replace(
                x=_note(records.x, index, after.server.x) if key.kept else records.x,
                calls=_note(records.calls, index, calls),
                training=_note(records.training, index, training),
                filled=jnp.where(running, index + 1, records.filled),
            )
            return index + 1, after, records if key.late else judged(records, after, index + 1)

        lead = (key.capacity, *status.shape)
        empty = jnp.zeros(lead, inputs.start.dtype)
        measured = jnp.zeros((key.capacity + key.late, *status.shape), inputs.start.dtype)
        records = Records(
            jnp.zeros((*lead, inputs.start.shape[-1]), inputs.start.dtype) if key.kept else state.server.x[None],
            {column.name: measured for column in MEASURED},
            jnp.zeros((*lead, 2), jnp.int32),
            empty,
            jnp.zeros_like(status),
            status,
        )
        index, state, records = jax.lax.while_loop(unfinished, step, (jnp.zeros((), jnp.int32), state, records))
        return state, judged(records, state, index, apart=True) if key.late else records

    if key.spread is not None:
        assert key.runs is not None
        own: PyTree = BY_RUN
        later: PyTree = BY_ROUND_AND_RUN
        inputs = Inputs(*(own if name in key.runs else EVERYWHERE for name in Inputs._fields))
        # No core waits for another: each computes its runs until the last of them is done.
        advance = jax.shard_map(
            advance,
            mesh=key.spread,
            in_specs=(inputs, own, own, EVERYWHERE, EVERYWHERE),
            out_specs=(own, Records(later, later, later, later, own, own)),
            check_vma=False,
        )
    # The state is donated, not copied: of a million clients a round may change a few.
    mesh, handed_over = key.client_program.mesh, 1
    if mesh is None:
        return jax.jit(advance, donate_argnums=handed_over)
    whole, parts = NamedSharding(mesh, EVERYWHERE), NamedSharding(mesh, SHARED_OUT)
    return jax.jit(advance, donate_argnums=handed_over, out_shardings=(State(whole, parts), whole))
