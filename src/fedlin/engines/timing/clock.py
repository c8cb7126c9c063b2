"""Simulated wall-clock time: how long a run would have taken on machines of given speeds and connections."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import fits_memory, nonnegative, one_of, positive, positive_integer, random_seed, shown
from fedlin.core import Array, Method
from fedlin.engines.messages import MessageSize
from fedlin.engines.opening import opening_rounds
from fedlin.engines.simulation.run import Participation, Run, prepare_run
from fedlin.engines.timing.gradient_counts import gradient_calls, who_answers
from fedlin.errors import ArgumentError
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.result import Result


@dataclass(frozen=True, eq=False)
class Clock:
    """What each client's machine can do; numbers for all clients, or arrays (clients,).

    The server waits for every client that answers, so a round takes the sum over its phases of the largest
    2 · latency + bytes down / down + gradients / speed + bytes up / up,
    where a message's bytes are its own and its overhead.

    Args:
        speed: Gradients a second.
        up: Bytes a second to the server.
        down: Bytes a second from the server.
        latency: Seconds a message is on its way.
        overhead: Bytes that the transport adds to each message, such as headers and encryption.

    >>> import fedlin
    >>> problem = fedlin.problems.quadratic([[[1.0]], [[2.0]]], [[1.0], [2.0]])
    >>> run = fedlin.simulate(fedlin.gradient_descent(), problem, (plan := fedlin.Plan(1, 0.5)), rounds=2)
    >>> Clock(speed=[10, 5]).time(run, fedlin.gradient_descent(), problem, plan).simulated.tolist()
    [0.0, 0.2, 0.4]
    """

    speed: Array
    up: Array
    down: Array
    latency: Array
    overhead: Array

    def __init__(
        self,
        speed: ArrayLike,
        *,
        up: ArrayLike = np.inf,
        down: ArrayLike = np.inf,
        latency: ArrayLike = 0.0,
        overhead: ArrayLike = 0.0,
    ) -> None:
        for name, value in (("speed", speed), ("up", up), ("down", down)):
            object.__setattr__(self, name, _numbers(name, value, "above 0", lambda a: a > 0))
        for name, value in (("latency", latency), ("overhead", overhead)):
            usable = _numbers(name, value, "of at least 0 and finite", lambda a: (a >= 0) & np.isfinite(a))
            object.__setattr__(self, name, usable)

    def time(
        self,
        result: Result,
        algorithm: Method,
        problem: Problem,
        plan: Plan,
        *,
        participation: Participation = 1.0,
    ) -> Result:
        """The result with `simulated` seconds after every round; the rest says what was run.

        Args:
            result: What `simulate` returned.
            algorithm: The method that was run.
            problem: The problem it was run on; its messages follow from it.
            plan: The τ_i and η_i it was run with.
            participation: As it was given to `simulate`.

        Returns:
            The same result with the column `simulated`: seconds after every round.
        """
        self.check(problem.clients)
        rounds = max(result.rounds, 1)
        run = prepare_run(
            algorithm,
            problem,
            plan,
            rounds,
            seed=result.seed,
            x0=None,
            participation=participation,
            weights=None,
            stop=None,
        )
        present, opens = who_answers(run, rounds), opening_rounds(algorithm, run.seed, 0, rounds)
        calls, seconds = np.zeros(rounds, np.int64), np.zeros(rounds)
        for at, taken, sizes in zip((opens, ~opens), gradient_calls(run, rounds), run.sizes, strict=True):
            now = present[at][:, None]  # (rounds, 1, m)
            calls[at] = np.sum(taken * now, axis=(1, 2))
            seconds[at] = np.max(self._each(taken, sizes) * now, axis=2).sum(axis=1)
        if not np.array_equal(np.diff(result.gradients), calls[: result.rounds]):
            raise ArgumentError(
                f"result is of another run: it took {result.gradients[-1]} gradients in {result.rounds} rounds, and "
                f"{algorithm.name} with this plan and participation takes {np.sum(calls[: result.rounds])}. "
                "Give what was run."
            )
        return result.with_columns(simulated=np.concatenate([[0.0], np.cumsum(seconds[: result.rounds])]))

    def alone(self, run: Run, rounds: int) -> Array:
        """Seconds each client would need for the rounds if it were the only one, (m,).

        Args:
            run: The run, with its plan and the sizes of its messages.
            rounds: How many rounds.

        Returns:
            Seconds, (m,).
        """
        parts = zip(gradient_calls(run, rounds), run.sizes, strict=True)
        return np.asarray(sum(self._each(calls, sizes).sum(axis=(0, 1)) for calls, sizes in parts))

    def _each(self, calls: Array, sizes: tuple[MessageSize, ...]) -> Array:
        """Seconds of every client in every phase, (rounds, phases, m), from its gradients and its messages."""
        down, up = (np.array([[getattr(size, way).total] for size in sizes]) for way in ("down", "up"))
        sending = (down + self.overhead) / self.down + (up + self.overhead) / self.up
        return np.asarray(2 * self.latency + sending + calls / self.speed)

    def check(self, clients: int) -> None:
        """Refuse a number of clients the arrays do not have.

        Args:
            clients: How many clients there are.
        """
        for name in ("speed", "up", "down", "latency", "overhead"):
            shape = getattr(self, name).shape
            if shape not in ((), (clients,)):
                raise ArgumentError(
                    f"{name} has shape {shape} for {clients} clients: give one number, or one for each client."
                )


def draw_rates(
    clients: int,
    rate: float,
    *,
    law: Literal["exponential", "lognormal"] = "exponential",
    spread: float = 1.0,
    seed: int = 0,
) -> Array:
    """Speeds or bandwidths at random: seconds a unit exponential with mean 1/rate, or rate · exp(spread · N(0, 1)).

    Args:
        clients: How many clients.
        rate: The rate of a usual client, in units a second.
        law: "exponential" or "lognormal".
        spread: How much rates differ under "lognormal".
        seed: What decides every draw.

    Returns:
        A rate for each client, (clients,).

    >>> draw_rates(3, 100.0, seed=1).round().tolist()
    [93.0, 324.0, 19.0]
    """
    clients, rate = positive_integer("clients", clients), positive("rate", rate)
    fits_memory(f"rates of {clients} clients", 2 * clients)
    source = np.random.default_rng(random_seed(seed))
    if one_of("law", law, ("exponential", "lognormal")) == "exponential":
        return np.asarray(rate / source.exponential(size=clients))
    return np.asarray(rate * np.exp(nonnegative("spread", spread) * source.standard_normal(clients)))


def _numbers(name: str, value: ArrayLike, meaning: str, allowed: Callable[[Array], Array]) -> Array:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError) as cause:
        raise ArgumentError(f"{name} = {shown(value)} is not allowed: give numbers {meaning}.") from cause
    if array.ndim > 1 or array.size == 0 or not np.all(allowed(array)):
        raise ArgumentError(
            f"{name} = {shown(value)} is not allowed: give one number {meaning}, or one for each client."
        )
    return array
