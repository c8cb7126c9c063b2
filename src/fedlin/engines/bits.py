"""What a run sends, counted in every way at once, over the messages it really makes."""

from collections.abc import Callable, Hashable, Iterator
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from numpy.typing import ArrayLike, NDArray

from fedlin.checks import one_of
from fedlin.coding import ArithmeticEncoder
from fedlin.core import Message, Method, Numbers, PyTree, Structure, rebuild, structure
from fedlin.engines.keys import draw_cohort, phase_keys
from fedlin.engines.opening import opening_rounds
from fedlin.engines.phase import (
    ClientArrays,
    ClientProgram,
    Leaf,
    State,
    Totals,
    client_step,
    combine,
    server_step,
    weigh,
)
from fedlin.engines.simulation.run import prepare_run
from fedlin.errors import ArgumentError
from fedlin.payloads import decode, is_payload, paper_bits, size, symbols
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from fedlin.result import Result

Array = NDArray[np.float64]
WAYS = ("wire", "floats", "coded")
DIRECTIONS = ("up", "down", "both")


class BitCounts(NamedTuple):
    """Bits so far, one row for every round from 0 on, by the ways to count them (columns, as `WAYS` has them).

    Attributes:
        up: What one client has sent, the mean over the clients.
        down: What one client has been sent.
        clients: m.
        opens: Which of the first so many rounds run the phases of the first one; a method's coin may draw others.

    >>> counts = BitCounts(np.array([[0, 0, 0], [64, 32, 40]]), np.zeros((2, 3)), clients=10)
    >>> counts.bits("floats", "up", in_all=True).tolist()
    [0.0, 320.0]
    """

    up: Array
    down: Array
    clients: int
    opens: Callable[[int], NDArray[np.bool_]] = lambda rounds: np.arange(rounds) == 0

    def bits(self, way: str = "wire", direction: str = "both", in_all: bool = False) -> Array:
        """Bits so far after 0, 1, ... rounds.

        Args:
            way: "wire" for the bytes that travel; "floats" for numbers of 32 bits and ⌈log₂ d⌉ bits an index, as most
                papers count; "coded" for what an adaptive arithmetic coder makes of codes and an enumerative one of
                indices, numbers as they are.
            direction: "up", "down" or "both".
            in_all: Whether all clients count together instead of one.

        Returns:
            The bits.
        """
        column = WAYS.index(one_of("way", way, WAYS))
        one_of("direction", direction, DIRECTIONS)
        parts = {"up": self.up, "down": self.down, "both": self.up + self.down}
        return parts[direction][:, column] * (float(self.clients) if in_all else 1.0)

    def on(self, result: Result, way: str = "wire", direction: str = "both", in_all: bool = False) -> Result:
        """The result of the run with these bits as its column `bits`, for its plots and for `fedlin.compare`.

        Args:
            result: Of the run whose first rounds were counted, two or more; each round after them counts as much as
                the last of them, of those sent in full or of the others as it is itself.
            way: As in `bits`.
            direction: As in `bits`.
            in_all: As in `bits`.

        Returns:
            The result with one more column.

        >>> import fedlin
        >>> problem = fedlin.problems.least_squares(clients=2, dim=20, samples=30)
        >>> method, plan = fedlin.ef21(fedlin.top_k(2)), fedlin.Plan(1, 1e-3)
        >>> result = fedlin.simulate(method, problem, plan, 4)
        >>> count_bits(method, problem, plan, 2).on(result, "floats", "up").bits.tolist()
        [0.0, 640.0, 714.0, 788.0, 862.0]
        """
        counted = self.bits(way, direction, in_all)
        if len(counted) < min(3, result.rounds + 1):
            raise ArgumentError(
                f"{len(counted) - 1} rounds were counted of a run of {result.rounds}: count two or more, since the "
                "first may differ from the others."
            )
        each, opens = np.diff(counted), self.opens(result.rounds)
        counted_kinds, kinds = opens[: len(each)], opens[len(each) :]
        if not np.all(np.isin(kinds, counted_kinds)):
            raise ArgumentError(
                f"{len(each)} rounds were counted of a run of {result.rounds}, and by a coin all of these were sent in "
                "full, as some of the others are not: count more."
            )
        last = {kind: each[np.flatnonzero(counted_kinds == kind)[-1]] for kind in np.unique(kinds)}
        more = np.cumsum([last[kind] for kind in kinds])
        return result.with_columns(bits=np.concatenate([counted, counted[-1] + more])[: result.rounds + 1])


