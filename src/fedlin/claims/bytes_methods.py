"""The methods whose bytes are compared, the problems, and the steps each method was tuned to.

All methods take τ steps of size η = c/L (FedSplit a proximal step of c/√(μL)) with τ and c from one grid; τ = 1 where a
method has no local steps, τ > 1 for FedAvg, which else is gradient descent. `TUNED` is the point of the grid that takes
the fewest bytes, up and down, to 10⁻¹² of the first gap (to 10⁻⁸ or 10⁻⁴ where none gets there) on draw 100, and on
other rows of a9a than those reported. `python -m benchmarks.tune_bytes` finds it again.
"""

from typing import Any

from fedlin import algorithms
from fedlin.claims.draws import least_squares
from fedlin.claims.instances import quadratics
from fedlin.claims.realdata import a9a
from fedlin.compressors import cast, quantize, rand_k, top_k
from fedlin.core import Algorithm
from fedlin.links import error_feedback, innovation, plain
from fedlin.plan import Plan
from fedlin.problems.problem import Problem

FIGURE_3, STIFF, REAL = "Figure 3's least squares", "quadratics with κ = 1000", "logistic regression on a9a"
HALF, SPARSE, LEVELS = cast("float16"), cast("float16", top_k(10)), innovation(quantize(15))
SMALL, FLOAT16 = "FedLin, 5 bits down, TOP-10 up", "FedLin, float16"
PAPER = ("FedLin, dense", "FedLin, server TOP-50", "FedLin, clients TOP-50")  # what the paper proposes
METHODS: dict[str, Algorithm[Any, Any]] = {
    SMALL: algorithms.fedlin(
        uplink=innovation(SPARSE), downlink=LEVELS, model_uplink=error_feedback(SPARSE), model_downlink=LEVELS
    ),
    FLOAT16: algorithms.fedlin(uplink=innovation(HALF), downlink=HALF, model_uplink=HALF, model_downlink=HALF),
    PAPER[0]: algorithms.fedlin(),
    PAPER[1]: algorithms.fedlin(downlink=plain(top_k(50))),
    PAPER[2]: algorithms.fedlin(uplink=error_feedback(top_k(50))),
    "FedLin, TOP-25 everywhere": algorithms.compressed(25),
    "Scaffnew": algorithms.scaffnew(),
    "SCAFFOLD": algorithms.scaffold(),
    "EF21, TOP-10": algorithms.ef21(top_k(10)),
    "DIANA, 10 random": algorithms.diana(rand_k(10, unbiased=True), 0.1),
    "gradient descent": algorithms.gradient_descent(),
    "FedSplit": algorithms.fedsplit(),
    "FedPAQ, 5 bits": algorithms.fedpaq(quantize(15)),
    "FedAvg": algorithms.fedavg(),
}
WITHOUT_LOCAL_STEPS = ("EF21, TOP-10", "DIANA, 10 random", "gradient descent", "FedSplit")
STALLED = (PAPER[2], "FedPAQ, 5 bits", "FedAvg")  # at floors above 10⁻⁴ on both families: not run again
STEPS = (0.1, 0.3, 0.6, 1.0, 1.5)  # c
# method: (τ, c), by problem
TUNED: dict[str, dict[str, tuple[int, float]]] = {
    FIGURE_3: {
        SMALL: (1, 0.3),
        FLOAT16: (16, 0.3),
        PAPER[0]: (16, 0.3),
        PAPER[1]: (16, 0.3),
        PAPER[2]: (1, 0.1),
        "FedLin, TOP-25 everywhere": (1, 0.6),
        "Scaffnew": (1, 1.5),
        "SCAFFOLD": (1, 1.5),
        "EF21, TOP-10": (1, 1.0),
        "DIANA, 10 random": (1, 0.3),
        "gradient descent": (1, 1.5),
        "FedSplit": (1, 1.0),
        "FedPAQ, 5 bits": (1, 0.1),
        "FedAvg": (4, 0.1),
    },
    STIFF: {
        SMALL: (16, 0.6),
        FLOAT16: (32, 0.3),
        PAPER[0]: (32, 0.3),
        PAPER[1]: (16, 0.6),
        PAPER[2]: (1, 0.3),
        "FedLin, TOP-25 everywhere": (16, 0.6),
        "Scaffnew": (32, 1.0),
        "SCAFFOLD": (32, 1.0),
        "EF21, TOP-10": (1, 1.5),
        "DIANA, 10 random": (1, 1.5),
        "gradient descent": (1, 1.5),
        "FedSplit": (1, 1.0),
        "FedPAQ, 5 bits": (1, 0.3),
        "FedAvg": (4, 0.1),
    },
    REAL: {
        SMALL: (16, 0.6),
        PAPER[0]: (16, 1.5),  # the paper's best there; a few methods only, since each takes seconds
        "Scaffnew": (16, 1.0),
    },
}


def instance(problem: str, draw: int) -> Problem | None:
    """20 clients each; of a9a the draw is the part of the file, and None where there is no file.

    The quadratics have one eigenbasis for all clients, so that f itself has κ = 1000; eigenvalues log-uniform in
    [2, 2000] for each client with both ends taken, and a minimiser x_i ~ N(0, I) of its own.
    """
    if problem == REAL:
        return a9a(draw, clients=20, rows=50, l2=0.01)
    if problem == FIGURE_3:
        return least_squares(draw, alpha=1.0)
    return quadratics(draw, 1000.0, dim=100, clients=20, aligned=True)


def local_steps(method: str, problem: str) -> tuple[int, ...]:
    """The values of τ to choose from; fewer where each step is a pass over rows."""
    if method in WITHOUT_LOCAL_STEPS:
        return (1,)
    values = (1, 4, 16) if problem == REAL else (1, 4, 16, 32, 64)
    return values[1:] if method == "FedAvg" else values


def plan(method: str, problem: Problem, tau: int, step: float) -> Plan:
    """τ local steps of c/L, or FedSplit's proximal step."""
    scale = problem.smoothness if method != "FedSplit" else (problem.smoothness * problem.strong_convexity) ** 0.5
    return Plan(tau, step / scale)
