"""How far from the truth Theorems 1, 2, 4, 7, 8 and 9 are: worst cases over all functions, proved and attained.

The upper bounds are sums of inequalities whose multipliers are stored and are checked here in exact arithmetic. Where
the worst functions are simple, the simulator attains the bounds on them: quadratics of curvature μ for Theorem 1, and
for Theorem 2 functions that are linear but for a neighbourhood of x*. Clients are tilted by linear terms that cancel in
the mean, which changes nothing for FedLin.
"""

from collections.abc import Sequence
from functools import cache, partial

import jax.numpy as jnp
import numpy as np

from fedlin import algorithms, problems
from fedlin.claims.claim import EXACT, Outcome, Setting, claim
from fedlin.claims.common import exact_proofs as proofs
from fedlin.claims.common.bound_check import is_algorithm_1, play
from fedlin.claims.common.wrong_methods import BY_STEPS, FORGETS, LATE_FEDAVG, must_notice
from fedlin.core import Scalar, Vector
from fedlin.engines.simulation.simulate import simulate
from fedlin.problems.problem import Problem
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

TILT = np.array([[50.0], [-50.0]])
# The least that the drop 1 - factor is of the promised one; Theorem 7 is nearly sharp.
AT_LEAST = {"Theorem 1": 1.9, "Theorem 4": 1.9, "Theorem 7": 1.03, "Theorem 8": 2.5, "Theorem 9": 2.5}
ROUNDS = 12  # of the runs on quadratics


@claim(
    "exact-rates",
    order=600,
    title="How loose the theorems are",
    section=EXACT,
    statement="At each theorem's own step, over all functions of its class and any number of clients with two local "
    "steps, FedLin falls at least 1.9 times as fast as Theorems 1 and 4 promise, 1.03 times as fast as Theorem 7 and "
    "2.5 times as fast as Theorems 8 and 9. For convex functions the last model's gap is at most "
    "L‖x̄_1 - x*‖²/(2 + 4η̄LT) and that of the mean of T models L‖x̄_1 - x*‖²/(2 + 2η̄L(T-1)), and no less can be said.",
    wrong=must_notice({}, without=(LATE_FEDAVG, BY_STEPS, FORGETS)),  # few rounds, and equal numbers of steps
)
def check(setting: Setting) -> Outcome:
    """Stored proofs, checked again, beside the promises; then runs on the worst functions."""
    kappas, counts = setting.pick((proofs.KAPPAS, proofs.ROUNDS), ((3.0, 100.0), (1, 4)))
    loose = looseness(algorithms.fedlin, kappas)
    rows = [
        Row(
            f"{name}: proved over promised drop, κ = {kappas[0]:g} to {kappas[-1]:g}",
            f"{min(ratios):.3f} to {max(ratios):.3f}",
            f"at least {AT_LEAST[name]:g}",
            ok=min(ratios) >= AT_LEAST[name],
        )
        for name, ratios in loose.items()
    ]
    quadratic_row, premise = _attained_by_quadratics(setting, kappas)
    gaps = {name: [_proved_gap(name, count) for count in counts] for name in proofs.CONVEX}
    rows += [quadratic_row, *(_attained_by_hinges(setting, name, counts, gaps[name]) for name in proofs.CONVEX)]
    curves = tuple(Curve(name, np.array(kappas), np.array(ratios)) for name, ratios in loose.items())
    panels = [
        Panel("Strongly convex, two local steps", "κ", "drop a round, proved over promised", curves, "log", "linear")
    ]
    for name, proved in gaps.items():
        x = np.array(counts, float)
        promised = np.array([proofs.CONVEX[name].factor(count) for count in counts])
        lines = Curve("proved, and attained", x, np.array(proved)), Curve("promised", x, promised, kind="theory")
        panels.append(Panel(name, "rounds T", "gap / (L distance²)", lines))
    return Outcome(
        (*rows, premise),
        {"clients": "any number, two local steps", "δ": f"{proofs.DELTA:g}", "C of Theorem 9": f"{proofs.SIMILAR:g}"},
        figures=(Figure("exact-rates", "What is proved of the worst case, beside the theorems", tuple(panels)),),
        findings=(
            "Theorems 8 and 9 are compared by the best quadratic Lyapunov function, Theorem 4 by inequalities that "
            "need not be all there are: they may be looser still.",
        ),
    )


