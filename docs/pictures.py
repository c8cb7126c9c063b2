"""Draw the README's picture from real runs: `python docs/pictures.py` writes docs/pictures/race.svg and race.json."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import fedlin
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.matplotlib_figures import save
from fedlin.result import first

HOME = Path(__file__).parent / "pictures"
CLIENTS, ROUNDS, GOAL = 20, 250, 1e-10
STEPS = 2.0 ** np.arange(-3, 5.5, 0.5)  # η̄L that every method may choose from
# Every method here lets each client take its own number of local steps.
METHODS: dict[str, fedlin.Algorithm[Any, Any]] = {
    "FedAvg": fedlin.fedavg(),
    "FedNova": fedlin.fednova(),
    "SCAFFOLD": fedlin.scaffold(),
    "FedLin": fedlin.fedlin(),
    "FedLin, 20 of 100 entries in every message": fedlin.compressed(20),
}
# FedLin at steps that nobody tunes, which are proved to converge.
PROVED = {
    "FedLin, Theorem 1's step": fedlin.theory.strongly_convex,
    "FedLin, certified step": fedlin.theory.certified,
}


def problem() -> fedlin.problems.Problem:
    """Linear regression over clients that want different models, on features of uneven scale, as real ones are."""
    draw = np.random.default_rng(0)
    X = draw.standard_normal((CLIENTS, 200, 100)) * np.geomspace(1, 0.14, 100) * draw.uniform(0.5, 2, (CLIENTS, 1, 1))
    truth = draw.standard_normal(100) + 3 * draw.standard_normal((CLIENTS, 100))
    y = np.einsum("inj,ij->in", X, truth) + 0.5 * draw.standard_normal((CLIENTS, 200))
    return fedlin.problems.regression(X, y)


def local_steps() -> Any:
    """τ_i, 2 to 100."""
    return fedlin.draw_steps(CLIENTS, 2, 100, seed=0)


def plan(name: str, eta_bar: float) -> fedlin.Plan:
    """2 to 100 local steps; η_i = η̄/τ_i, or η̄ over the mean τ for FedNova, which takes one η for all."""
    tau = local_steps()
    return fedlin.Plan(tau, eta_bar / tau.mean()) if name == "FedNova" else fedlin.Plan.scaled(tau, eta_bar)


def tuned(name: str) -> tuple[float, fedlin.Result]:
    """The step with the fewest rounds to the goal or, where none leads there, with the smallest gap at the end."""
    instance = problem()
    steps = STEPS / instance.smoothness
    runs = fedlin.simulate_many(METHODS[name], instance, [plan(name, step) for step in steps], ROUNDS)

    def cost(run: fedlin.Result) -> tuple[float, float]:
        if run.status == "diverged":
            return np.inf, np.inf
        reached = first(run.gap, GOAL * run.gap[0])
        return (np.inf if reached is None else reached), float(run.gap[-1])

    best = min(range(len(runs)), key=lambda i: cost(runs[i]))
    return float(steps[best]), runs[best]


def proved(name: str, rounds: int = ROUNDS) -> tuple[float, fedlin.Result]:
    """FedLin with the plan that a theorem gives."""
    instance, tau = problem(), local_steps()
    given = PROVED[name](instance, tau)
    return float((given.eta * tau)[0]), fedlin.simulate(fedlin.fedlin(), instance, given, rounds)


def measure() -> dict[str, Any]:
    """For every method its step, and the gap over that of the start and the bytes sent after every round."""
    found = {}
    for name in (*METHODS, *PROVED):
        step, run = tuned(name) if name in METHODS else proved(name)
        gap = [float(f"{value:.4g}") for value in run.gap / run.gap[0]]
        found[name] = {"eta_bar": step, "gap": gap, "bytes": [int(value) for value in run.bytes]}
    return found


def figure(found: dict[str, Any]) -> Figure:
    """The gap against rounds, and against bytes up to what FedLin's whole messages need for the goal."""
    floor = GOAL / 10
    shown = {name: {key: np.array(run[key]) for key in ("gap", "bytes")} for name, run in found.items()}
    full = shown["FedLin"]
    enough = 1.1 * full["bytes"][np.argmax(full["gap"] <= GOAL)] / 1e6
    rounds, sent = [], []
    for name, run in shown.items():
        gap = np.where(run["gap"] > floor, run["gap"], np.nan)
        megabytes = run["bytes"] / 1e6
        rounds.append(Curve(name, np.arange(len(gap), dtype=float), gap))
        if name in METHODS:
            sent.append(Curve(name, megabytes, np.where(megabytes <= enough, gap, np.nan)))
    label = "f(x) - f*, relative to the start"
    return Figure(
        "race",
        "FedLin against the others",
        (
            Panel("What a round brings", "communication rounds", label, tuple(rounds)),
            Panel("What a byte brings", "megabytes, up and down, all clients", label, tuple(sent)),
        ),
    )


def main() -> None:
    """Run everything and write both files."""
    found = measure()
    HOME.mkdir(exist_ok=True)
    (HOME / "race.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
    png, _ = save(figure(found), HOME)
    png.unlink()


if __name__ == "__main__":
    main()
