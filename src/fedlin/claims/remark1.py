"""Remark 1: whether FedLin's lower bound applies to every federated algorithm, tried on its own two clients.

On `fedlin.theory.lower_bound.repaired` no step size lets FedLin shrink ‖x̄ - x*‖² by more than (1 - 8/(L+1))² a round,
whatever H. FedSplit with exact proximal steps and s = 1/√L shrinks the entries with curvatures (a, b) by
√|ρ(a)ρ(b)|, ρ(λ) = (1 - sλ)/(1 + sλ), so all by (√L - 1)/(√L + 1) at most: it needs √κ where FedLin needs κ.
"""

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import fall, stack
from fedlin.claims.common.method_faults import SHORTER
from fedlin.claims.thm6 import Sweep
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

CURVATURE = (50.0, 200.0, 1000.0, 4000.0)  # L
STEPS = 8  # H of FedLin
ROUNDS = 3000  # of which the latter half is measured: by then the slowest entry is what is left, at any L here
SEEDS = 8  # runs of Scaffnew, whose coins are random


@claim(
    "remark1",
    order=535,
    title="A lower bound for every algorithm?",
    section=OPEN,
    statement="Remark 1 conjectures that FedLin's lower bound applies to any federated algorithm that communicates "
    "periodically. In the form that matches Theorem 1: on the two clients of that bound no algorithm shrinks "
    "‖x̄ - x*‖² by more than (1 - 8/(L+1))² a round.",
    should_hold=False,  # FedSplit and Scaffnew do
    wrong={SHORTER: "FedSplit with another s beats the bound too; that it is FedSplit is held to its formula."},
)
def check(setting: Setting) -> Outcome:
    """What FedLin at its best step, FedSplit and Scaffnew shrink a round, against FedLin's bound."""
    sizes, rounds = setting.pick(CURVATURE, CURVATURE[:3]), setting.rounds or ROUNDS
    start = np.ones(3)
    shrink: dict[str, list[float]] = {"FedLin at its best step": [], "FedSplit": [], "Scaffnew": []}
    for L in sizes:
        problem = theory.lower_bound.repaired(L)
        best = Sweep(L, STEPS).best(repaired=True)[1]
        runs = {
            "FedLin at its best step": simulate_many(
                setting.fedlin(), problem, [Plan(np.full(2, STEPS), best)], rounds, x0=start
            ),
            "FedSplit": simulate_many(
                setting.tested(algorithms.fedsplit()), problem, [theory.fedsplit(problem)], rounds, x0=start
            ),
            "Scaffnew": simulate_many(
                algorithms.scaffnew(), problem, theory.scaffnew(problem), rounds, x0=start, seeds=[*range(SEEDS)]
            ),
        }
        for name, results in runs.items():
            shrink[name].append(float(np.exp(-np.mean([fall(c) for c in stack(results, "distance", rounds)]))))
    bounds = [theory.lower_bound.rate(L) ** 2 for L in sizes]
    rows = []
    for name, factors in shrink.items():
        obeys = [factor >= bound for factor, bound in zip(factors, bounds, strict=True)]
        words = ", ".join(f"{factor:.4f} (L = {L:g})" for factor, L in zip(factors, sizes, strict=True))
        expected = "at least " + ", ".join(f"{bound:.4f}" for bound in bounds)
        mine = name.startswith("FedLin")
        rows.append(Row(f"{name}: ‖x̄ - x*‖² shrinks a round by", words, expected, all(obeys), premise=mine))
    formula = [((np.sqrt(L) - 1) / (np.sqrt(L) + 1)) ** 2 for L in sizes]
    apart = float(np.max(np.abs(np.array(shrink["FedSplit"]) / formula - 1)))
    rows.append(Row("FedSplit against ((√L-1)/(√L+1))²", f"{apart:.1e} apart", "1e-3", apart <= 1e-3, premise=True))
    slopes = {name: np.polyfit(np.log(sizes), np.log(-np.log(f)), 1)[0] for name, f in shrink.items()}
    rows += [
        Row(f"{name}: its rate goes with L to the power", f"{slope:.2f}", "-1: the bound's")
        for name, slope in slopes.items()
    ]
    curves = [
        Curve(name, np.array(sizes), -np.log(np.array(factors)), kind="points") for name, factors in shrink.items()
    ]
    curves.append(Curve("FedLin's bound", np.array(sizes), -np.log(np.array(bounds)), kind="theory"))
    panel = Panel("The two clients of the lower bound", "L = κ", "fall of log ‖x̄ - x*‖² a round", tuple(curves), "log")
    others = [name for name in shrink if not name.startswith("FedLin")]
    beaten = sum(any(shrink[name][k] < bounds[k] for name in others) for k in range(len(sizes)))
    return Outcome(
        tuple(rows),
        {"clients": "diag(1, 1, L) and diag(L, 1, L)", "FedLin": f"H = {STEPS}, the best of 24 000 η"}
        | {"FedSplit": "s = 1/√L, exact prox", "Scaffnew": "γ = 1/L, p = 1/√L", "counted": "values of L"},
        held=len(sizes) - beaten,
        draws=len(sizes),
        figures=(Figure("remark1", "Who obeys FedLin's lower bound", (panel,)),),
        findings=(
            "FedSplit with exact proximal steps and Scaffnew both need about √κ rounds on the very clients on which "
            "FedLin cannot do with fewer than of order κ: the lower bound is one for FedLin, not for every algorithm. "
            "As printed, exp(-4T), it knows no κ, and neither of them beats it.",
        ),
    )
