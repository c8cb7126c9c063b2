"""The methods worth trying on a problem, by what is known of it, written as an experiment file would."""

from collections.abc import Iterator
from math import log, log1p, sqrt
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fedlin.errors import UnknownError
from fedlin.problems.problem import Problem
from fedlin.theory.certified_steps import certified_factors


class Candidate(NamedTuple):
    """A method with its arguments; `tau` where it takes its own number of local steps instead of the plan's.

    A `certified` one takes the certified step, and none is sought.
    """

    method: str
    arguments: dict[str, Any]
    why: str
    tau: int | None = None
    alias: str = ""
    certified: bool = False

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
    ['fedlin', 'scaffold']
    """
    if problem.sampling is not None:
        yield Candidate(
            "fedlin", {"same_batch": True}, "each mini-batch serves both points, so its noise vanishes at x*"
        )
        yield Candidate("scaffold", {}, "control variates; the noise of mini-batches stays")
        return
    if participation < 1:
        yield Candidate("fedlin", {"uplink": "innovation(identity())"}, "the absent ones' last gradients still count")
        yield Candidate("scaffold", {}, "control variates of those who answer")
        return
    yield Candidate("gradient_descent", {}, "the yardstick: one gradient a round", tau=1)
    yield Candidate("fedlin", {}, "the paper's method, whole messages")
    if _condition(problem) is not None:
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
    kappa = _condition(problem)
    steps = 1 if kappa is None else round(sqrt(kappa))
    if steps > 1:
        yield Candidate("scaffnew", {}, f"{steps} local steps on average, √κ rounds", tau=steps)


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
