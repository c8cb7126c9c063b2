"""The theorem that comes nearest to a setting: the step it asks for, what it promises, and why it may not apply."""

from collections.abc import Callable
from typing import NamedTuple

from fedlin import theory
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.playground.sliders import MEASURES, Sliders
from fedlin.problems.problem import Problem
from fedlin.theory import bounds

CERTIFIED_STEP = "the certified step"
Bound = Callable[[int, float], Array]  # rounds and the measure at the start, to a curve


class NearestTheorem(NamedTuple):
    """`why_not` is empty where the theorem covers the setting, its step included."""

    name: str
    eta_bar: float  # η̄ of the theorem
    promises: dict[str, Bound]  # by measure
    why_not: str = ""


def nearest(problem: Problem, settings: Sliders, tau: Array) -> NearestTheorem:
    """Theorem 1 or the certified step for whole messages, 7 or 8 for fewer entries down, 9 for fewer entries up.

    >>> import numpy as np
    >>> from fedlin.problems import least_squares
    >>> nearest(least_squares(clients=2, dim=20, samples=50), Sliders(down=50.0), np.array([1, 5])).name
    'Theorem 8'
    """
    up, down = (problem.dim / k for k in settings.sent)  # δ_c, δ_s
    if settings.certified:
        return _certified(problem, tau)
    if not settings.compressed:
        theorem = _whole(problem)
    elif up > 1:
        theorem = _few_up(problem, up, settings.step)
    else:
        theorem = _few_down(problem, down, settings.memory != "nothing")
    return theorem._replace(why_not=_why_not(theorem, settings))


def _certified(problem: Problem, tau: Array) -> NearestTheorem:
    plan = theory.certified(problem, tau)
    kappa = problem.condition

    def distance(rounds: int, distance0: float) -> Array:
        return bounds.certified(problem, tau, rounds, distance0)

    # f - f* lies between μ/2 and L/2 times the squared distance.
    promises: dict[str, Bound] = {"distance": distance, "gap": lambda T, gap0: kappa * distance(T, gap0)}
    return NearestTheorem(CERTIFIED_STEP, float(plan.eta[0] * tau[0]), promises)


def _whole(problem: Problem) -> NearestTheorem:
    plan = theory.strongly_convex(problem, 1)
    return NearestTheorem("Theorem 1", _step(plan), {"gap": lambda T, gap0: bounds.strongly_convex(problem, T, gap0)})


def _few_down(problem: Problem, delta: float, remembered: bool) -> NearestTheorem:
    if remembered:
        step = _step(theory.server_feedback(problem, 1, delta))
        return NearestTheorem(
            "Theorem 8", step, {"gap": lambda T, gap0: bounds.server_feedback(problem, T, gap0, delta)}
        )
    step = _step(theory.server_sparse(problem, 1, delta))
    return NearestTheorem("Theorem 7", step, {"gap": lambda T, gap0: bounds.server_sparse(problem, T, gap0, delta)})


def _few_up(problem: Problem, delta: float, times: float) -> NearestTheorem:
    C, D = theory.dissimilarity(problem)
    step = _step(theory.client_feedback(problem, 1, delta, C))
    taken = times * step  # the promise depends on it, and holds for every step up to the theorem's
    return NearestTheorem(
        "Theorem 9",
        step,
        {
            "gap": lambda T, gap0: bounds.client_feedback_gap(problem, T, gap0, taken, delta, C, D),
            "distance": lambda T, distance0: bounds.client_feedback(problem, T, distance0, taken, delta, C, D),
        },
    )


def _step(plan: Plan) -> float:
    return float(plan.eta)  # of a client with τ = 1, so η̄ itself


def _why_not(theorem: NearestTheorem, settings: Sliders) -> str:
    """The first thing that takes the setting out of the theorem's reach."""
    smaller_will_do = theorem.name == "Theorem 9"
    if settings.compressed and settings.messages != "gradients":
        return "the paper's theorems compress gradients alone, not models"
    if settings.compressed and settings.memory == "last value sent":
        return "sending only what changed goes beyond the paper"
    if settings.compressed and max(settings.up, settings.down) < 100:
        return "the paper has no rate for fewer entries on both sides at once"
    if settings.compressed and settings.up < 100 and settings.memory == "nothing":
        return "the paper has no theorem for clients that forget what they left out"
    if settings.step > 1 or (settings.step < 1 and not smaller_will_do):
        allowed = "a step of at most 1 ×" if smaller_will_do else "a step of 1 ×"
        return f"{theorem.name} asks for {allowed}, and this is {settings.step:g} ×"
    if settings.measure not in theorem.promises:
        return f"{theorem.name} bounds {MEASURES['gap']}, not {MEASURES[settings.measure]}"
    return ""
