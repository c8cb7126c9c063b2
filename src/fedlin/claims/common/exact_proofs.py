"""Exact factors of FedLin with proofs that are stored, so that claims check them again and need no solver.

`python -m fedlin.claims.common.exact_proofs` computes and stores them anew, with the solver of fedlin[exact].
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedlin import algorithms
from fedlin.algorithms import momentum as around
from fedlin.core import Method, Scalar, Vector
from fedlin.errors import FedLinError
from fedlin.links import plain
from fedlin.plan import Plan
from fedlin.problems.custom import from_loss
from fedlin.problems.quadratic import quadratic
from fedlin.report.verdict import Row
from fedlin.theory import momentum_steps
from fedlin.theory.exact import (
    Dissimilar,
    PolyakLojasiewicz,
    ProvedRate,
    Smooth,
    StoredRate,
    UnboundedError,
    WorstCase,
    WorstFunctions,
    contraction,
    lyapunov,
    scaffnew_rate,
    worst_case,
)
from fedlin.theory.exact.worst_function import envelope

Maker = Callable[..., Method]  # takes the links that `algorithms.fedlin` takes
Proof = list[Any]  # as stored: what is proved, and the numbers that prove it
FILE = "exact_proofs.json"
TWO = 2  # local steps, where their number is not the point
KAPPAS = (3.0, 10.0, 100.0, 1000.0)
ROUNDS = (1, 2, 4)
DELTA = 4.0  # δ
SIMILAR = 2.0  # C of Theorem 9, where D is 0
CURVE_KAPPA = 10.0
CURVE_TAU = (1, 2, 3, 5, 8)
CURVE_STEPS = (1 / 6, 0.5, 1.0, 1.5, 1.8, 2.0, 2.5, 3.0, 3.6, 4.0, 4.5, 5.0, 5.5, 6.0, 7.0)  # η̄L
WORST = ((3, 5.5), (5, 6.0), (8, 7.0))  # τ and η̄L beyond the full rate, where worst functions are stored
SCAFFNEW_KAPPAS = (4.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
MOMENTUM_TAU, MOMENTUM_KAPPAS = (1, 2, 5), (10.0, 100.0, 1000.0)
SPARSITY = (2.0, 4.0, 8.0)  # δ
AGREE = 1e-3  # by how much a run may differ from what is proved, as a part of it
SPARSE_STEPS = (0.03, 0.06, 0.09, 0.125, 0.18, 0.25, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0)  # η̄L


class Promise(NamedTuple):
    """What a theorem of the paper says of one round or of several: a factor, at its own step."""

    factor: Callable[[float], float]  # of κ, or of the number of rounds
    case: Callable[[Maker, float], WorstCase]


def plan_of_two(eta_bar: float) -> Plan:
    """Two local steps, whose sizes sum up to η̄."""
    return Plan(TWO, eta_bar / TWO)


def _convex(make: Maker, eta_bar: float, rounds: float, model: str) -> WorstCase:
    smooth, count = Smooth(1.0), int(rounds)
    return worst_case(make(), plan_of_two(eta_bar), smooth, measure="gap", before="distance", rounds=count, model=model)


# The promises of one round, by κ.
ONE_ROUND: dict[str, Promise] = {
    "Theorem 1": Promise(
        lambda kappa: 1 - 1 / (6 * kappa),
        lambda make, kappa: worst_case(make(), plan_of_two(1 / 6), Smooth(1.0, 1 / kappa), measure="gap"),
    ),
    "Theorem 4": Promise(
        lambda kappa: 1 - 1 / (26 * kappa),
        lambda make, kappa: worst_case(make(), plan_of_two(1 / 26), PolyakLojasiewicz(1.0, 1 / kappa), measure="gap"),
    ),
    "Theorem 7": Promise(
        lambda kappa: 1 - 1 / (2 * DELTA * (2 + sqrt(DELTA)) * kappa),
        lambda make, kappa: worst_case(
            make(downlink=plain(contraction(DELTA))),
            plan_of_two(1 / (2 * (2 + sqrt(DELTA)))),
            Smooth(1.0, 1 / kappa),
            measure="gap",
        ),
    ),
}
# The promises of T rounds on convex functions, f - f* over L‖x̄_1 - x*‖²: Theorem 2 at the largest gap at the start.
CONVEX: dict[str, Promise] = {
    "Theorem 2, mean of the models": Promise(
        lambda rounds: 10 / rounds, lambda make, rounds: _convex(make, 1 / 10, rounds, "mean")
    ),
    "Theorem 2, last model": Promise(
        lambda rounds: 0.5 / (rounds / 24 + 1), lambda make, rounds: _convex(make, 1 / 6, rounds, "last")
    ),
}


def feedback_down(make: Maker, kappa: float, stored: StoredRate | None) -> ProvedRate:
    """Theorem 8's method at its step."""
    method = make(downlink=contraction(DELTA))
    return lyapunov(method, plan_of_two(1 / (72 * DELTA)), Smooth(1.0, 1 / kappa), stored=stored)


