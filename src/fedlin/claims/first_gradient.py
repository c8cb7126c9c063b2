"""Section 3: the first mean gradient may be arbitrary, since every round begins from a model and a fresh gradient."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from fedlin import theory
from fedlin.algorithms.factory import factory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.algorithm1 import departure
from fedlin.claims.common.bound_check import Case, Departure, judge
from fedlin.claims.common.curves import stack
from fedlin.claims.common.wrong_methods import LONGER, TRIPLE, must_notice
from fedlin.core import Central, Message, Method, PyTree
from fedlin.engines.simulation.simulate import simulate_many
from fedlin.report.figure import Figure
from fedlin.report.verdict import Row

KAPPA = 10.0
ROUNDS = 1100
SIZE = 100.0  # of g_1 in each entry; that of ∇f(x̄_1) is about 2


@factory()
def misled(method: Method) -> Method:
    """The method whose server receives, in the first phase of the first round, ±SIZE in turn in place of the mean."""
    gradient, *others = method.phases_in(opening=True)

    def mislead(state: PyTree, mean: Message, central: Central) -> PyTree:
        return gradient.server(state, jax.tree.map(_wrong, mean), central)

    return replace(method, opening=(replace(gradient, server=mislead), *others), recipe=None)


def _wrong(node: PyTree) -> PyTree:
    return SIZE * (-1.0) ** jnp.arange(node.shape[0], dtype=node.dtype) if node.ndim == 1 else node


@claim(
    "first-gradient",
    order=115,
    title="The first gradient may be arbitrary",
    section="Rates without compression",
    statement="If g_1 is arbitrary in place of ∇f(x̄_1), the guarantee of Theorem 1 stays: it holds from x̄_2 on, "
    "f(x̄_{T+1}) - f* ≤ (1 - 1/(6κ))^{T-1} (f(x̄_2) - f*).",
    wrong=must_notice({TRIPLE: LONGER}),
)
def check(setting: Setting) -> Outcome:
    """Theorem 1's check, begun where a first gradient that is fifty times too large and wrong in sign has led."""
    numbers, rounds = instances.draws(setting), setting.rounds or ROUNDS
    family = [instances.even_quadratics(n, KAPPA, pull=300) for n in numbers]
    plans = [theory.strongly_convex(p, instances.steps(n)) for n, p in zip(numbers, family, strict=True)]
    runs = simulate_many(misled(setting.fedlin()), family, plans, rounds)
    gaps = stack(runs, "gap", rounds)
    bounds = np.array(
        [theory.bounds.strongly_convex(p, rounds - 1, gap[1]) for p, gap in zip(family, gaps, strict=True)]
    )
    departures = [
        Departure(*departure(family[n], plans[n], runs[n].iterates[1:]), n) for n in range(min(2, len(family)))
    ]
    case = Case(f"quadratics with even slopes, κ = {KAPPA:g}, from x̄_2 on", gaps[:, 1:], bounds, departures)
    panel = case.panel("gap / gap of the second model", bound="bound (1 - 1/(6κ))^T")
    thrown = gaps[:, 1] / gaps[:, 0]
    return judge(
        [case],
        Figure("first-gradient", "FedLin after a wrong first gradient", (panel,)),
        {"clients": "10", "τ": "uniform on {1, ..., 10}", "η": "1/(6Lτ)", "g_1": f"±{SIZE:g} in turn"}
        | {"rounds": str(rounds)},
        rows=[
            Row("gap of x̄_2 over that of x̄_1", f"{thrown.min():.2g} to {thrown.max():.2g}", "above 1: it does mislead",
                bool(np.all(thrown > 1)), premise=True),
        ],
        findings=[
            "An arbitrary g_1 leaves the rate as it is, but not the bound: from x̄_1 the gap may first grow, here up to "
            f"{thrown.max():.0f} times. What is guaranteed is the bound from x̄_2 on."
        ],
    )  # fmt: skip