def count_bits(
    algorithm: Method,
    problem: Problem,
    plan: Plan,
    rounds: int,
    *,
    seed: int = 0,
    x0: ArrayLike | None = None,
) -> BitCounts:
    """Take the rounds of `simulate`, look at every message, and count its bits in every way.

    Everyone takes part, or as many as the method is made for; a client's bits are then the mean over all of them.

    Args:
        algorithm: The method.
        problem: The problem.
        plan: τ_i and η_i.
        rounds: How many rounds.
        seed: That of the run.
        x0: The starting point; the problem's own unless given.

    Returns:
        The bits so far, up and down, in every way to count them.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=2, dim=20, samples=30)
    >>> counts = count_bits(fedlin.ef21(fedlin.top_k(2)), problem, fedlin.Plan(1, 1e-3), 3)
    >>> counts.bits("floats", "up").tolist()  # the first round sends 20 values, every later one 2 with their places
    [0.0, 640.0, 714.0, 788.0]
    """
    coders: dict[Hashable, ArithmeticEncoder] = {}
    up, down = np.zeros((2, rounds + 1, len(WAYS)))
    for number, (place, who, broadcast, uploads) in _messages(algorithm, problem, plan, rounds, seed, x0):
        down[number + 1] += _count(broadcast, coders, (place, "down")) * (len(who) / problem.clients)
        each = [
            _count(jax.tree.map(lambda leaf, row=row: leaf[row], uploads), coders, (place, i))
            for row, i in enumerate(who)
        ]
        up[number + 1] += np.sum(each, axis=0) / problem.clients
    opens = partial(opening_rounds, algorithm, seed, 0)
    return BitCounts(np.cumsum(up, axis=0), np.cumsum(down, axis=0), problem.clients, opens)


def _count(message: Message, coders: dict[Hashable, ArithmeticEncoder], stream: Hashable) -> Array:
    """Bits of one message; codes go to the coder of their stream, which has learned from those before."""
    coded = 0.0
    for place, node in enumerate(jax.tree.leaves(message, is_leaf=is_payload)):
        codes, alphabet, other = symbols(node)
        coded += other
        if codes.size:
            coder = coders.setdefault((stream, place), ArithmeticEncoder(alphabet))
            before = coder.bits
            coder.write(codes.tolist())
            coded += coder.bits - before
    return np.array([8.0 * size(message).total, paper_bits(message), coded])


def _messages(
    algorithm: Method, problem: Problem, plan: Plan, rounds: int, seed: int, x0: ArrayLike | None
) -> Iterator[tuple[int, tuple[int, Array, Message, Message]]]:
    """(round, (phase, who takes part, broadcast, stacked uploads)), on the host and as they are sent."""
    share = 1.0 if algorithm.cohort is None else algorithm.cohort / problem.clients
    options = {"seed": seed, "x0": x0, "participation": share, "weights": None, "stop": None}
    run = prepare_run(algorithm, problem, plan, rounds, **options)  # type: ignore[arg-type]
    program = ClientProgram(problem.objective, problem.sampling)
    openings = opening_rounds(algorithm, seed, 0, rounds)
    with precision(problem.dtype):
        server, states = run.state()
        for number in range(rounds):
            inputs = run.inputs(number, 1)
            tau, eta = (rows[0] if rows.ndim == 2 else rows for rows in (inputs.tau, inputs.eta))
            mean_eta = inputs.totals.eta[0] if inputs.totals.eta.ndim else inputs.totals.eta
            totals = inputs.totals._replace(eta=mean_eta)
            opening = bool(openings[number])
            who = np.arange(problem.clients)
            if run.cohort is not None:
                who = np.asarray(draw_cohort(jax.random.key(seed), jnp.int32(number), problem.clients, run.cohort))
            own = (inputs.data, inputs.noise, tau, eta, inputs.weights, states)
            data, noise, tau, eta, weights, mine = jax.tree.map(lambda leaf, who=who: leaf[who], own)
            for place in range(len(algorithm.phases_in(opening))):
                clients = ClientArrays(who, data, noise, tau, eta, mine, np.arange(len(who)))
                play = _phase(structure(algorithm), opening, place, program)
                server, mine, broadcast, uploads = play(
                    inputs.numbers, server, clients, weights, totals, np.uint32(seed), np.int32(number)
                )
                yield number, (place, who, *jax.tree.map(np.asarray, (broadcast, uploads)))
            states = jax.tree.map(lambda old, new, who=who: old.at[who].set(new), states, mine)


@cache
def _phase(method: Structure, opening: bool, place: int, program: ClientProgram) -> Wrapped:
    def play(
        numbers: Numbers, server: State, clients: ClientArrays, weights: Leaf, totals: Totals, seed: Leaf, number: Leaf
    ) -> PyTree:
        phase = rebuild(method, numbers).phases_in(opening)[place]
        keys = phase_keys(jax.random.key(seed), number, place)
        broadcast = phase.down(server)
        answers = jax.vmap(lambda client: client_step(phase, program, keys, broadcast, client))(clients)
        weighting = weigh(jnp.asarray(weights), totals)
        decoded = jax.vmap(decode, axis_size=weights.shape[0])(answers.upload)  # an upload may be empty
        mean, _ = combine(weighting.each, decoded)
        server = server_step(phase, keys, server, mean, weighting, totals.eta)
        return server, answers.state, broadcast, answers.upload

    return jax.jit(play)
