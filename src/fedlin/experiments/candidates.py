"""The methods worth trying on a problem, by what is known of it, written as an experiment file would."""

from collections.abc import Iterator
from math import ceil, log, log1p, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedlin.errors import UnknownError
from fedlin.problems.problem import Problem
from fedlin.theory.accelerated_steps import (
    adiana_probability,
    compressed_scaffnew,
    gradskip,
    gradskip_probability,
    locodl_pace,
    locodl_probability,
    tamuna,
)
from fedlin.theory.certified_steps import certified_factors
from fedlin.theory.curvature_steps import fedlin_newton
from fedlin.theory.momentum_steps import momentum_factor


class Candidate(NamedTuple):
    """A method with its arguments; `tau` where it takes its own numbers of local steps instead of the plan's.

    A `certified` one takes the certified step, and one with a `step` that one; no other is sought.
    """

    method: str
    arguments: dict[str, Any]
    why: str
    tau: int | tuple[int, ...] | None = None  # one for all clients, or one for each
    alias: str = ""
    certified: bool = False
    step: float | None = None

    @property
    def one_step_size(self) -> bool:
        """Whether all clients take the same η, rather than η̄/τ_i."""
        return self.tau is not None

    @property
    def label(self) -> str:
        """The method with its arguments, or a shorter name for them.

        >>> Candidate("compressed", {"k": 5}, "").label
        'compressed(k=5)'
        """
        if self.alias:
            return self.alias
        listed = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.method}({listed})" if listed else self.method


