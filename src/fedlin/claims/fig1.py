"""Figure 1: FedProx and FedNova trade speed for accuracy on two scalar clients; FedLin has both."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.algorithm1 import departure
from fedlin.claims.common.bound_check import Departure, is_algorithm_1
from fedlin.claims.common.curves import levels
from fedlin.claims.common.figure_runs import open_choices
from fedlin.claims.common.instances import two_clients
from fedlin.claims.common.wrong_methods import TRIPLE, must_notice
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row
from fedlin.result import first

ETA = (0.1, 0.01, 0.002)
ETA_BAR = 0.5  # FedLin's, so that η = 0.01 where τ = 50
LINEAR, AGREE = 1e-12, 1e-9
SHOWN = 80  # rounds in the picture; the slowest takes four times that to settle to rounding


class Rival(NamedTuple):
    """A method with one η, and ‖x̃* - x*‖² where the surrogate it minimises has its minimiser."""

    method: Method
    eta: float
    floor: float


class Half(NamedTuple):
    """One panel of the figure, what it shows in numbers, and how far FedLin's run is from Algorithm 1."""

    panel: Panel
    rows: list[Row]
    departure: Departure


@claim(
    "fig1",
    order=50,
    title="Speed against accuracy",
    section="Why the others fall short",
    statement="On f_1 = ½(x-3)², f_2 = (x-50)², a smaller η makes FedProx (H = 50) and FedNova (τ = (50, 30)) more "
    "accurate and slower; FedLin goes to x* fast: to 10⁻¹² before the most accurate of them comes near its own limit.",
    wrong=must_notice({TRIPLE: "On two scalars a step three times as long still converges, and fast."}),
)
def check(setting: Setting) -> Outcome:
    """The floors against the minimisers of the surrogates of Propositions 1 and 2; FedLin below 1e-12, and soon."""
    rounds = setting.rounds or 300
    problem = two_clients()
    prox = {
        f"η = {eta:g}" + f", β = {beta:g}" * (beta > 0): Rival(
            algorithms.fedprox(beta), eta, _floor(theory.surrogate.fedprox(problem, 50, eta, beta).minimizer)
        )
        for beta, eta in ((0.0, ETA[0]), (0.0, ETA[1]), (0.0, ETA[2]), (2.0, ETA[1]))
    }
    nova = {
        f"η = {eta:g}": Rival(
            algorithms.fednova(), eta, _floor(theory.surrogate.fednova(problem, (50, 30), eta).minimizer)
        )
        for eta in ETA
    }
    left = _half(setting, "FedProx, β = 0 unless said", (50, 50), prox, "Proposition 1", rounds)
    right = _half(setting, "FedNova", (50, 30), nova, "Proposition 2", rounds)
    rows = (*left.rows, *right.rows, is_algorithm_1([left.departure, right.departure]))
    figure = Figure("fig1", "Two scalar clients: only FedLin ends at x*", (left.panel, right.panel))
    words = open_choices(
        η=", ".join(f"{eta:g}" for eta in ETA), β="0 and 2", η̄=f"{ETA_BAR:g} for FedLin", start="0", rounds=f"{rounds}"
    )
    held = int(all(row.ok is not False for row in rows))
    return Outcome(
        rows,
        words | {"drawn": f"{SHOWN} rounds"},
        held=held,
        figures=(figure,),
        findings=("The paper prints no step sizes for this figure; all of them are ours.",),
    )


def _floor(minimizer: Array) -> float:
    return float(np.sum((minimizer - two_clients().minimizer) ** 2))


def _half(
    setting: Setting, name: str, tau: tuple[int, int], rivals: Mapping[str, Rival], proposition: str, rounds: int
) -> Half:
    plan = Plan.scaled(tau, ETA_BAR)
    runs = simulate_many(
        [setting.fedlin(), *(rival.method for rival in rivals.values())],
        two_clients(),
        [plan, *(Plan(tau, rival.eta) for rival in rivals.values())],
        rounds,
    )
    mine = runs[0]
    end = float(mine.distance[-1]) if mine.status != "diverged" else np.inf
    rows = [Row(f"τ = {tau}: FedLin ends at ‖x̄ - x*‖²", f"{end:.1e}", f"< {LINEAR:g}", end < LINEAR)]
    settled = []
    for (label, rival), run in zip(rivals.items(), runs[1:], strict=True):
        error = abs(float(run.distance[-1]) / rival.floor - 1)
        settled.append(int(np.argmax(run.distance <= 2 * rival.floor)))
        words = f"{run.distance[-1]:.4g}, {error:.1e} from {proposition}'s; below twice that from round {settled[-1]}"
        rows.append(
            Row(f"{name.split(',')[0]}, {label}: ends at", words, f"{rival.floor:.4g} to {AGREE:g}", error <= AGREE)
        )
    floors, plain = [rival.floor for rival in rivals.values()], slice(0, len(ETA))
    trade = bool(np.all(np.diff(floors[plain]) < 0) and np.all(np.diff(settled[plain]) > 0))
    slowest = settled[int(np.argmin(floors))]
    arrival = first(mine.distance, LINEAR)
    rows += [
        Row(f"τ = {tau}: as η falls", "floors fall, rounds rise" if trade else "no trade", "a trade-off", trade),
        Row(
            f"τ = {tau}: rounds of FedLin to {LINEAR:g}, of the most accurate rival to twice its floor",
            f"{'never' if arrival is None else arrival}, {slowest}",
            "FedLin fewer",
            arrival is not None and arrival < slowest,
        ),
    ]
    curves = [
        Curve(label, np.arange(len(run.distance[: SHOWN + 1]), dtype=np.float64), run.distance[: SHOWN + 1])
        for label, run in zip(["FedLin", *rivals], runs, strict=True)
    ]
    curves.append(levels("minimiser of the surrogate", floors, SHOWN))
    panel = Panel(f"{name}, τ = {tau}", "communication round", "‖x̄ - x*‖²", tuple(curves))
    return Half(panel, rows, Departure(*departure(two_clients(), plan, mine.iterates), 0))