def feedback_up(make: Maker, kappa: float, stored: StoredRate | None) -> ProvedRate:
    """Theorem 9's method at its step, with D = 0."""
    functions = Dissimilar(1.0, 1 / kappa, SIMILAR)
    plan = plan_of_two(1 / (72 * DELTA * SIMILAR))
    return lyapunov(make(uplink=contraction(DELTA)), plan, functions, shared_minimizer=True, stored=stored)


# The promises that need a Lyapunov function, by κ.
RATES: dict[str, tuple[Callable[[float], float], Callable[[Maker, float, StoredRate | None], ProvedRate]]] = {
    "Theorem 8": (lambda kappa: 1 - 1 / (96 * DELTA * kappa), feedback_down),
    "Theorem 9": (lambda kappa: 1 - 1 / (96 * DELTA * SIMILAR * kappa), feedback_up),
}


def curve_case(make: Maker, tau: int, eta_bar: float) -> WorstCase:
    """The distance after one round, of equal clients at κ = 10."""
    return worst_case(make(), Plan(tau, eta_bar / tau), Smooth(1.0, 1 / CURVE_KAPPA))


def worst_functions(tau: int, eta_bar: float, tilt: float) -> WorstFunctions:
    """The stored functions on which `curve_case` is attained, tilted by linear terms that cancel in the mean."""
    batch = {name: np.array(values) for name, values in _stored()[_worst_name(tau, eta_bar)][0].items()}
    x0 = batch.pop("x0")
    clients = len(batch["offsets"])
    tilts = np.zeros((clients, len(x0)))
    tilts[0], tilts[-1] = tilt, -tilt
    batch |= {"tilt": tilts, "smoothness": np.ones(clients), "strong_convexity": np.full(clients, 1 / CURVE_KAPPA)}
    problem = from_loss(
        _tilted,
        np.zeros(len(x0)),
        batch,
        smoothness=1.0,
        strong_convexity=1 / CURVE_KAPPA,
        minimizer=np.zeros(len(x0)),
    )
    return WorstFunctions(problem, Plan(tau, eta_bar / tau), x0)


def _tilted(x: Vector, batch: dict[str, Vector]) -> Scalar:
    value: Scalar = envelope(x, batch) + batch["tilt"] @ x
    return value


def _worst_name(tau: int, eta_bar: float) -> str:
    return f"worst functions, τ = {tau}, η̄L = {eta_bar:g}"


def sparse_case(make: Maker, delta: float, eta_bar: float) -> WorstCase:
    """The gap after one round in which the server sends C(g), at κ = 10."""
    method = make(downlink=plain(contraction(delta)))
    return worst_case(method, plan_of_two(eta_bar), Smooth(1.0, 1 / CURVE_KAPPA), measure="gap")


def sparse_rate(make: Maker, delta: float, eta_bar: float, stored: StoredRate | None) -> ProvedRate:
    """The rate where the server sends C(g) with error feedback, at κ = 10."""
    return lyapunov(
        make(downlink=contraction(delta)), plan_of_two(eta_bar), Smooth(1.0, 1 / CURVE_KAPPA), stored=stored
    )


def scaffnew(kappa: float, stored: StoredRate | None) -> ProvedRate:
    """Scaffnew's rate with √κ local steps."""
    return scaffnew_rate(Plan(round(sqrt(kappa)), 1.0), Smooth(1.0, 1 / kappa), stored)


