"""How much local steps pay, and where that ends: worst cases over all functions, proved and attained.

Proofs are stored and are checked here in exact arithmetic. They are attained on quadratics of curvature μ while local
steps pay in full, and beyond on stored functions that are piecewise quadratic.
"""

from collections.abc import Sequence
from functools import cache, partial
from math import log

import numpy as np

from fedlin import algorithms, problems, theory
from fedlin.claims.claim import EXACT, Outcome, Setting, claim
from fedlin.claims.common import exact_proofs as proofs
from fedlin.claims.common.bound_check import is_algorithm_1, play
from fedlin.claims.common.wrong_methods import BY_STEPS, FORGETS, LATE_FEDAVG, must_notice
from fedlin.core import Array
from fedlin.engines.simulation.simulate import simulate
from fedlin.plan import Plan
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row
from fedlin.theory.certified_steps import choose

KAPPA = proofs.CURVE_KAPPA
# η̄L up to which local steps pay in full at κ = 10, by τ: proved at every step of the curves up to there.
FULL_UP_TO = {1: 1.8, 2: 3.6, 3: 4.5, 5: 5.0, 8: 5.0}
NEAR = 1e-4  # by how much a proved factor may exceed the full rate
TILT = 20.0
ROUNDS = 4
MANY = np.array([5, 20])  # τ_i of the certified steps in the picture


@claim(
    "exact-local-steps",
    order=610,
    title="How much local steps pay, and where that ends",
    section=EXACT,
    statement="At κ = 10 a round of FedLin with τ equal local steps multiplies ‖x̄ - x*‖² by (1-ημ)^{2τ} at worst, up "
    "to η̄ = 1.8/L, 3.6/L, 4.5/L, 5/L and 5/L for τ = 1, 2, 3, 5 and 8: 0.36 or less where gradient descent's best is "
    "0.669. Beyond, the worst case grows again. The certified steps have at least twice gradient descent's rate "
    "and 50 times Theorem 1's at every κ from 4 to 1000; the rate stays of order 1/κ, as Theorem 6 says, where "
    "Scaffnew's is of order 1/√κ.",
    wrong=must_notice({}, without=(LATE_FEDAVG, BY_STEPS, FORGETS)),  # few rounds, and equal numbers of steps
)
def check(setting: Setting) -> Outcome:
    """Stored proofs, checked again; then runs on the functions that attain them, and the certified steps."""
    counts = setting.pick(proofs.CURVE_TAU, (1, 3, 5))
    factors = {tau: curve(algorithms.fedlin, tau) for tau in counts}
    steps = np.array(proofs.CURVE_STEPS)
    rows = []
    for tau, proved in factors.items():
        inside = steps <= FULL_UP_TO[tau]
        above = float(np.max(proved[inside] - full_rate(tau, steps[inside])))
        rows.append(
            Row(
                f"τ = {tau}: proved factor less (1-ημ)^(2τ), η̄ up to {FULL_UP_TO[tau]:g}/L",
                f"{above:.1e} at most",
                f"at most {NEAR:g}",
                ok=0 <= above + 1e-9 <= NEAR,
            )
        )
    rows.append(_best(factors))
    full_row, premise = _attained_in_full(setting, counts)
    rows += [full_row, _attained_beyond(setting), *_certified()]
    return Outcome(
        (*rows, premise),
        {"clients": "any number, equal local steps", "κ": f"{KAPPA:g}", "certified": f"τ_i = {MANY[0]} and {MANY[1]}"},
        figures=(steps_figure(factors), kappa_figure()),
        findings=(
            "One local step cannot go beyond 2/(L+μ); two go twice as far, and from four on the limit is near 5/L.",
        ),
    )


@cache
def curve(make: proofs.Maker, tau: int) -> Array:
    """The factor at every step of `CURVE_STEPS`; nan where the stored proof does not hold."""
    cases = (partial(proofs.curve_case, make, tau, step) for step in proofs.CURVE_STEPS)
    names = (f"τ = {tau}, η̄L = {step:g}" for step in proofs.CURVE_STEPS)
    factors = [proofs.factor(name, case) for name, case in zip(names, cases, strict=True)]
    return np.array([np.nan if factor is None else factor for factor in factors])


def full_rate(tau: int, eta_bar: Array) -> Array:
    """(1 - ημ)^{2τ} at κ = 10."""
    return np.asarray((1 - eta_bar / tau / KAPPA) ** (2 * tau))


def _best(factors: dict[int, Array]) -> Row:
    """The least factor of five local steps beside gradient descent's, and beside FedLin's lower bound."""
    least, descent = float(np.min(factors[5])), ((KAPPA - 1) / (KAPPA + 1)) ** 2
    lower = theory.lower_bound.rate(KAPPA) ** 2
    return Row(
        "τ = 5: least proved factor",
        f"{least:.4f}, gradient descent's {descent:.4f}",
        f"at most 0.36, at least {lower:.3f} (the repaired Theorem 6)",
        ok=lower <= least <= 0.36,
    )


