"""Theorem 5: with noisy gradients FedLin contracts to a noise floor, and like 1/T with steps that decay.

The proof ends with 2η̄(1 - 6η̄L)(f(x̄) - f*), which is η̄μ/2 ‖x̄ - x*‖² at least only where 12η̄L ≤ 1. So the theorem is
proven for η̄ ≤ 1/(12L), half of what it is stated for; beyond, it is measured here.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedlin import problems, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.bound_check import is_algorithm_1, play
from fedlin.claims.common.curves import stack, thin
from fedlin.claims.common.wrong_methods import LONGER, STALE, THIRD, TRIPLE, must_notice
from fedlin.core import Array
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Figure, Panel, Scale
from fedlin.report.verdict import Row
from fedlin.theory.steps import DECAY

KAPPA, DIM = 2.0, 5
PULL = 300.0  # how far clients pull apart: what FedAvg ends at is then above the noise floor
VARIANCE = 1e-5  # of the noise in each entry of a gradient
SIGMA = DIM * VARIANCE  # σ²
LOUD = 1e7  # times that variance where steps decay, so that noise is soon all that is left
SEEDS = (64, 16)  # runs that an expectation is the mean of, in full and on a quick run
GROUPS = 8  # of runs, to know the error of what is fitted to them
SURE = 3.0  # standard errors
STATED = 0.99  # of 1/(6L), which the theorem is stated below; the proof needs half


class Checked(NamedTuple):
    """Which draws obeyed, the rows that say so, and a picture."""

    held: NDArray[np.bool_]
    rows: list[Row]
    panel: Panel


def distances(setting: Setting, family: Sequence[Problem], plans: Sequence[Plan], rounds: int) -> Array:
    """Squared distances (draws, seeds, rounds + 1); every seed of every draw in one program."""
    count = setting.pick(*SEEDS)
    each = [i for i in range(len(family)) for _ in range(count)]
    members = [family[i] for i in each], [plans[i] for i in each]
    runs = simulate_many(setting.fedlin(), *members, rounds, seeds=[*range(count)] * len(family), iterates=False)
    return stack(runs, "distance", rounds).reshape(len(family), count, rounds + 1)


def error(samples: Array) -> Array:
    """The standard error of the mean over seeds (the last axis but one)."""
    return np.asarray(samples.std(axis=-2, ddof=1) / np.sqrt(samples.shape[-2]))


def panel(title: str, samples: Array, bound: Array, xscale: Scale) -> Panel:
    """The first draw: its mean with the band of three standard errors, and the bound."""
    mean, margin = samples.mean(axis=0), SURE * error(samples)
    rounds = np.arange(len(mean), dtype=np.float64)
    low, high = np.maximum(mean - margin, mean / 10), mean + margin
    curves = (
        Curve(f"mean of {len(samples)} runs, ±{SURE:g} standard errors", rounds, mean, low, high),
        Curve("bound of Theorem 5", rounds, bound, kind="theory"),
    )
    shown = tuple(thin(curve, xscale) for curve in curves)
    return Panel(title, "communication round", "mean ‖x̄ - x*‖²", shown, xscale=xscale)


def recursion(
    setting: Setting, family: Sequence[Problem], tau: Sequence[Array], rounds: int, eta_bar: float, name: str
) -> Checked:
    """Constant steps: which draws obey the recursion in every round, as far as the runs can tell."""
    mu = family[0].strong_convexity  # L and μ are the same for all draws
    # A row for every round, as the decaying steps have, so that all are one program.
    plans = [Plan.scaled(np.broadcast_to(steps, (rounds, instances.CLIENTS)), eta_bar) for steps in tau]
    reached = distances(setting, family, plans, rounds)
    allowed = (1 - eta_bar * mu / 2) * reached[..., :-1] + 25 * eta_bar**2 * SIGMA
    excess = reached[..., 1:] - allowed  # its expectation is to be at most 0
    mean, margin = excess.mean(axis=1), SURE * error(excess)
    refuted = ~(mean <= margin)  # NaN refutes
    ratios = reached[..., 1:].mean(axis=1) / allowed.mean(axis=1)
    worst = np.unravel_index(np.argmax(np.where(np.isnan(ratios), np.inf, ratios)), ratios.shape)
    bound = theory.bounds.noisy(family[0], rounds, reached[0, 0, 0], eta_bar, SIGMA)
    floor = np.median(reached[..., rounds // 2 :]) / bound[-1]
    rows = [
        Row(f"{name}: rounds that refute the recursion by 3 standard errors", f"{refuted.sum()}", "0", ~refuted.any()),
        Row(
            f"{name}: largest left side over right side",
            f"{ratios[worst]:.3g} in round {worst[1] + 1} (draw {worst[0]}); {ratios[:, -1].max():.2g} at the end, "
            f"where the bound is {bound[-1] / bound[0]:.1e} of the start",
        ),
        Row(f"{name}: noise floor over the bound's", f"{floor:.2g}"),
    ]
    return Checked(~refuted.any(axis=1), rows, panel(f"{name}, draw 0", reached[0], bound, "linear"))


def decay(setting: Setting, family: Sequence[Problem], tau: Sequence[Array], rounds: int) -> Checked:
    """Steps like 1/t: the bound c/(t + t_0), and the exponent, fitted to groups of runs to know its error."""
    plans = [theory.noisy_decaying(p, steps, rounds) for p, steps in zip(family, tau, strict=True)]
    reached = distances(setting, family, plans, rounds)
    late = slice(rounds // 4, None)  # where noise is what is left
    time = np.log(np.arange(rounds + 1) + DECAY * KAPPA)[late]
    each = reached.shape[1] // GROUPS
    groups = np.log(reached.reshape(len(family) * GROUPS, each, -1).mean(axis=1)[:, late])
    finite = np.isfinite(groups).all()
    fits = np.polyfit(time, groups.T, 1)[0].reshape(-1, GROUPS) if finite else np.zeros((len(family), GROUPS))
    exponents, doubts = fits.mean(axis=1), SURE * fits.std(axis=1, ddof=1) / np.sqrt(GROUPS)
    words = ", ".join(f"{e:.2f} ± {doubt:.2f}" for e, doubt in zip(exponents, doubts, strict=True))
    bounds = np.array(
        [theory.bounds.noisy_decaying(p, rounds, d[0, 0], LOUD * SIGMA) for p, d in zip(family, reached, strict=True)]
    )
    ratios = np.max(reached.mean(axis=1)[:, 1:] / bounds[:, 1:], axis=1)
    falls, below = exponents - doubts <= -1, ratios <= 1
    rows = [
        Row("steps like 1/t: exponent of t + t_0, each draw ± 3 standard errors", words, "-1 or less", falls.all()),
        Row("steps like 1/t: largest measured/bound", f"{ratios.max():.2g}", "at most 1", below.all()),
    ]
    return Checked(falls & below, rows, panel("steps like 1/t, draw 0", reached[0], bounds[0], "log"))


@claim(
    "thm5",
    order=160,
    title="Noisy gradients",
    section="Rates without compression",
    statement="Strongly convex clients, unbiased gradients of variance at most σ², η_i = η̄/τ_i with η̄ < 1/(6L): "
    "E‖x̄_{t+1} - x*‖² ≤ (1 - η̄μ/2) E‖x̄_t - x*‖² + 25η̄²σ², hence O(1/T) with η̄_t = O(1/t).",
    wrong=must_notice(
        {
            THIRD: "A third of the step still contracts by 2/3 η̄μ a round, and η̄μ/2 is asked.",
            TRIPLE: LONGER,
            STALE: "A delay of one round costs less than the factor 4 that the statement leaves.",
        }
    ),
)
def check(setting: Setting) -> Outcome:
    """Expectations as means over runs, each compared up to the error of such a mean."""
    rounds = setting.rounds or setting.pick(150, 100)
    numbers = range(min(setting.draws, setting.pick(2, 1)))  # each of them is many runs
    exact = [instances.even_quadratics(n, KAPPA, DIM, pull=PULL) for n in numbers]
    family = [problems.noisy(problem, VARIANCE) for problem in exact]
    loud = [problems.noisy(problem, LOUD * VARIANCE) for problem in exact]
    tau = [instances.steps(n) for n in numbers]
    L = family[0].smoothness
    proven = recursion(setting, family, tau, rounds, 1 / (12 * L), "η̄ = 1/(12L), as proven")
    stated = recursion(setting, family, tau, rounds, STATED / (6 * L), f"η̄ = {STATED:g}/(6L), as stated")
    decays = decay(setting, loud, tau, 2 * rounds)
    same = [
        instances.even_quadratics(n, KAPPA, pull=PULL) for n in instances.draws(setting)
    ]  # of a shape that others have
    plans = [theory.noisy(problem, instances.steps_by_round(n, rounds)) for n, problem in enumerate(same)]
    premise = is_algorithm_1(play(setting, same, plans, rounds).departures)
    return Outcome(
        rows=(*proven.rows, *stated.rows, *decays.rows, replace(premise, what=f"without noise, {premise.what}")),
        setting={
            "clients": f"{instances.CLIENTS} quadratics, κ = {KAPPA:g}, d = {DIM}",
            "noise": f"variance {VARIANCE:g} an entry, σ² = {SIGMA:g}; with steps like 1/t {LOUD * VARIANCE:g}",
            "runs": f"{setting.pick(*SEEDS)} a draw",
            "τ": "uniform on {1, ..., 10}",
            "η̄": f"1/(12L); {STATED:g}/(6L); 4/(μ(t + {DECAY}κ))",
        },
        held=int((proven.held & stated.held & decays.held).sum()),
        draws=len(family),
        figures=(Figure("thm5", "FedLin with noisy gradients", (proven.panel, stated.panel, decays.panel)),),
        findings=(
            "Erratum: Theorem 5 is stated for η̄ < 1/(6L), but the last step of its proof needs 12η̄L ≤ 1. What is "
            "proven is η̄ ≤ 1/(12L), and that is what fedlin.theory allows; between the two the recursion is "
            + ("measured to hold here." if stated.held.all() else "measured to fail here."),
        ),
    )
