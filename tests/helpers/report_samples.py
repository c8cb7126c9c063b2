"""Verdicts made up for the tests of the report: every kind of curve, panel and outcome."""

import numpy as np

from fedlin.report.figure import Array, Curve, Figure, Panel
from fedlin.report.verdict import Row, Verdict

ROUNDS = np.arange(0.0, 201.0)


def decay(label: str, rate: float, floor: float = 0.0) -> Curve:
    """A geometric fall to a floor with a band of half an order of magnitude."""
    y = np.maximum(rate**ROUNDS, floor)
    return Curve(label, ROUNDS, y, low=y / 3, high=y * 3)


def line(label: str, y: Array, kind: str = "theory") -> Curve:
    return Curve(label, ROUNDS, y, kind="floor" if kind == "floor" else "theory")


def one_panel() -> Figure:
    curves = (
        decay("FedLin, τᵢ between 1 and 50", 0.88),
        decay("FedAvg with a constant step size η = 0.01", 0.85, 2e-3),
        decay("FedProx, β = 1", 0.9, 8e-3),
        line("the bound of the theorem, (1 - 1/(6κ))ᵗ times the first error", 4 * 0.93**ROUNDS),
        line("predicted floor", np.full_like(ROUNDS, 2e-3), "floor"),
    )
    panel = Panel("Least squares, 20 clients", "communication round", "f(x) − f*", curves)
    return Figure("fig4", "Only FedLin keeps falling.", (panel,), "Median and the range over eight draws.")


def two_panels() -> Figure:
    x = np.logspace(0, 3, 30)
    scatter = np.array([1.0, 10.0, 100.0, 1000.0])
    left = Panel(
        "Rounds to reach 10⁻⁶ against the condition number",
        "condition number κ",
        "rounds until f(x) − f* < 10⁻⁶",
        (
            Curve("measured", scatter, 14 * scatter, low=11 * scatter, high=20 * scatter, kind="points"),
            Curve("6 κ log(1/ε)", x, 83 * x, kind="theory"),
        ),
        xscale="log",
    )
    right = Panel(
        "Share of the surrogate's minimiser",
        "β",
        "distance to x* (relative)",
        (
            Curve("FedProx", x, x / (x + 100), low=x / (x + 120), high=x / (x + 80)),
            Curve("$\\beta$ & <limits>", x, np.ones_like(x), kind="floor"),
        ),
        xscale="log",
        yscale="linear",
    )
    return Figure("rates", "Rates and limits.", (left, right))


def three_panels() -> Figure:
    panels = tuple(
        Panel(
            f"δ = {delta}",
            "round",
            "error",
            (
                *(decay(f"τ = {tau}", 1 - 0.3 / delta / tau**0.3, 1e-9) for tau in (1, 2, 5, 10, 20, 50)),
                line("bound", 2 * (1 - 0.1 / delta) ** ROUNDS),
            ),
        )
        for delta in (1, 2, 4)
    )
    return Figure("thm6", "Compression costs a factor, not the limit.", panels, "Top-k with error feedback.")


def verdicts() -> list[Verdict]:
    """One claim of every outcome, in three sections."""
    return [
        Verdict(
            id="prop1",
            title="FedProx is gradient descent on a surrogate",
            statement="With one exact local solve a round, FedProx moves along the gradient of a smoothed "
            "average, so it settles where that average is least and not at the minimiser.",
            section="Why the others fall short",
            setting={"clients": "20", "dimension": "100", "draws": "8", "step size": "1/(6 L)"},
            rows=(
                Row("largest gap between FedProx and the surrogate's step", "3.1e-15", "< 1e-12", ok=True),
                Row("distance from the minimiser", "0.083"),
            ),
            held=8,
            draws=8,
            figures=(two_panels(),),
            findings=("The surrogate's minimiser moves with β at first order, so no constant β helps.",),
            seconds=1.234,
        ),
        Verdict(
            id="fig4",
            title="FedLin alone converges linearly to the minimiser",
            statement="On heterogeneous least squares FedLin's error falls geometrically.",
            section="Linear convergence",
            setting={"clients": "20"},
            rows=(
                Row("fitted rate", "0.8801", "≤ 0.93", ok=True),
                Row("final error", "1.2e-11", "< 1e-10", ok=True),
            ),
            held=8,
            draws=8,
            figures=(one_panel(),),
            seconds=12.0,
        ),
        Verdict(
            id="thm6",
            title="Sparse uploads keep the linear rate",
            statement="Error feedback makes up for what the compressor drops.",
            section="Compression",
            setting={"compressor": "top-k"},
            rows=(Row("draws under the bound", "6 of 8", "8 of 8", ok=False),),
            held=6,
            draws=8,
            figures=(three_panels(),),
            findings=("The bound needs a step size smaller by a factor of two <than> stated.",),
            seconds=75.0,
        ),
        Verdict(
            id="eq9",
            title="The printed constant",
            statement="The constant is as printed.",
            section="Compression",
            setting={},
            rows=(Row("constant", "18", "12", ok=False),),
            held=12,
            draws=15,
            should_hold=False,
            seconds=0.1,
        ),
        Verdict(
            id="broken",
            title="A claim whose check breaks",
            statement="Nothing is known.",
            section="Compression",
            setting={},
            rows=(),
            held=0,
            error="LinAlgError: singular <matrix>",
        ),
    ]
