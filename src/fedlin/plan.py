"""Plans: the numbers of local steps τ_i and the step sizes η_i, fixed or changing every round."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.checks import finite, fits_memory, instance_of, positive, positive_integer, random_seed
from fedlin.core import Array
from fedlin.errors import PlanError
from fedlin.problems.problem import Problem


@dataclass(frozen=True, eq=False)
class Plan:
    """Every client's number of local steps and step size, fixed or changing every round.

    Args:
        tau: τ_i, whole numbers of at least 1: one for all, an array (clients,), or an array (rounds, clients).
        eta: η_i, above 0, in the same forms.

    >>> Plan(tau=[2, 5], eta=[0.1, 0.04])
    Plan(tau=[2 5], eta=[0.1  0.04])
    """

    tau: NDArray[np.int32]  # τ_i
    eta: NDArray[np.float64]  # η_i

    def __init__(self, tau: ArrayLike, eta: ArrayLike) -> None:
        object.__setattr__(self, "tau", _steps(tau))
        object.__setattr__(self, "eta", _sizes(eta))

    @classmethod
    def scaled(cls, tau: ArrayLike, eta_bar: float) -> "Plan":
        """η_i = η̄/τ_i: the same progress a round for every client, whatever its number of steps.

        Args:
            tau: τ_i, as for `Plan`.
            eta_bar: η̄, above 0.

        Returns:
            The plan.

        >>> Plan.scaled([1, 4], 0.2).eta.tolist()
        [0.2, 0.05]
        """
        steps = _steps(tau)
        return cls(steps, positive("eta_bar", eta_bar) / steps)

    def __repr__(self) -> str:
        def show(values: Array) -> str:
            return np.array2string(values, precision=3, threshold=6)

        return f"Plan(tau={show(self.tau)}, eta={show(self.eta)})"

    @property
    def rounds(self) -> int | None:
        """How many rounds a changing plan covers; None if it is the same in every round."""
        varying = [a.shape[0] for a in (self.tau, self.eta) if a.ndim == 2]
        return min(varying) if varying else None

    def rows(self, clients: int, rounds: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """τ and η for `clients` clients over `rounds` rounds: (m,) if fixed, (rounds, m) if changing.

        Args:
            clients: m, the number of clients.
            rounds: How many rounds the run has.

        Returns:
            τ and η, each (m,) if both are fixed and (rounds, m) if one changes.
        """
        for name, array in (("tau", self.tau), ("eta", self.eta)):
            if array.ndim > 0 and array.shape[-1] != clients:
                raise PlanError(
                    f"{name} has {array.shape[-1]} entries for {clients} clients: give one number, an array "
                    f"of {clients}, or an array (rounds, {clients})."
                )
            if array.ndim == 2 and array.shape[0] < rounds:
                raise PlanError(
                    f"{name} covers {array.shape[0]} rounds and the run has {rounds}: give at least as many rows."
                )
        shape = (rounds, clients) if self.rounds is not None else (clients,)
        cut = [a[:rounds] if a.ndim == 2 else a for a in (self.tau, self.eta)]
        return np.broadcast_to(cut[0], shape), np.broadcast_to(cut[1], shape)


def draw_steps(clients: int, low: int, high: int, *, seed: int = 0, rounds: int | None = None) -> NDArray[np.int32]:
    """τ_i uniform on {low, ..., high}, once or anew in every round.

    Args:
        clients: How many clients there are.
        low: The smallest number of steps, at least 1.
        high: The largest.
        seed: What decides the draw.
        rounds: How many rounds to draw for; None draws once for all of them.

    Returns:
        Numbers of steps, (clients,) or (rounds, clients).

    >>> draw_steps(3, 2, 100, seed=1).tolist()
    [48, 52, 76]
    """
    clients, low, high = (positive_integer(*pair) for pair in (("clients", clients), ("low", low), ("high", high)))
    if high < low:
        raise PlanError(f"high = {high} is below low = {low}: give low ≤ high.")
    shape = (clients,) if rounds is None else (positive_integer("rounds", rounds), clients)
    fits_memory(f"τ of {clients} clients", 4 * int(np.prod(shape, dtype=object)))
    return _steps(np.random.default_rng(random_seed(seed)).integers(low, high + 1, shape))


def epochs(problem: Problem, number: float) -> NDArray[np.int32]:
    """τ_i = ⌈number · n_i / batch⌉: mini-batches that draw as many rows as `number` passes over client i's own.

    Without replacement a pass is ⌈n_i / batch⌉ steps, or ⌊n_i / batch⌋ where its last rows are dropped.

    Args:
        problem: A problem with mini-batches.
        number: How many passes, above 0.

    Returns:
        The number of steps of every client.

    >>> from fedlin.problems import least_squares, minibatch
    >>> epochs(minibatch(least_squares(clients=2, dim=3, samples=50), 8), 1.5).tolist()
    [10, 10]
    """
    instance_of("problem", problem, Problem, "a fedlin Problem")
    passes = positive("number", number)
    sampling = problem.sampling
    if sampling is None or sampling.batch is None:
        raise PlanError(
            f"{problem!r} takes no mini-batches, so an epoch is no number of steps: "
            "give fedlin.problems.minibatch(problem, size), or count steps."
        )
    in_a_pass = problem.row_counts / sampling.batch
    if sampling.last is not None:  # batches that are the parts of a pass
        in_a_pass = np.floor(in_a_pass) if sampling.last == "drop" else np.ceil(in_a_pass)
    steps = passes * in_a_pass
    # 0.1 · 30 is three steps, though floats make it a little more.
    return np.maximum(1, np.ceil(np.round(steps, 9))).astype(np.int32)


def _steps(tau: ArrayLike) -> NDArray[np.int32]:
    array = _shaped("tau", finite("tau", tau, PlanError))
    if np.any(array < 1) or np.any(array != np.round(array)):
        bad = array[(array < 1) | (array != np.round(array))][0]
        raise PlanError(f"tau holds {bad:g}: every client needs a whole number of local steps of at least 1.")
    if np.any(array > np.iinfo(np.int32).max):
        raise PlanError(f"tau holds {array.max():g}: at most {np.iinfo(np.int32).max} local steps can be counted.")
    return array.astype(np.int32)


def _sizes(eta: ArrayLike) -> NDArray[np.float64]:
    array = _shaped("eta", finite("eta", eta, PlanError))
    if np.any(array <= 0):
        raise PlanError(f"eta holds {array[array <= 0][0]:g}: every step size must be above 0.")
    return array.astype(np.float64)


def _shaped(name: str, array: Array) -> Array:
    if array.ndim > 2 or array.size == 0:
        raise PlanError(
            f"{name} has shape {array.shape}: give one number, an array (clients,) or an array (rounds, clients)."
        )
    return array
