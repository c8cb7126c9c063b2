"""MARINA: compressed gradient differences with whole gradients now and then, where f is not convex."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.curves import Array, stack, summary, thin
from fedlin.claims.common.method_faults import SHORTER, any_fault
from fedlin.compressors import Compressor, natural, rand_k
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Figure, Panel
from fedlin.report.verdict import Row
from fedlin.result import Result

KAPPA = 2.0
KEPT = 3  # entries that are sent
SEEDS = 16  # whose mean stands for the expectation
BENT = 0.3  # λ of the regulariser that bends down
AGREE = 1e-9  # of the largest gradient
FEWEST = 4  # standard deviations by which a share of coins, or a mean, may be off
WATCHED = 60  # other rounds of a run that are looked at


class Family(NamedTuple):
    """A family of problems, and what is sent on it."""

    name: str
    problems: Sequence[Problem]
    compressor: Compressor
    omega: float
    probability: float
    rounds: int
    x0: Array | None
    linear: bool  # whether f has a μ


def _cases(setting: Setting) -> list[Family]:
    numbers = instances.draws(setting)
    quadratics = [instances.even_quadratics(n, KAPPA, flat=5, pull=300) for n in numbers]
    wavy, bent = (
        [instances.waves(n, tilt=5000.0) for n in numbers],
        [instances.small_logistic(n, nonconvex=BENT) for n in numbers],
    )
    few, far, long = rand_k(KEPT, unbiased=True), np.full(10, 3.0), setting.rounds
    flat = Family("quadratics of rank 7 in d = 12", quadratics, few, 12 / KEPT - 1, KEPT / 12, long or 100, None, True)
    wave = Family("x² + 3 sin²x + c_i x", wavy, natural(), 1 / 8, 0.2, long or 8000, np.array([6.0]), True)
    bend = Family(f"logistic regression, λ = {BENT:g}", bent, few, 10 / KEPT - 1, KEPT / 10, long or 300, far, False)
    return setting.pick([flat, wave, bend], [flat, bend])  # each costs a program of its own


@claim(
    "open-marina",
    order=537,
    title="Compressed differences without convexity",
    section=OPEN,
    statement="MARINA at the steps of its theory, η = 1/(L̃(1 + √(c(1 - p)ω/(pm)))): where ‖∇f‖² ≥ 2μ(f - f*), "
    "E(f(x_T) - f*) ≤ (1 - ημ)^T (f(x_0) - f*), with c = 2 and η ≤ p/(2μ); and elsewhere, with c = 1, the mean of "
    "E‖∇f(x_t)‖² over t < T is at most 2(f(x_0) - E f(x_T))/(ηT). Rounds that send gradients in full, a share p of "
    "all, move by -η∇f(x); the move of any other differs from the one before by -η(∇f(x) - ∇f(x⁻)) on average.",
    wrong=any_fault(without=(SHORTER,)),  # it takes no local steps
)
def check(setting: Setting) -> Outcome:
    """Means over seeds against the bounds; and in every round in full, which its bytes tell, the move itself."""
    rows, panels, held = [], [], np.ones(len(instances.draws(setting)), bool)
    for case in _cases(setting):
        method = setting.tested(algorithms.marina(case.compressor, case.probability))
        ratios, strays, shares, follows, curves = [], [], [], [], []
        for problem in case.problems:
            plan = theory.marina(problem, case.omega, case.probability)
            runs = simulate_many(
                method, [problem] * SEEDS, plan, case.rounds, seeds=list(range(SEEDS)), x0=case.x0, iterates=True
            )
            measured, bound = _against_bound(case, problem, plan, runs)
            ratios.append(float(np.max(measured / bound)))
            curves.append(measured / measured[0])
            full = np.concatenate([_in_full(run) for run in runs])
            shares.append((full.mean() - case.probability) / np.sqrt(case.probability / full.size))
            strays.append(max(_stray(problem, plan, run) for run in runs))
            along = np.concatenate([_along(problem, plan, run) for run in runs])
            follows.append((along.mean() - 1) / along.std() * np.sqrt(along.size) if along.size else np.inf)
        ratio, stray, share, follow = (np.array(values) for values in (ratios, strays, shares, follows))
        within = [ratio <= 1 + 1e-9, stray <= AGREE, np.abs(share) <= FEWEST, np.abs(follow) <= FEWEST]
        held &= np.all(within, axis=0)
        what = "gap" if case.linear else "mean ‖∇f‖²"
        rows += [
            Row(f"{case.name}: {what} over its bound", f"{ratio.max():.3g} (worst)", "≤ 1", bool(within[0].all())),
            Row(
                f"{case.name}: moves of rounds in full off -η∇f",
                f"{stray.max():.1e}",
                f"≤ {AGREE:g}",
                bool(within[1].all()),
            ),
            Row(
                f"{case.name}: share of rounds in full off p, in deviations",
                f"{np.abs(share).max():.1f}",
                f"≤ {FEWEST}",
                bool(within[2].all()),
            ),
            Row(
                f"{case.name}: change of the estimate along that of ∇f off its own, in deviations",
                f"{np.abs(follow).max():.1f}",
                f"≤ {FEWEST}",
                bool(within[3].all()),
            ),
        ]
        panels.append(Panel(case.name, "round", f"{what} / the first", (thin(summary("MARINA", np.array(curves))),)))
    return Outcome(
        tuple(rows),
        {"clients": "10", "compression": f"{KEPT} entries of 12 or 10 at random, p = {KEPT}/d; exponents, p = 0.2"}
        | {"means": f"over {SEEDS} seeds"},
        held=int(held.sum()),
        draws=len(held),
        figures=(Figure("open-marina", "Compressed differences", tuple(panels), "Median and range over draws."),),
    )


def _against_bound(case: Family, problem: Problem, plan: Plan, runs: Sequence[Result]) -> tuple[Array, Array]:
    """What the theory bounds, a mean over the seeds, and its bound, from the first round on."""
    if case.linear:
        gap = stack(runs, "gap", case.rounds).mean(axis=0)
        bound = theory.bounds.marina(problem, case.rounds, float(gap[0]), case.omega, case.probability)
        return gap[1:], bound[1:]
    squares = np.mean(stack(runs, "grad_norm", case.rounds) ** 2, axis=0)
    losses = stack(runs, "loss", case.rounds).mean(axis=0)
    T = np.arange(1, case.rounds + 1)
    unit = theory.bounds.marina_nonconvex(problem, case.rounds, 1.0, case.omega, case.probability)[1:]
    return np.cumsum(squares[:-1]) / T, unit * (losses[0] - losses[1:])


def _in_full(run: Result) -> Array:
    """Which rounds from the second on sent whole gradients, by their bytes."""
    sent = np.diff(run.bytes_up)
    return np.asarray(sent[1:] == sent[0])


def _stray(problem: Problem, plan: Plan, run: Result) -> float:
    """How far the rounds in full are from x - η∇f(x), in units of η times the largest gradient."""
    rounds = np.concatenate([[0], 1 + np.flatnonzero(_in_full(run))])
    rounds = rounds[rounds < len(run.iterates) - 1][:: max(1, len(rounds) // 20)]
    slopes = np.array([problem.grad(x) for x in run.iterates[rounds]])
    moves = (run.iterates[rounds] - run.iterates[rounds + 1]) / float(plan.eta)
    return float(np.max(np.linalg.norm(moves - slopes, axis=1)) / np.max(run.grad_norm))


def _along(problem: Problem, plan: Plan, run: Result) -> Array:
    """⟨g - g⁻, ∇f(x) - ∇f(x⁻)⟩/‖∇f(x) - ∇f(x⁻)‖² of rounds that send differences, 1 on average as C is unbiased."""
    moves = np.diff(run.iterates, axis=0) / -float(plan.eta)  # g of every round
    rounds = 1 + np.flatnonzero(~_in_full(run))
    rounds = rounds[rounds < len(moves)]
    # Where all has come to rest a difference is rounding.
    rounds = rounds[np.linalg.norm(moves[rounds - 1], axis=1) > 1e-6 * np.linalg.norm(moves[0])]
    rounds = rounds[:: max(1, len(rounds) // WATCHED)]
    changes = np.array([problem.grad(run.iterates[t]) - problem.grad(run.iterates[t - 1]) for t in rounds])
    changes = changes.reshape(moves[rounds].shape)  # there may be none
    return np.asarray(np.sum((moves[rounds] - moves[rounds - 1]) * changes, axis=1) / np.sum(changes**2, axis=1))
