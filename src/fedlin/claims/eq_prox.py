"""FedProx on two scalar clients: where exactly it stops."""

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.instances import SCALAR_MINIMIZER, two_clients
from fedlin.claims.common.method_faults import HALFWAY, any_fault
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.plan import Plan
from fedlin.report.verdict import Row

PULLS = (0.0, 0.5, 2.0)  # β
SHARES = (0.1, 0.25, 0.5, 0.75, 0.95)  # η as a share of 1/(2+β)
AGREE = 1e-9


@claim(
    "eq-prox",
    order=30,
    title="How far FedProx stops from x*",
    section="Why the others fall short",
    statement="On f_1 = ½(x-3)², f_2 = (x-50)² with τ = 2 and 0 < η < 1/(2+β), FedProx stops "
    "94η/(3[6 - η(5+3β)]) from x* = 103/3.",
    wrong=any_fault(without=(HALFWAY,)),  # it ends at the same point
)
def check(setting: Setting) -> Outcome:
    """The measured limit against the formula on a grid of η and β."""
    rounds = setting.rounds or 400
    grid = [(beta, share / (2 + beta)) for beta in PULLS for share in SHARES]
    runs = simulate_many(
        [setting.tested(algorithms.fedprox(beta)) for beta, _ in grid],
        two_clients(),
        [Plan(2, eta) for _, eta in grid],
        rounds,
    )
    predicted = np.array([94 * eta / (3 * (6 - eta * (5 + 3 * beta))) for beta, eta in grid])
    measured = np.array([abs(run.x[0] - SCALAR_MINIMIZER) for run in runs])
    error = np.abs(measured / predicted - 1)
    rows = []
    for beta in PULLS:
        mine = np.flatnonzero([other == beta for other, _ in grid])
        k = mine[np.argmax(error[mine])]
        where = f"{measured[k]:.10f} at η = {grid[k][1]:.4g}; formula {predicted[k]:.10f}"
        rows.append(Row(f"β = {beta:g}: worst distance from x* of {len(mine)} values of η", where))
        rows.append(Row(f"β = {beta:g}: relative error", f"{error[k]:.1e}", f"at most {AGREE:g}", error[k] <= AGREE))
    settings = {"τ": "2 and 2", "η": "0.1 to 0.95 of 1/(2+β)", "rounds": str(rounds)}
    return Outcome(tuple(rows), settings, held=int(np.all(error <= AGREE)))