@cache
def looseness(make: proofs.Maker, kappas: tuple[float, ...]) -> dict[str, list[float]]:
    """The drop 1 - factor that is proved over the promised one, by theorem and κ; nan where no proof holds."""
    ratios = {}
    for name, promise in proofs.ONE_ROUND.items():
        factors = [proofs.factor(f"{name}, κ = {kappa:g}", partial(promise.case, make, kappa)) for kappa in kappas]
        ratios[name] = [_ratio(factor, promise.factor(kappa)) for factor, kappa in zip(factors, kappas, strict=True)]
    for name, (promised, search) in proofs.RATES.items():
        rates = [proofs.rate(f"{name}, κ = {kappa:g}", partial(search, make, kappa)) for kappa in kappas]
        ratios[name] = [_ratio(rate, promised(kappa)) for rate, kappa in zip(rates, kappas, strict=True)]
    return ratios


def _ratio(proved: float | None, promised: float) -> float:
    return float("nan") if proved is None else (1 - proved) / (1 - promised)


def _proved_gap(name: str, count: int) -> float:
    case = partial(proofs.CONVEX[name].case, algorithms.fedlin, count)
    return proofs.factor(f"{name}, T = {count}", case) or float("nan")


def _attained_by_quadratics(setting: Setting, kappas: Sequence[float]) -> tuple[Row, Row]:
    """Theorem 1's drop on quadratics of curvature μ, every round; and that what ran is FedLin, where clients differ."""
    family = [_flat_quadratics(1 / kappa) for kappa in kappas]
    plans = [proofs.plan_of_two(1 / 6)] * len(family)
    runs = play(setting, family, plans, ROUNDS, x0=np.ones(2), replayed=len(family))
    gaps = runs.curves("gap")
    name = "Theorem 1"
    ratios = []
    for kappa, gap in zip(kappas, gaps, strict=True):
        case = partial(proofs.ONE_ROUND[name].case, algorithms.fedlin, kappa)
        proved = proofs.factor(f"{name}, κ = {kappa:g}", case) or float("nan")
        ratios.append((1 - gap[1:] / gap[:-1]) / (1 - proved))
    what = f"{name}: drop of the gap in each of {ROUNDS} rounds on quadratics of curvature μ"
    return proofs.attained(what, ratios), is_algorithm_1(runs.departures)


def _flat_quadratics(mu: float) -> Quadratic:
    """Two clients, μ‖x‖²/2 tilted; x* = 0."""
    return problems.quadratic(np.array([mu * np.eye(2)] * 2), np.hstack([TILT, -TILT]))


def _attained_by_hinges(setting: Setting, name: str, counts: Sequence[int], proved: Sequence[float]) -> Row:
    """Theorem 2's gap on the function that is linear from x* + 1 to where the models end."""
    last = name.endswith("last model")
    ratios = []
    for count, gap in zip(counts, proved, strict=True):
        eta_bar = 1 / 6 if last else 1 / 10
        slope = 1 / (1 + (2 * count if last else count - 1) * eta_bar)
        problem = _hinges(slope)
        run = simulate(setting.fedlin(), problem, proofs.plan_of_two(eta_bar), count, x0=np.ones(1), iterates=True)
        model = run.x if last else np.mean(run.iterates[:count], axis=0)
        ratios.append(float(problem.gap(model)) / gap)
    what = f"{name}: gap on a function that is linear but near x*, T = {', '.join(map(str, counts))}"
    return proofs.attained(what, ratios)


def _hinges(slope: float) -> Problem:
    """Two clients, tilted; L = 1 and x* = 0."""
    batch = {"slope": np.full(2, slope), "tilt": TILT}
    return problems.from_loss(_hinge, np.zeros(1), batch, smoothness=1.0, strong_convexity=0.0, minimizer=np.zeros(1))


def _hinge(x: Vector, client: dict[str, Vector]) -> Scalar:
    """x²/2 up to |x| = slope, and linear beyond."""
    bent = jnp.minimum(jnp.abs(x[0]), client["slope"])
    value: Scalar = bent * jnp.abs(x[0]) - bent**2 / 2 + client["tilt"] @ x
    return value
