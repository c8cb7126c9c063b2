"""The methods whose bytes are compared, the problems, and what each method was tuned to.

All methods take τ steps of size η = c/L (FedSplit a proximal step of c/√(μL)) with τ and c from one grid, and each has
its own compressions or numbers to choose from. Whatever a method that comes to x* sends whole it may send in float32 or
float16 as well (`narrow`). τ = 1 where a method has no local steps; τ > 1 for those that else are gradient descent.
`TUNED` is what takes the fewest bytes, up and down, to 10⁻¹² of the first gap (to 10⁻⁸ or 10⁻⁴ where
nothing gets there, or else comes closest) on draw 100, and on other rows of a9a than those reported. FedNova has
FedAvg's choice: with one τ for all clients it takes its steps. Formats are chosen at the τ and c that were best for
whole numbers. `python -m benchmarks.tune_bytes` tunes all again.
"""

from functools import cache
from typing import NamedTuple

from fedlin import algorithms
from fedlin.claims.common.fewer_bits import CHANGE, OWN, VALUE, Kinds, narrow
from fedlin.claims.common.instances import a9a, least_squares, quadratics
from fedlin.compressors import cast, quantize, rand_k, top_k
from fedlin.core import Method
from fedlin.links import error_feedback, innovation, plain
from fedlin.plan import Plan
from fedlin.problems.problem import Problem

FIGURE_3, STIFF, REAL = "Figure 3's least squares", "quadratics with κ = 1000", "logistic regression on a9a"
PROBLEMS = (FIGURE_3, STIFF, REAL)
ROWS = 200  # of a9a for each of the 20 clients
HALF, SPARSE, LEVELS = cast("float16"), cast("float16", top_k(10)), innovation(quantize(15))
SMALL, FLOAT16 = "FedLin, 5 bits down, TOP-10 up", "FedLin, float16"
PAPER = ("FedLin, dense", "FedLin, server", "FedLin, clients")  # what the paper proposes
SPARSITY = (10, 25, 50)
QUANTISERS = {"5 bits": quantize(15), "8 bits": quantize(127)}
Variants = dict[str, Method]  # by what they choose; "" where there is nothing to choose


def _alone(algorithm: Method) -> Variants:
    return {"": algorithm}


def _formats(variants: Variants, *vectors: tuple[Kinds, Kinds]) -> Variants:
    """Each variant as it is, and with whole vectors in float32 and in float16."""
    formats = {
        ", ".join(filter(None, (name, dtype))): narrow(algorithm, dtype, vectors)
        for name, algorithm in variants.items()
        for dtype in ("float32", "float16")
    }
    return variants | formats


V, C, S = (VALUE,), (CHANGE,), (OWN,)  # a message of one vector; of S the method sends it as it likes
WITHOUT_LOCAL_STEPS = ("FedSplit", "EF21", "DIANA", "gradient descent")
ELSE_DESCENT = ("FedAvg", "FedProx", "FedNova")  # gradient descent if τ = 1
STEPS = (0.1, 0.3, 0.6, 1.0, 1.5)  # c


@cache
def methods() -> dict[str, Variants]:
    """Every method by its name, each with the variants that it has to choose from."""
    return {
        SMALL: _alone(
            algorithms.fedlin(
                uplink=innovation(SPARSE), downlink=LEVELS, model_uplink=error_feedback(SPARSE), model_downlink=LEVELS
            )
        ),
        FLOAT16: _alone(
            algorithms.fedlin(uplink=innovation(HALF), downlink=HALF, model_uplink=HALF, model_downlink=HALF)
        ),
        PAPER[0]: _alone(algorithms.fedlin()),
        PAPER[1]: {f"TOP-{k}": algorithms.fedlin(downlink=plain(top_k(k))) for k in SPARSITY},
        PAPER[2]: {"TOP-50": algorithms.fedlin(uplink=error_feedback(top_k(50)))},
        "FedLin, everywhere": {f"TOP-{k}": algorithms.compressed(k) for k in SPARSITY},
        "Scaffnew": _formats(_alone(algorithms.scaffnew()), (V, V)),
        "SCAFFOLD": _formats(_alone(algorithms.scaffold()), (V + V, C + C)),
        "gradient tracking": _formats(_alone(algorithms.gradient_tracking()), (V, V), (V, ())),
        "FedCOMGATE": _formats(
            {name: algorithms.fedcomgate(quantiser) for name, quantiser in QUANTISERS.items()}, (V, S), (V, ())
        ),
        "S-Local-SVRG": _formats({f"q = {q:g}": algorithms.s_local_svrg(q) for q in (0.5, 0.9)}, (V, V), (V, V)),
        "FedSplit": _formats(_alone(algorithms.fedsplit()), (V, C)),
        "FedAc": _formats(_alone(algorithms.fedac()), (V + V, V + V)),
        "EF21": _formats({f"TOP-{k}": algorithms.ef21(top_k(k)) for k in SPARSITY}, (V, S)),
        # α below 1/(1 + ω) = k/d, d being 100 and 123
        "DIANA": _formats(
            {f"{k} random": algorithms.diana(rand_k(k, unbiased=True), k / 125) for k in SPARSITY}, (V, S)
        ),
        "gradient descent": _formats(_alone(algorithms.gradient_descent()), (V, V)),
        "FedAvg": _alone(algorithms.fedprox(0.0)),  # which it is, and one program less to compile
        "FedProx": {f"β = {beta:g}": algorithms.fedprox(beta) for beta in (0.1, 1.0, 10.0)},
        "FedNova": _alone(algorithms.fednova()),
        "FedPAQ": {name: algorithms.fedpaq(quantiser) for name, quantiser in QUANTISERS.items()},
    }


