"""Do fast machines help or hurt? The rate of FedLin as one client's τ grows, for clients that differ less or more.

In rounds, and in simulated seconds where the fast machine computes `FASTER` times as fast as the others; and what it
brings to begin with the fast machines alone.
"""

from itertools import product

import numpy as np

from fedlin import algorithms, problems
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.curves import fall, of
from fedlin.claims.common.instances import CLIENTS, DIM, draws, quadratics
from fedlin.claims.common.method_faults import SHORTER, any_fault
from fedlin.claims.common.stragglers import race
from fedlin.engines.simulation.simulate import simulate, simulate_many
from fedlin.engines.timing.clock import Clock
from fedlin.plan import Plan
from fedlin.problems.quadratic import Quadratic
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

KAPPA = 1000.0
USUAL = 4  # τ of the other clients
FAST = (1, 4, 16, 64, 256, 1024, 4096)  # τ of the fast one
LEVELS = {"alike": 0.0, "half way": 0.5, "unlike": 1.0}
RULES = ("η̄/τ_i each", "one η for all")
SPEED, FASTER = 100.0, 64.0  # gradients a second of the others, and the fast machine's multiple
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
    "when they are not; in seconds they pay until the others wait for them. Where clients hold data of one kind, to "
    "begin with the fastest (FLANP) takes fewer seconds to the accuracy of all data.",
    wrong=any_fault({SHORTER: "All runs take the shorter steps alike, and their rates are compared with each other."}),
)
def check(setting: Setting) -> Outcome:
    """The fall of log ‖x̄ - x*‖² a round for every τ of the fast client, level of difference and rule."""
    numbers, rounds = draws(setting), setting.rounds or setting.pick(1500, 600)
    members = list(product(LEVELS, RULES, numbers, FAST))
    instances = {(level, n): mixture(n, share) for level, share in LEVELS.items() for n in numbers}
    runs = simulate_many(
        setting.fedlin(),
        [instances[level, n] for level, _, n, _ in members],
        [_plan(instances[level, n], rule, fast) for level, rule, n, fast in members],
        rounds,
        iterates=False,
    )
    rates = np.array([np.nan if run.status == "diverged" else fall(run.distance) for run in runs])
    rates_of = dict(zip(product(LEVELS, RULES), rates.reshape(-1, len(numbers), len(FAST)), strict=True))
    usual = FAST.index(USUAL)
    change = {
        level: np.ptp(rates_of[level, RULES[0]], axis=1) / rates_of[level, RULES[0]][:, usual] for level in LEVELS
    }
    gain = {level: rates_of[level, RULES[1]] / rates_of[level, RULES[1]][:, [usual]] for level in LEVELS}
    steady = np.max([change[level] for level in LEVELS], axis=0) <= EVEN
    endless = np.all(np.diff(gain["alike"][:, usual:], axis=1) > 0, axis=1)
    best = np.nanmax(gain["unlike"], axis=1)
    turns = np.isnan(gain["unlike"][:, -1]) & (best > 1)
    worst = max(float(np.max(values)) for values in change.values())
    total = len(numbers)
    rows: tuple[Row, ...] = (
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
    seconds = np.array([_seconds(fast) for fast in FAST])
    each_second = {level: np.median(rates_of[level, RULES[1]], axis=0) / seconds for level in LEVELS}
    best_second = {level: int(np.argmax(np.nan_to_num(falls, nan=-np.inf))) for level, falls in each_second.items()}
    rows += (
        Row(
            f"one η, a machine × {FASTER:g} as fast: τ that falls most a simulated second",
            ", ".join(f"{FAST[n]} ({level})" for level, n in best_second.items()),
            f"others wait above {USUAL * FASTER:g}",
        ),
    )
    races = [race(n, setting.fedlin()) for n in numbers]
    sooner, exact = np.array([result.gains for result in races]).T
    rows += (
        Row(
            "FLANP: seconds to the accuracy of all data, everyone from the start over fastest first",
            f"× {np.median(sooner):.1f} (median), × {sooner.min():.1f} (least)",
            "above 1",
            bool(np.all(sooner > 1)),
        ),
        Row("FLANP: seconds to x* itself, likewise", f"× {np.median(exact):.2f} (median), × {exact.min():.2f} (least)"),
    )
    panels = tuple(
        Panel(
            f"Clients {level}",
            "local steps of the fast client",
            "fall of log ‖x̄ - x*‖² a round",
            tuple(Curve(rule, np.array(FAST, float), np.median(rates_of[level, rule], axis=0)) for rule in RULES),
            xscale="log",
        )
        for level in LEVELS
    )
    held = steady & endless & turns & (sooner > 1)
    return Outcome(
        rows,
        {"clients": f"{CLIENTS}, nine with τ = {USUAL}", "κ": f"{KAPPA:g}", "η̄": "1/(6L)", "rounds": str(rounds)},
        held=int(held.sum()),
        draws=total,
        figures=(
            Figure("open-fast-machines", "One fast machine", panels, "Medians; a curve ends where runs diverge."),
            Figure(
                "open-fast-machines-seconds",
                "Fast machines and simulated seconds",
                (
                    Panel(
                        f"One η for all, one machine × {FASTER:g} as fast",
                        "local steps of the fast client",
                        "fall of log ‖x̄ - x*‖² a second",
                        tuple(Curve(level, np.array(FAST, float), falls) for level, falls in each_second.items()),
                        xscale="log",
                    ),
                    races[0].panel(),
                ),
                "Medians; a curve ends where runs diverge.",
            ),
        ),
    )


def _seconds(fast: int) -> float:
    """Simulated seconds of a round in which the fast machine takes that many local steps."""
    problem, method, plan = mixture(0, 0.0), algorithms.fedlin(), _plan(mixture(0, 0.0), RULES[0], fast)
    speed = np.full(CLIENTS, SPEED)
    speed[0] *= FASTER
    run = simulate(method, problem, plan, 1)
    return float(Clock(speed).time(run, method, problem, plan).simulated[-1])


def _plan(problem: Quadratic, rule: str, fast: int) -> Plan:
    tau = np.full(CLIENTS, USUAL)
    tau[0] = fast
    eta_bar = 1 / (6 * problem.smoothness)
    return Plan.scaled(tau, eta_bar) if rule == RULES[0] else Plan(tau, eta_bar / USUAL)