def _attained_in_full(setting: Setting, counts: Sequence[int]) -> tuple[Row, Row]:
    """The full rate on quadratics of curvature μ, in every round; and that what ran is FedLin."""
    tilt = TILT * np.array([[1.0, 0.0], [-1.0, 0.0]])
    problem = problems.quadratic(np.array([np.eye(2) / KAPPA] * 2), tilt)
    plans = [Plan([tau, tau], FULL_UP_TO[tau] / tau) for tau in counts]
    runs = play(setting, [problem] * len(plans), plans, ROUNDS, x0=np.ones(2), replayed=len(plans))
    distance = runs.curves("distance")
    expected = np.array([full_rate(tau, np.array(FULL_UP_TO[tau])) for tau in counts])
    what = f"quadratics of curvature μ at the largest of these steps: factor in each of {ROUNDS} rounds"
    row = proofs.attained(what, distance[:, 1:] / distance[:, :-1] / expected[:, None])
    return row, is_algorithm_1(runs.departures)


def _attained_beyond(setting: Setting) -> Row:
    """The factor of one round on the worst functions beyond the full rate."""
    ratios = []
    for tau, step in setting.pick(proofs.WORST, proofs.WORST[:2]):
        worst = proofs.worst_functions(tau, step, TILT)
        distance = simulate(setting.fedlin(), worst.problem, worst.plan, 1, x0=worst.x0).distance
        proved = float(curve(algorithms.fedlin, tau)[proofs.CURVE_STEPS.index(step)])
        ratios.append(float(distance[1] / distance[0]) / proved)
    return proofs.attained("beyond, on the worst functions: factor of a round", ratios)


@cache
def rates() -> dict[str, Array]:
    """By how much the logarithm of the squared distance is proved to fall a round, by κ."""
    kappas = np.array(proofs.SCAFFNEW_KAPPAS)
    scaffnew = [proofs.rate(f"Scaffnew, κ = {kappa:g}", partial(proofs.scaffnew, kappa)) for kappa in kappas]
    return {
        "Theorem 1": -np.log1p(-1 / (6 * kappas)),
        "gradient descent, best step": -2 * np.log((kappas - 1) / (kappas + 1)),
        "FedLin, certified": np.array([-log(choose(kappa, MANY).factor) for kappa in kappas]),
        "Scaffnew, √κ local steps": np.array([np.nan if rate is None else -log(rate) for rate in scaffnew]),
    }


def _certified() -> list[Row]:
    """Certified steps beside Theorem 1 and gradient descent, and how rates go with κ."""
    by_method = rates()
    kappas = np.array(proofs.SCAFFNEW_KAPPAS)
    certified = by_method["FedLin, certified"]
    rows = []
    for other, least in (("Theorem 1", 50.0), ("gradient descent, best step", 2.0)):
        ratio = float(np.min(certified / by_method[other]))
        rows.append(
            Row(
                f"certified rate over that of {other}, κ = {kappas[0]:g} to {kappas[-1]:g}",
                f"{ratio:.2f} or more",
                f"at least {least:g}",
                ok=ratio >= least,
            )
        )
    large = kappas >= 10
    for name, expected in (("FedLin, certified", -1.0), ("Scaffnew, √κ local steps", -0.5)):
        slope = float(np.polyfit(np.log(kappas[large]), np.log(by_method[name][large]), 1)[0])
        rows.append(
            Row(f"{name}: the rate goes with κ to the power", f"{slope:.2f}", f"{expected:g} ± 0.1",
                ok=abs(slope - expected) <= 0.1)
        )  # fmt: skip
    return rows


def steps_figure(factors: dict[int, Array]) -> Figure:
    """The factor against the step, for several numbers of local steps."""
    x = np.array(proofs.CURVE_STEPS)
    curves = tuple(Curve(f"τ = {tau}", x, np.where(y <= 1.05, y, np.nan)) for tau, y in factors.items())
    panel = Panel("κ = 10, any number of equal clients", "η̄L", "factor of ‖x - x*‖² a round", curves, yscale="linear")
    return Figure("exact-steps", "What a round of FedLin does at its worst", (panel,))


def kappa_figure() -> Figure:
    """Rounds a factor of e of the squared distance takes, against κ."""
    x = np.array(proofs.SCAFFNEW_KAPPAS)
    curves = tuple(Curve(name, x, 1 / rate) for name, rate in rates().items())
    panel = Panel("proved, for the worst functions", "condition number κ", "rounds a factor e takes", curves, "log")
    return Figure("exact-kappa", "Guaranteed rounds against the condition number", (panel,))
