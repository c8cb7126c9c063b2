"""Figure 1: FedProx and FedNova trade speed for accuracy on two scalar clients; FedLin has both."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import levels
from fedlin.claims.common.scalars import two_clients
from fedlin.core import Algorithm
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

ETA = (0.1, 0.01, 0.002)
ETA_BAR = 0.5  # FedLin's, so that η = 0.01 where τ = 50
LINEAR, AGREE = 1e-12, 1e-9
SHOWN = 80  # rounds in the picture; the slowest takes four times that to settle to rounding


class Rival(NamedTuple):
    """A method with one η, and ‖x̃* - x*‖² where the surrogate it minimises has its minimiser."""

    method: Algorithm[Any, Any]
    eta: float
    floor: float


@claim(
    "fig1",
    order=50,
    title="Speed against accuracy",
    section="Why the others fall short",
    statement="On f_1 = ½(x-3)², f_2 = (x-50)², a smaller η makes FedProx (H = 50) and FedNova (τ = (50, 30)) more "
    "accurate and slower; FedLin goes to x* fast.",
)
def check(setting: Setting) -> Outcome:
    """The floors against the minimisers of the surrogates of Propositions 1 and 2; FedLin below 1e-12."""
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
    left, left_rows = _panel("FedProx, β = 0 unless told", (50, 50), prox, "Proposition 1", rounds)
    right, right_rows = _panel("FedNova", (50, 30), nova, "Proposition 2", rounds)
    rows = (*left_rows, *right_rows)
    figure = Figure("fig1", "Two scalar clients: only FedLin ends at x*", (left, right))
    told = {"FedLin": f"η̄ = {ETA_BAR:g}, η = η̄/τ", "rounds": f"{rounds}, of which {SHOWN} are drawn"}
    return Outcome(rows, told, held=int(all(row.ok is not False for row in rows)), figures=(figure,))


def _floor(minimizer: NDArray[Any]) -> float:
    return float(np.sum((minimizer - two_clients().minimizer) ** 2))


def _panel(
    name: str, tau: tuple[int, int], rivals: Mapping[str, Rival], proposition: str, rounds: int
) -> tuple[Panel, list[Row]]:
    runs = simulate_many(
        [algorithms.fedlin(), *(rival.method for rival in rivals.values())],
        two_clients(),
        [Plan.scaled(tau, ETA_BAR), *(Plan(tau, rival.eta) for rival in rivals.values())],
        rounds,
    )
    end = float(runs[0].distance[-1])
    title = f"{name}, τ = {tau}"
    rows = [Row(f"τ = {tau}: FedLin ends at ‖x̄ - x*‖²", f"{end:.1e}", f"< {LINEAR:g}", end < LINEAR)]
    settled = []
    for (label, rival), run in zip(rivals.items(), runs[1:], strict=True):
        error = abs(float(run.distance[-1]) / rival.floor - 1)
        settled.append(int(np.argmax(run.distance <= 2 * rival.floor)))
        told = f"{run.distance[-1]:.4g}, {error:.1e} from {proposition}'s; below twice that from round {settled[-1]}"
        rows.append(
            Row(f"{name.split(',')[0]}, {label}: ends at", told, f"{rival.floor:.4g} to {AGREE:g}", error <= AGREE)
        )
    floors, plain = [rival.floor for rival in rivals.values()], slice(0, len(ETA))
    trade = bool(np.all(np.diff(floors[plain]) < 0) and np.all(np.diff(settled[plain]) > 0))
    rows.append(
        Row(f"τ = {tau}: as η falls", "floors fall, rounds rise" if trade else "no trade", "a trade-off", trade)
    )
    curves = [
        Curve(label, np.arange(SHOWN + 1.0), run.distance[: SHOWN + 1])
        for label, run in zip(["FedLin", *rivals], runs, strict=True)
    ]
    curves.append(levels("minimiser of the surrogate", floors, SHOWN))
    return Panel(title, "communication round", "‖x̄ - x*‖²", tuple(curves)), rows
