"""Sections 5 and 6 beyond their theorems: convex and non-convex problems, and compression at both ends at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common import instances
from fedlin.claims.common.algorithm1 import TopK
from fedlin.claims.common.bound_check import CAPTION, Departure, is_algorithm_1, play
from fedlin.claims.common.curves import floors, summary, thin
from fedlin.claims.common.wrong_methods import (
    LONGER,
    STALE,
    SWAPPED,
    THIRD,
    TRIPLE,
    must_notice,
)
from fedlin.core import Array
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row

DELTA = 4  # δ on either side, about
STEPS = (1, 4)  # η̄ = 1/(Lδ), 1/(4Lδ)
SMALL = 5e-2  # of the start: what counts as having come to a neighbourhood
EXACT = 1e-12  # of the start: what counts as having come to a stationary point itself
SERVER, CLIENTS, BOTH = "server alone", "clients alone", "both ends"


class Levels(NamedTuple):
    """‖∇f‖² over the first, (draws, rounds + 1), of one way to compress at one step."""

    curves: Array
    departures: list[Departure]

    @property
    def last(self) -> Array:
        """Where each draw ends."""
        return floors(self.curves)


def levels(setting: Setting, family: Sequence[Problem], way: str, part: int, rounds: int) -> Levels:
    """Runs with TOP-k and error feedback, η̄ = 1/(part · Lδ)."""
    sparse = TopK(
        family[0].dim // DELTA, feedback=True
    )  # of quadratics the k of Theorems 8 and 9, whose programs it shares
    plans = [Plan.scaled(instances.steps(n), 1 / (part * DELTA * p.smoothness)) for n, p in enumerate(family)]
    up, down = (None if way == SERVER else sparse), (None if way == CLIENTS else sparse)
    runs = play(setting, family, plans, rounds, up=up, down=down)
    slopes = runs.curves("grad_norm") ** 2
    return Levels(slopes / slopes[:, :1], runs.departures)


@claim(
    "combined",
    order=240,
    title="Compression on convex and non-convex problems, and at both ends",
    section="Compression",
    statement="With error-feedback TOP-k at the server FedLin comes to a stationary point of convex and non-convex "
    "problems as of strongly convex ones. With the same k at the clients instead, or at both ends, it comes to a "
    "neighbourhood, and to a smaller one with smaller steps.",
    wrong=must_notice(
        {
            THIRD: "The statement names no step size, and a smaller one leads to a smaller neighbourhood.",
            TRIPLE: LONGER,
            STALE: "A delay of one round is nothing beside the delay of the feedback.",
            SWAPPED: "Without feedback there is a neighbourhood too; the statement does not say how wide.",
        },
        links=True,
    ),
)
def check(setting: Setting) -> Outcome:
    """‖∇f‖² on three kinds of problem; nothing is known of the constants, so all is measured."""
    rounds = setting.rounds or setting.pick(1500, 1200)
    numbers = instances.draws(setting)
    families: dict[str, Sequence[Problem]] = {
        "strongly convex quadratics": [instances.even_quadratics(n, 2.0, pull=1.0) for n in numbers],
        "convex logistic regression": [instances.small_logistic(n) for n in numbers],
        "non-convex logistic regression": [instances.small_logistic(n, nonconvex=0.3) for n in numbers],
    }
    if setting.quick:  # the others take seconds to compile
        families = {name: family for name, family in families.items() if "quadratics" in name}
    rows, panels, findings, departures = [], [], [], []
    held = np.full(len(numbers), True)
    for name, family in families.items():
        server = levels(setting, family, SERVER, STEPS[0], rounds)
        coarse, fine = (levels(setting, family, BOTH, part, rounds) for part in STEPS)
        shown = {f"{SERVER}, η̄ = 1/({STEPS[0]}Lδ)": server}
        shown |= {f"{BOTH}, η̄ = 1/({part}Lδ)": runs for part, runs in zip(STEPS, (coarse, fine), strict=True)}
        ratio = coarse.last / fine.last
        exact, near, shrinks = server.last <= EXACT, coarse.last < SMALL, ratio > 1
        good = exact & near & shrinks
        rows += [
            Row(f"{name}, {SERVER}: last ‖∇f‖² / first", _range(server.last), f"at most {EXACT:g}", bool(exact.all())),
            Row(f"{name}, {BOTH}: last ‖∇f‖² / first", _range(coarse.last), f"below {SMALL:g}", bool(near.all())),
            Row(f"{name}, {BOTH}: a step 4 times smaller lowers it by", _range(ratio), "above 1", bool(shrinks.all())),
        ]
        findings.append(
            f"{name}: with TOP-k at both ends the floor of ‖∇f‖² goes like η̄ to the power "
            f"{np.median(np.log(ratio)) / np.log(STEPS[1] / STEPS[0]):.2f}."
        )
        if family is next(iter(families.values())):  # a program more, and once is enough to tell
            clients = levels(setting, family, CLIENTS, STEPS[0], rounds)
            more = clients.last > 1e3 * server.last
            good &= more
            shown[f"{CLIENTS}, η̄ = 1/({STEPS[0]}Lδ)"] = clients
            words = f"{_range(clients.last)} against {_range(server.last)}"
            rows.append(
                Row(f"{name}: same k at the clients against the server", words, "1000 times more", bool(more.all()))
            )
        held &= good
        departures += [departure for kind in shown.values() for departure in kind.departures]
        curves = tuple(_curve(label, runs.curves) for label, runs in shown.items())
        panels.append(Panel(name, "communication round", "‖∇f‖² / the first", curves))
    return Outcome(
        rows=(*rows, is_algorithm_1(departures)),
        setting={
            "clients": "10",
            "k": f"d/{DELTA} wherever it is sparse",
            "τ": "uniform on {1, ..., 10}",
            "η̄": f"1/({STEPS[0]}Lδ) unless said",
            "rounds": str(rounds),
        },
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("combined", "TOP-k with error feedback, where it is applied", tuple(panels), CAPTION),),
        findings=tuple(findings),
    )


def _range(values: NDArray[np.float64]) -> str:
    return f"{np.median(values):.2g} (median), {values.max():.2g} (largest)"


def _curve(label: str, curves: Array) -> Curve:
    return thin(summary(label, np.maximum(curves, 1e-32)))