def momentum(make: Maker, kappa: float, tau: int, stored: StoredRate | None) -> ProvedRate:
    """FedLin with momentum, at the steps of `theory.momentum`."""
    like = quadratic([np.diag([1 / kappa, 1.0])], np.zeros((1, 2)))  # for L and μ
    method = around.momentum(make(), momentum_steps.momentum_factor(like, tau))
    return lyapunov(method, momentum_steps.momentum(like, tau), Smooth(1.0, 1 / kappa), stored=stored)


def factor(name: str, case: Callable[[], WorstCase]) -> float | None:
    """The factor whose stored proof holds for this case; None where it proves nothing."""
    factor, multipliers = _stored()[name]
    try:
        case().prove(factor, multipliers)
    except FedLinError:
        return None
    return float(factor)


def rate(name: str, proved: Callable[[StoredRate], ProvedRate]) -> float | None:
    """The rate whose stored proof holds; None where it proves nothing or there is none."""
    if name not in _stored():
        return None
    try:
        return proved(StoredRate(*_stored()[name])).rate
    except FedLinError:
        return None


def attained(what: str, ratios: ArrayLike) -> Row:
    """Whether runs attain what is proved: measured over proved is 1 in all of them."""
    apart = float(np.max(np.abs(np.subtract(ratios, 1))))
    return Row(f"{what}, and that proved", f"{apart:.1e} apart", f"at most {AGREE:g}", ok=apart <= AGREE)


def constant(name: str) -> float:
    """The constant in front of a stored rate."""
    return float(_stored()[name][1])


@cache
def _stored() -> Mapping[str, Proof]:
    text = resources.files("fedlin.claims").joinpath(FILE).read_text(encoding="utf-8")
    proofs: dict[str, Proof] = json.loads(text)
    return proofs


def compute() -> dict[str, Proof]:
    """All proofs, by name; what has none is left out."""
    make, proofs = algorithms.fedlin, dict[str, Proof]()

    def keep(name: str, case: WorstCase) -> None:
        proofs[name] = [case.factor, _short(case.certificate.rounded)]

    def keep_rate(name: str, proved: Callable[[], ProvedRate]) -> None:
        try:
            rate, constant, multipliers = proved().stored
            proofs[name] = [rate, constant, _short(multipliers)]
        except UnboundedError:
            return

    for name, promise in ONE_ROUND.items():
        for kappa in KAPPAS:
            keep(f"{name}, κ = {kappa:g}", promise.case(make, kappa))
    for name, promise in CONVEX.items():
        for rounds in ROUNDS:
            keep(f"{name}, T = {rounds}", promise.case(make, rounds))
    for name, (_, proved) in RATES.items():
        for kappa in KAPPAS:
            keep_rate(f"{name}, κ = {kappa:g}", partial(proved, make, kappa, None))
    for tau in CURVE_TAU:
        for step in CURVE_STEPS:
            keep(f"τ = {tau}, η̄L = {step:g}", curve_case(make, tau, step))
    for tau, step in WORST:
        worst = curve_case(make, tau, step).worst_functions
        arrays = {name: worst.problem.data[name].tolist() for name in ("slopes", "offsets")}
        proofs[_worst_name(tau, step)] = [{**arrays, "x0": worst.x0.tolist()}]
    for delta in SPARSITY:
        for step in SPARSE_STEPS:
            keep(f"plain, δ = {delta:g}, η̄L = {step:g}", sparse_case(make, delta, step))
            keep_rate(f"feedback, δ = {delta:g}, η̄L = {step:g}", partial(sparse_rate, make, delta, step, None))
    for kappa in SCAFFNEW_KAPPAS:
        keep_rate(f"Scaffnew, κ = {kappa:g}", partial(scaffnew, kappa, None))
    for tau, kappa in product(MOMENTUM_TAU, MOMENTUM_KAPPAS):
        keep_rate(f"momentum, τ = {tau}, κ = {kappa:g}", partial(momentum, make, kappa, tau, None))
    return proofs


def _short(multipliers: Sequence[float]) -> list[float]:
    """Ten digits are enough: proofs have a margin for rounding."""
    return [float(f"{value:.10g}") for value in multipliers]


def main() -> None:
    """Compute and store."""
    path = Path(str(resources.files("fedlin.claims").joinpath(FILE)))
    lines = (f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(values)}" for name, values in compute().items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