def candidates(problem: Problem, participation: float) -> Iterator[Candidate]:
    """What suits the problem: exact or noisy gradients, all clients or some, and how ill-conditioned it is.

    >>> from fedlin.problems import least_squares
    >>> [one.method for one in candidates(least_squares(clients=3, dim=100, samples=200), 0.5)]
    ['fedlin', 'scaffold', 'tamuna', 'fednl_pp']
    """
    if problem.sampling is not None:
        yield Candidate(
            "fedlin", {"same_batch": True}, "each mini-batch serves both points, so its noise vanishes at x*"
        )
        yield Candidate("scaffold", {}, "control variates; the noise of mini-batches stays")
        return
    kappa = _condition(problem)
    if participation < 1:
        yield Candidate("fedlin", {"uplink": "innovation(identity())"}, "the absent ones' last gradients still count")
        yield Candidate("scaffold", {}, "control variates of those who answer")
        cohort = max(1, round(participation * problem.clients))
        if kappa is not None and cohort > 1 and np.ptp(problem.weights) == 0:
            sparsity = max(2, cohort // _SHARE)
            shared = {"clients": problem.clients, "cohort": cohort, "sparsity": sparsity}
            why = f"each entry from {sparsity} of the {cohort} clients of a round, √κ rounds"
            yield Candidate("tamuna", shared, why, tau=int(tamuna(problem, sparsity).tau), alias="tamuna")
        if kappa is not None and _has_hessians(problem):
            yield Candidate(
                "fednl_pp", dict(_RANK), "Newton's method; the absent ones' last Hessians count", 1, step=1.0
            )
        return
    yield Candidate("gradient_descent", {}, "the yardstick: one gradient a round", tau=1)
    yield Candidate("fedlin", {}, "the paper's method, whole messages")
    if kappa is not None:
        yield Candidate("fedlin", {}, "proved, at a step nobody has to tune", alias="fedlin, certified", certified=True)
    yield Candidate("scaffold", {}, "control variates instead of a second exchange")
    yield Candidate("fedlin", _cast("cast('float16')"), "every value in half precision", alias="fedlin, float16")
    for k in sorted({max(1, problem.dim // 20), max(1, problem.dim // 5)} - {problem.dim}):
        yield Candidate("compressed", {"k": k}, f"{k} of {problem.dim} entries in all four messages")
        sparse = f"cast('float16', top_k({k}))"
        links = {"uplink": f"innovation({sparse})", "model_uplink": f"error_feedback({sparse})", **_DOWN}
        yield Candidate(
            "fedlin",
            links,
            f"{k} of {problem.dim} entries up in half precision, five bits an entry down",
            alias=f"fedlin, {k} up",
        )
    few = max(1, problem.dim // 20)
    yield Candidate("ef21", {"compressor": f"top_k({few})"}, f"the {few} largest changes of a gradient", tau=1)
    if few < problem.dim:
        sent = {"compressor": f"rand_k({few}, unbiased=True)", "probability": few / problem.dim}
        why = f"changes of {few} of {problem.dim} entries up, and whole gradients as often as they cost as much"
        yield Candidate("marina", sent, why, tau=1, alias=f"marina, {few} up")
    if kappa is not None:
        yield from _accelerated(problem, kappa)


_RANK = {"compressor": "low_rank(1)"}
_LARGEST = 2**26  # entries that the Hessians of all clients may have together: half a gigabyte
_SHARE = 10  # of so many clients one sends an entry
_MANY = 1000  # local steps, for which a β is right whatever the plan's are


def _has_hessians(problem: Problem) -> bool:
    """Whether second derivatives can be asked for and kept."""
    return not problem.objective.outside and problem.clients * problem.dim**2 <= _LARGEST


def _accelerated(problem: Problem, kappa: float) -> Iterator[Candidate]:
    """Methods whose rounds grow as √κ, and Newton's."""
    steps, clients = round(sqrt(kappa)), problem.clients
    if steps > 1:
        beta = round(momentum_factor(problem, _MANY), 4)
        why = "Nesterov's momentum around the rounds, √κ of them"
        yield Candidate("fedlin", {"momentum": beta}, why, alias="fedlin, momentum")
        yield Candidate("scaffnew", {}, f"{steps} local steps on average, √κ rounds", tau=steps)
        omega = 1 / 8  # of natural compression
        sent = {"probability": locodl_probability(problem, omega), "pace": locodl_pace(problem, omega)}
        why = "local steps and an exponent for each entry, √κ rounds"
        yield Candidate("locodl", {"compressor": "natural()", **sent}, why, tau=1, alias="locodl, natural()")
        each = gradskip(problem).tau
        if np.min(each) < np.max(each):
            why = f"as scaffnew, but well conditioned clients rest: {np.min(each)} to {np.max(each)} gradients"
            shared_coin = {"probability": gradskip_probability(problem)}
            yield Candidate("gradskip", shared_coin, why, tau=tuple(map(int, each)), alias="gradskip")
    sparsity = max(2, clients // _SHARE)
    if sparsity < clients and np.ptp(problem.weights) == 0:
        tau = int(compressed_scaffnew(problem, sparsity).tau)
        shared = {"clients": clients, "sparsity": sparsity}
        why = f"each entry from {sparsity} of {clients} clients, √κ rounds"
        yield Candidate("compressed_scaffnew", shared, why, tau=tau, alias="compressed_scaffnew")
    levels = ceil(sqrt(problem.dim))  # at which ω is 1
    dithered = {"compressor": f"quantize({levels})", "alpha": 0.5}
    yield Candidate("diana", dithered, "dithered changes of gradients", tau=1, alias=f"diana, {levels} levels")
    moving = {**dithered, "probability": adiana_probability(problem, 1.0)}
    yield Candidate(
        "adiana", moving, "momentum on dithered gradients, √κ rounds", tau=1, alias=f"adiana, {levels} levels"
    )
    if _has_hessians(problem):
        for words, encoder in (("half precision", "cast('float16')"), ("eight bits an entry", "nearest(127)")):
            links = {"uplink": f"innovation({encoder})", "downlink": f"plain({encoder})"}
            links |= dict.fromkeys(("model_uplink", "model_downlink"), f"plain({encoder})")
            step = float(fedlin_newton(problem).eta)
            why = f"Newton's steps by each client's own curvature, {words}"
            yield Candidate("fedlin_newton", links, why, 1, f"fedlin_newton, {words}", step=step)
        search = {**_RANK, "line_search": True}
        yield Candidate("fednl", search, "Newton's method on Hessians learned by rank 1", 1, "fednl, rank 1", step=1.0)
        half = {"compressor": "low_rank(1, cast('float16'))", "uplink": "innovation(cast('float16'))"}
        yield Candidate("fednl", half, "the same in half precision, from near x*", 1, "fednl, float16", step=1.0)
        yield Candidate("fedsplit", {}, "proximal steps, √κ rounds", tau=1)


_DOWN = dict.fromkeys(("downlink", "model_downlink"), "innovation(quantize(15))")


def _cast(values: str) -> dict[str, str]:
    return {"uplink": f"innovation({values})", "downlink": values, "model_uplink": values, "model_downlink": values}


def promised(candidate: Candidate, problem: Problem, tau: ArrayLike, ratio: float) -> float | None:
    """The rounds in which theory promises to shrink the gap by `ratio`, at the steps it asks for; None where unknown.

    FedLin: the certified rate of the squared distance, within a factor of κ the gap's. Gradient descent: (1 - 1/κ)^T.
    Scaffnew: (1 - 1/κ) a step and √κ steps a round, Theorem 3.6 of its paper.
    """
    kappa = _condition(problem)
    if candidate.arguments or kappa is None or kappa == 1:
        return None
    if candidate.method == "fedlin":
        return log(kappa * ratio) / -log(float(certified_factors(problem, tau, 1)[0]))
    shrinks = {"gradient_descent": 1 / kappa, "scaffnew": 1 / sqrt(kappa)}
    return log(ratio) / -log1p(-shrinks[candidate.method]) if candidate.method in shrinks else None


def _condition(problem: Problem) -> float | None:
    try:
        return problem.condition
    except UnknownError:
        return None
