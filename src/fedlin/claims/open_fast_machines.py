"""Do fast machines help or hurt? The rate of FedLin as one client's τ grows, for clients that differ less or more."""

from itertools import product

import numpy as np

from fedlin import algorithms, problems
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.draws import draws, of
from fedlin.claims.instances import CLIENTS, DIM, quadratics
from fedlin.claims.rates import fall
from fedlin.engines.many import simulate_many
from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

KAPPA = 1000.0
USUAL = 4  # τ of the other clients
FAST = (1, 4, 16, 64, 256, 1024, 4096)  # τ of the fast one
LEVELS = {"alike": 0.0, "half way": 0.5, "unlike": 1.0}
RULES = ("η̄/τ_i each", "one η for all")
EVEN = 0.05  # by how much the rate may change and still count as unchanged, relative


def mixture(draw: int, share: float) -> Quadratic:
    """A_i between one matrix for all (share 0) and one of its own each (share 1); every client its own minimiser."""
    own, common = (quadratics(draw, KAPPA, identical=same).data.A for same in (False, True))
    A = share * own + (1 - share) * common
    centres = np.random.default_rng(draw).standard_normal((CLIENTS, DIM))
    return problems.quadratic(A, np.einsum("ijk,ik->ij", A, centres))


@claim(
    "open-fast-machines",
    order=540,
    title="Do fast machines help or hurt?",
    section=OPEN,
    statement="With η_i = η̄/τ_i one client's extra local steps change nothing, however much clients differ. With one "
    "step size for all they speed FedLin up without end when clients are alike, and up to a point, then to divergence, "
    "when they are not.",
)
def check(setting: Setting) -> Outcome:
    """The fall of log ‖x̄ - x*‖² a round for every τ of the fast client, level of difference and rule."""
    numbers, rounds = draws(setting), setting.rounds or setting.pick(1500, 600)
    members = list(product(LEVELS, RULES, numbers, FAST))
    instances = {(level, n): mixture(n, share) for level, share in LEVELS.items() for n in numbers}
    runs = simulate_many(
        algorithms.fedlin(),
        [instances[level, n] for level, _, n, _ in members],
        [_plan(instances[level, n], rule, fast) for level, rule, n, fast in members],
        rounds,
        iterates=False,
    )
    rates = np.array([np.nan if run.status == "diverged" else fall(run.distance) for run in runs])
    found = dict(zip(product(LEVELS, RULES), rates.reshape(-1, len(numbers), len(FAST)), strict=True))
    usual = FAST.index(USUAL)
    change = {level: np.ptp(found[level, RULES[0]], axis=1) / found[level, RULES[0]][:, usual] for level in LEVELS}
    gain = {level: found[level, RULES[1]] / found[level, RULES[1]][:, [usual]] for level in LEVELS}
    steady = np.max([change[level] for level in LEVELS], axis=0) <= EVEN
    endless = np.all(np.diff(gain["alike"][:, usual:], axis=1) > 0, axis=1)
    best = np.nanmax(gain["unlike"], axis=1)
    turns = np.isnan(gain["unlike"][:, -1]) & (best > 1)
    worst = max(float(np.max(values)) for values in change.values())
    total = len(numbers)
    rows = (
        Row("η̄/τ_i: largest change of the rate", f"{worst:.1%}", f"at most {EVEN:.0%}", bool(steady.all())),
        Row(
            "one η, alike: the rate still rises at τ = 4096",
            f"{of(int(endless.sum()), total)}, × {np.median(gain['alike'][:, -1]):.0f} (median)",
            "all",
            bool(endless.all()),
        ),
        Row(
            "one η, unlike: faster first, diverges at τ = 4096",
            f"{of(int(turns.sum()), total)}, at best × {np.median(best):.1f} (median)",
            "all",
            bool(turns.all()),
        ),
    )
    panels = tuple(
        Panel(
            f"Clients {level}",
            "local steps of the fast client",
            "fall of log ‖x̄ - x*‖² a round",
            tuple(Curve(rule, np.array(FAST, float), np.median(found[level, rule], axis=0)) for rule in RULES),
            xscale="log",
        )
        for level in LEVELS
    )
    held = steady & endless & turns
    return Outcome(
        rows,
        {"clients": f"{CLIENTS}, nine with τ = {USUAL}", "κ": f"{KAPPA:g}", "η̄": "1/(6L)", "rounds": str(rounds)},
        held=int(held.sum()),
        draws=total,
        figures=(
            Figure("open-fast-machines", "One fast machine", panels, "Medians; a curve ends where runs diverge."),
        ),
    )


def _plan(problem: Quadratic, rule: str, fast: int) -> Plan:
    tau = np.full(CLIENTS, USUAL)
    tau[0] = fast
    eta_bar = 1 / (6 * problem.smoothness)
    return Plan.scaled(tau, eta_bar) if rule == RULES[0] else Plan(tau, eta_bar / USUAL)