class Choice(NamedTuple):
    """A variant of a method and its local steps."""

    variant: str
    tau: int  # τ
    step: float  # c


TUNED: dict[str, dict[str, Choice]] = {
    FIGURE_3: {
        SMALL: Choice("", 1, 0.3),
        FLOAT16: Choice("", 16, 0.3),
        PAPER[0]: Choice("", 16, 0.3),
        PAPER[1]: Choice("TOP-50", 16, 0.3),
        PAPER[2]: Choice("TOP-50", 1, 0.1),
        "FedLin, everywhere": Choice("TOP-50", 16, 0.1),
        "Scaffnew": Choice("float32", 1, 1.5),
        "SCAFFOLD": Choice("float16", 1, 1.5),
        "gradient tracking": Choice("float32", 1, 1.5),
        "FedCOMGATE": Choice("5 bits, float32", 1, 1.5),
        "S-Local-SVRG": Choice("q = 0.9, float16", 16, 0.3),
        "FedSplit": Choice("float16", 1, 1.0),
        "FedAc": Choice("float16", 1, 1.5),
        "EF21": Choice("TOP-50, float16", 1, 1.5),
        "DIANA": Choice("50 random, float16", 1, 1.0),
        "gradient descent": Choice("float16", 1, 1.5),
        "FedAvg": Choice("", 4, 0.1),
        "FedProx": Choice("β = 0.1", 4, 0.1),
        "FedNova": Choice("", 4, 0.1),
        "FedPAQ": Choice("8 bits", 1, 0.6),
    },
    STIFF: {
        SMALL: Choice("", 16, 0.6),
        FLOAT16: Choice("", 32, 0.3),
        PAPER[0]: Choice("", 32, 0.3),
        PAPER[1]: Choice("TOP-50", 16, 0.6),
        PAPER[2]: Choice("TOP-50", 1, 0.3),
        "FedLin, everywhere": Choice("TOP-25", 16, 0.6),
        "Scaffnew": Choice("float32", 32, 1.0),
        "SCAFFOLD": Choice("float16", 32, 1.0),
        "gradient tracking": Choice("float32", 32, 1.0),
        "FedCOMGATE": Choice("8 bits, float32", 32, 1.0),
        "S-Local-SVRG": Choice("q = 0.9, float16", 32, 0.3),
        "FedSplit": Choice("float16", 1, 1.0),
        "FedAc": Choice("float16", 1, 1.0),
        "EF21": Choice("TOP-10, float16", 1, 1.5),
        "DIANA": Choice("25 random, float16", 1, 1.0),
        "gradient descent": Choice("float16", 1, 1.5),
        "FedAvg": Choice("", 4, 0.1),
        "FedProx": Choice("β = 0.1", 4, 0.1),
        "FedNova": Choice("", 4, 0.1),
        "FedPAQ": Choice("8 bits", 1, 1.5),
    },
    REAL: {
        SMALL: Choice("", 16, 0.6),
        FLOAT16: Choice("", 64, 1.5),
        PAPER[0]: Choice("", 64, 1.5),
        PAPER[1]: Choice("TOP-50", 64, 1.5),
        PAPER[2]: Choice("TOP-50", 16, 1.5),
        "FedLin, everywhere": Choice("TOP-50", 64, 1.0),
        "Scaffnew": Choice("float32", 16, 1.0),
        "SCAFFOLD": Choice("float16", 32, 0.6),
        "gradient tracking": Choice("float32", 32, 0.6),
        "FedCOMGATE": Choice("5 bits, float32", 32, 0.6),
        "S-Local-SVRG": Choice("q = 0.9, float16", 64, 1.5),
        "FedSplit": Choice("float16", 1, 1.5),
        "FedAc": Choice("float16", 1, 1.5),
        "EF21": Choice("TOP-10, float16", 1, 1.5),
        "DIANA": Choice("10 random, float16", 1, 1.5),
        "gradient descent": Choice("float16", 1, 1.5),
        "FedAvg": Choice("", 16, 0.6),
        "FedProx": Choice("β = 0.1", 16, 0.6),
        "FedNova": Choice("", 16, 0.6),
        "FedPAQ": Choice("8 bits", 16, 0.6),
    },
}


def instance(problem: str, draw: int) -> Problem | None:
    """20 clients each; of a9a the draw is the part of the file, and None where there is no file.

    The quadratics have one eigenbasis for all clients, so that f itself has κ = 1000; eigenvalues log-uniform in
    [2, 2000] for each client with both ends taken, and a minimiser x_i ~ N(0, I) of its own.
    """
    if problem == REAL:
        return a9a(draw, clients=20, rows=ROWS, l2=0.01)
    if problem == FIGURE_3:
        return least_squares(draw, alpha=1.0)
    return quadratics(draw, 1000.0, dim=100, clients=20, aligned=True)


def local_steps(method: str) -> tuple[int, ...]:
    """The values of τ to choose from: few where more only move the floor up."""
    if method in WITHOUT_LOCAL_STEPS:
        return (1,)
    return (4, 16) if method in ELSE_DESCENT else (1, 4, 16, 32, 64)


def most_rounds(problem: str, tau: int) -> int:
    """How long a method is given: fewer rounds where few are needed, and where each local step is a pass over rows."""
    return {FIGURE_3: 300, STIFF: 2000}.get(problem) or min(2000, 4000 // tau)


def plan(method: str, problem: Problem, tau: int, step: float) -> Plan:
    """τ local steps of c/L, or FedSplit's proximal step."""
    scale = problem.smoothness if method != "FedSplit" else (problem.smoothness * problem.strong_convexity) ** 0.5
    return Plan(tau, step / scale)
