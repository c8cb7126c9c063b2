"""Theorem 5: with noisy gradients FedLin contracts to a noise floor, and like 1/T with steps that decay."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlin import algorithms, problems, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.draws import stack
from fedlin.claims.common.rates import thin
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan, draw_steps
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Figure, Panel, Scale
from fedlin.report.verdict import Row

Array = NDArray[Any]
KAPPA, DIM, CLIENTS = 2.0, 5, 5
VARIANCE = 4.0  # of the noise in each entry of a gradient
SIGMA = DIM * VARIANCE  # σ²
SEEDS = 64  # runs that an expectation is the mean of
SURE = 3.0  # standard errors


def distances(family: Sequence[Problem], plans: Sequence[Plan], rounds: int) -> Array:
    """Squared distances (draws, seeds, rounds + 1); every seed of every draw in one program."""
    each = [i for i in range(len(family)) for _ in range(SEEDS)]
    seeds = [*range(SEEDS)] * len(family)
    members = [family[i] for i in each], [plans[i] for i in each]
    runs = simulate_many(algorithms.fedlin(), *members, rounds, seeds=seeds, iterates=False)
    return stack(runs, "distance", rounds).reshape(len(family), SEEDS, rounds + 1)


def error(samples: Array) -> Array:
    """The standard error of the mean over seeds (the last axis but one)."""
    return np.asarray(samples.std(axis=-2, ddof=1) / np.sqrt(SEEDS))


def panel(title: str, samples: Array, bound: Array, xscale: Scale) -> Panel:
    """The first draw: its mean with the band of three standard errors, and the bound."""
    mean, margin = samples.mean(axis=0), SURE * error(samples)
    rounds = np.arange(len(mean), dtype=np.float64)
    low, high = np.maximum(mean - margin, mean / 10), mean + margin
    curves = (
        Curve(f"mean of {SEEDS} runs, ±{SURE:g} standard errors", rounds, mean, low, high),
        Curve("bound of Theorem 5", rounds, bound, kind="theory"),
    )
    shown = tuple(thin(curve, xscale) for curve in curves)
    return Panel(title, "communication round", "mean ‖x̄ - x*‖²", shown, xscale=xscale)


def recursion(
    family: Sequence[Problem], tau: Sequence[Array], rounds: int
) -> tuple[NDArray[np.bool_], list[Row], Panel]:
    """Constant steps: which draws obey the recursion in every round, as far as 64 runs can tell."""
    problem = family[0]  # L and μ are the same for all draws
    eta_bar = 1 / (12 * problem.smoothness)
    # A row for every round, as the decaying steps have, so that both are one program.
    plans = [theory.noisy(p, np.tile(steps, (rounds, 1))) for p, steps in zip(family, tau, strict=True)]
    found = distances(family, plans, rounds)
    allowed = (1 - eta_bar * problem.strong_convexity / 2) * found[..., :-1] + 25 * eta_bar**2 * SIGMA
    excess = found[..., 1:] - allowed  # its expectation is to be at most 0
    mean, margin = excess.mean(axis=1), SURE * error(excess)
    refuted, certain = mean > margin, mean <= -margin
    largest = np.max(found[..., 1:].mean(axis=1) / allowed.mean(axis=1))
    bound = theory.bounds.noisy(problem, rounds, found[0, 0, 0], eta_bar, SIGMA)
    floor = np.median(found[..., rounds // 2 :]) / bound[-1]
    rows = [
        Row("rounds that refute the recursion by 3 standard errors", f"{refuted.sum()}", "0", ok=not refuted.any()),
        Row("rounds that obey it by 3 standard errors", f"{certain.sum()} of {certain.size}"),
        Row("largest left side over right side", f"{largest:.3g}", "at most 1"),
        Row("noise floor over the bound's", f"{floor:.2g}"),
    ]
    return ~refuted.any(axis=1), rows, panel("constant steps, draw 0", found[0], bound, "linear")


def decay(family: Sequence[Problem], tau: Sequence[Array], rounds: int) -> tuple[NDArray[np.bool_], list[Row], Panel]:
    """Steps like 1/t: the bound c/(t + t_0), and the exponent, fitted to eight groups of runs to know its error."""
    plans = [theory.noisy_decaying(p, steps, rounds) for p, steps in zip(family, tau, strict=True)]
    found = distances(family, plans, rounds)
    late = slice(rounds // 4, None)  # where noise is what is left
    time = np.log(np.arange(rounds + 1) + 25 * KAPPA)[late]
    groups = np.log(found.reshape(len(family) * 8, SEEDS // 8, -1).mean(axis=1)[:, late])
    fits = np.polyfit(time, groups.T, 1)[0].reshape(-1, 8)
    exponents, doubts = fits.mean(axis=1), SURE * fits.std(axis=1, ddof=1) / np.sqrt(8)
    told = ", ".join(f"{e:.2f} ± {doubt:.2f}" for e, doubt in zip(exponents, doubts, strict=True))
    bounds = np.array(
        [theory.bounds.noisy_decaying(p, rounds, d[0, 0], SIGMA) for p, d in zip(family, found, strict=True)]
    )
    ratios = np.max(found.mean(axis=1)[:, 1:] / bounds[:, 1:], axis=1)
    held = (exponents - doubts <= -1) & (ratios <= 1)
    rows = [
        Row("steps like 1/t: exponent of t + t_0, each draw ± 3 standard errors", told, "-1 or less", ok=held.all()),
        Row("steps like 1/t: largest measured/bound", f"{ratios.max():.2g}", "at most 1", ok=ratios.max() <= 1),
    ]
    return held, rows, panel("steps like 1/t, draw 0", found[0], bounds[0], "log")


@claim(
    "thm5",
    order=160,
    title="Noisy gradients",
    section="Rates without compression",
    statement="Strongly convex clients, unbiased gradients of variance at most σ², η_i = η̄/τ_i with η̄ < 1/(6L): "
    "E‖x̄_{t+1} - x*‖² ≤ (1 - η̄μ/2) E‖x̄_t - x*‖² + 25η̄²σ², hence O(1/T) with η̄_t = O(1/t).",
)
def check(setting: Setting) -> Outcome:
    """Expectations as means over 64 runs, each compared up to the error of such a mean."""
    rounds = setting.rounds or setting.pick(300, 100)
    numbers = range(min(setting.draws, setting.pick(3, 1)))  # each of them is 64 runs
    family = [problems.noisy(instances.quadratics(n, KAPPA, DIM, CLIENTS), VARIANCE) for n in numbers]
    tau = [draw_steps(CLIENTS, 1, 5, seed=n) for n in numbers]
    obeys, rows, left = recursion(family, tau, rounds)
    decays, more, right = decay(family, tau, 2 * rounds)
    return Outcome(
        rows=(*rows, *more),
        setting={
            "clients": f"{CLIENTS} quadratics, κ = {KAPPA:g}, d = {DIM}",
            "noise": f"variance {VARIANCE:g} an entry, σ² = {SIGMA:g}",
            "runs": f"{SEEDS} a draw",
            "τ": "uniform on {1, ..., 5}",
            "η": "1/(12Lτ); then 4/(μ(t + 25κ)τ)",
        },
        held=int((obeys & decays).sum()),
        draws=len(family),
        figures=(Figure("thm5", "FedLin with noisy gradients", (left, right)),),
    )
