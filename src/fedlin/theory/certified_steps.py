"""Steps for FedLin that are proved safe and many times larger than those of its theorems.

With η_i = η̄/τ_i a round shrinks ‖x̄ - x*‖ by R = Σ w_i R_i, R_i = 1 - (1 - ε)(1 - (1 - η_iμ)^τ_i), where Σ w_i s_i ≥ 0.
The table says for which κ and η̄ this holds, with the loss ε and the surplus s_i of a client with τ_i steps. It was
computed and proved by `fedlin.theory.exact.build_table`; `fedlin.theory.exact.client_bound` says why it means that.
Between the two ends of a range of κ, R_i is interpolated linearly in 1/κ, which is part of the proof.

Of quadratics more is known than κ: what a round does on them is computed, and of all steps that are proved for κ and
the τ_i the one that is fastest on these clients is taken.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.checks import real
from fedlin.errors import PlanError, UnknownError
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic
from fedlin.theory.quadratic_round import QuadraticRound, full_drop

Array = NDArray[np.float64]
TABLE = "certified_steps.json"
# Numbers of local steps that share a surplus, by the last of each.
LAST_STEPS = (1, 2, 3, 4, 6, 9, 16, 40, 100)
_ROUNDING = 1e-12
_MARGIN = 0.02  # of a round's drop on given quadratics, left to the rounding of whoever runs it
_MOST_WORK = 3e9  # multiplications for a step size, above which quadratics are taken as any other functions


@dataclass(frozen=True)
class CertifiedStep:
    """A row of the table: a step that is proved for a range of κ."""

    kappa: tuple[float, float]  # from, to
    eta_bar: float  # η̄L
    loss: float  # ε
    surplus: tuple[float, ...]  # s, for each of LAST_STEPS; -inf where nothing was proved

    def factors(self, kappa: float, tau: NDArray[np.integer]) -> Array:
        """R_i for each number of local steps."""
        low, high = 1 / self.kappa[1], 1 / self.kappa[0]
        part = (1 / kappa - low) / (high - low)
        ends = [1 - (1 - self.loss) * full_drop(self.eta_bar * mu / tau, tau) for mu in (low, high)]
        return np.asarray((1 - part) * ends[0] + part * ends[1])

    def spare(self, tau: NDArray[np.integer]) -> Array:
        """s_i for each number of local steps."""
        known = np.array([*self.surplus, -np.inf])
        return np.asarray(known[np.searchsorted(LAST_STEPS, tau)])

    def serves(self, tau: NDArray[np.integer], share: Array) -> bool:
        """Whether Σ w_i s_i ≥ 0, beyond what rounding could make of it."""
        spare = self.spare(tau)
        return bool(np.all(spare >= 0) or share @ spare >= _ROUNDING)


class Chosen(NamedTuple):
    """What is certified of a round: η̄L, and the factor of ‖x - x*‖²."""

    eta_bar: float
    factor: float


def certified(problem: Problem | float, tau: ArrayLike) -> Plan:
    """The plan for FedLin with the fastest certified rate: the same η̄ for all, η_i = η̄/τ_i.

    Any τ_i are allowed. Up to κ = 10⁶ and τ_i = 100 the step is the table's; beyond, it is η̄ = 3/(4L), which is proved
    for all (see "How fast can FedLin be?" in the docs).
    Of several steps that are proved, the one is taken with the smallest factor: on these very clients where they are
    quadratics, otherwise over all functions of the same κ.

    Args:
        problem: the problem, or its condition number κ; then L is 1 and all clients weigh the same.
        tau: τ_i: a number, an array (clients,), or an array (rounds, clients) that changes every round.

    Returns:
        The plan. `bounds.certified` is the curve that it is certain to stay below.

    >>> certified(10.0, [5, 20])
    Plan(tau=[ 5 20], eta=[1.   0.25])
    """
    known = _read(problem)
    steps = _local_steps(tau, known.weights)
    eta_bar = np.array([step.eta_bar for step in known.choose(steps)]) / known.smoothness
    return Plan.scaled(steps, float(eta_bar[0])) if steps.ndim < 2 else Plan(steps, eta_bar[:, None] / steps)


def certified_factors(problem: Problem | float, tau: ArrayLike, rounds: int) -> Array:
    """By how much each of the rounds is certain to shrink ‖x - x*‖² at the steps of `certified`.

    Args:
        problem: the problem, or its condition number κ.
        tau: τ_i, as `certified` takes it.
        rounds: how many rounds.

    Returns:
        The factors, one a round.

    >>> certified_factors(10.0, 5, 2).round(3).tolist()
    [0.361, 0.361]
    """
    known = _read(problem)
    steps = _local_steps(tau, known.weights)
    if steps.ndim == 2 and len(steps) < rounds:
        raise PlanError(f"tau has {len(steps)} rows for {rounds} rounds: give one row a round.")
    factors = [step.factor for step in known.choose(steps[:rounds] if steps.ndim == 2 else steps)]
    return np.array(factors) if steps.ndim == 2 else np.full(rounds, factors[0])


def choose(kappa: float, tau: NDArray[np.integer], weights: Array | None = None) -> Chosen:
    """The certified step with the smallest factor for clients that take so many local steps."""
    return fastest(proved_steps(kappa, tau, weights))


def fastest(steps: Sequence[Chosen]) -> Chosen:
    """The step with the smallest factor."""
    return min(steps, key=lambda step: step.factor)


def proved_steps(kappa: float, tau: NDArray[np.integer], weights: Array | None = None) -> list[Chosen]:
    """All steps that are certified for clients that take so many local steps."""
    steps = np.atleast_1d(tau)
    share = np.full(len(steps), 1 / len(steps)) if weights is None or steps.size == 1 else weights
    # What is proved by hand for any κ and any τ_i.
    choices = [Chosen(0.75, 1 - 0.75 / kappa * (1 - 0.75 / kappa))]
    if np.all(steps == 1):  # gradient descent
        choices.append(Chosen(2 / (1 + 1 / kappa), ((kappa - 1) / (kappa + 1)) ** 2))
    covered = max(kappa, table()[0].kappa[0])  # functions of a smaller κ have this one too
    return choices + [
        Chosen(row.eta_bar, float(share @ row.factors(covered, steps)) ** 2)
        for row in table()
        if row.kappa[0] <= covered <= row.kappa[1] and row.serves(steps, share)
    ]


@cache
def table() -> tuple[CertifiedStep, ...]:
    """The rows, in the order of κ and of η̄."""
    return tuple(
        CertifiedStep(
            (float(row["kappa"][0]), float(row["kappa"][1])),
            float(row["eta_bar"]),
            float(row["loss"]),
            tuple(-np.inf if value is None else float(value) for value in row["surplus"]),
        )
        for row in stored_rows()
    )


def stored_rows() -> list[dict[str, Any]]:
    """The rows as they are stored: numbers are decimals in strings, so that as fractions they mean the same."""
    text = resources.files("fedlin.theory").joinpath(TABLE).read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["steps"]
    return rows


def _local_steps(tau: ArrayLike, weights: Array | None) -> NDArray[np.integer]:
    """τ_i, of as many clients as have weights."""
    steps = Plan(tau, 1.0).tau
    if weights is not None and steps.ndim and steps.shape[-1] not in (1, len(weights)):
        raise PlanError(
            f"tau has numbers for {steps.shape[-1]} clients, and the problem has {len(weights)}: give one for "
            "all clients, or one for each."
        )
    return steps


class _Known(NamedTuple):
    """What steps are chosen by."""

    kappa: float  # κ
    smoothness: float  # L
    weights: Array | None = None
    problem: Problem | None = None

    def choose(self, tau: NDArray[np.integer]) -> list[Chosen]:
        """The certified step of each row of τ_i."""
        rows = tau if tau.ndim == 2 else tau[None]
        proved = [proved_steps(self.kappa, row, self.weights) for row in rows]
        problem = self.problem
        if isinstance(problem, Quadratic) and len(rows) * problem.clients * problem.dim**3 <= _MOST_WORK:
            on_these = QuadraticRound(problem)
            proved = [
                [self._measured(step, on_these.norm(row, step.eta_bar / self.smoothness)) for step in steps]
                for row, steps in zip(rows, proved, strict=True)
            ]
        return [fastest(steps) for steps in proved]

    def _measured(self, step: Chosen, norm: float) -> Chosen:
        """A step whose rounds have this norm on the problem."""
        return Chosen(step.eta_bar, min(step.factor, (norm + _MARGIN * abs(1 - norm)) ** 2))


def _read(problem: Problem | float) -> _Known:
    if isinstance(problem, Problem):
        if problem.sampling is not None:
            raise UnknownError(f"{problem!r} gives noisy gradients, and certified steps are proved for exact ones.")
        return _Known(problem.condition, problem.smoothness, np.asarray(problem.weights, float), problem)
    return _Known(
        real("kappa", problem, lambda value: value >= 1, "a problem, or its condition number κ of at least 1"), 1.0
    )
