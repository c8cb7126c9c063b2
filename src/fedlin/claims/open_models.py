"""Models compressed as well as gradients: bytes to an accuracy for every method, each as it was tuned."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.bytes_methods import (
    PAPER,
    SMALL,
    STIFF,
    TUNED,
    instance,
    methods,
    most_rounds,
    plan,
)
from fedlin.claims.common.curves import thin
from fedlin.claims.common.instances import draws
from fedlin.core import Array
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.problems.problem import Problem
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.verdict import Row
from fedlin.result import Result, first

GOALS = (1e-4, 1e-8, 1e-12)  # of the first gap
AIM = 5.0  # times fewer bytes than the paper's best setting
NEAR = 2.5  # a method that takes more than this times the least bytes on draw 0 is not run on the others
SHOWN = 8  # curves in a panel
MOST_DRAWS = 4  # each is a run of every method that comes near
LEAST = "FedSplit"  # what takes the fewest bytes on the stiff quadratics
CAPTION = f"The best {SHOWN}, on draw 0."
COUNTED = {
    "steps": "tuned on other draws",
    "bytes": "of all clients; medians over the draws",
    "never": "the latter half of the rounds brought nothing",
}
Runs = Mapping[str, list[Result]]  # by method, one a draw


@claim(
    "open-models",
    order=520,
    title="Models compressed as well as gradients",
    section=OPEN,
    statement="On badly conditioned quadratics (κ = 1000) FedLin whose four messages travel as changes in few bits, "
    "models too, comes to 10⁻¹² of the first gap with at least five times fewer bytes than FedLin as in the paper at "
    "its best. It is not the least of all: where every method may send float32 or float16, FedSplit takes fewer.",
)
def check(setting: Setting) -> Outcome:
    """Bytes when the gap is first small enough; the paper's best is the best of its settings, draw by draw."""
    numbers = draws(setting)[:MOST_DRAWS]
    stiff = run_methods(STIFF, setting.pick(tuple(methods()), (SMALL, PAPER[0], LEAST)), numbers, setting.rounds)
    everywhere = {name: costs(results) for name, results in stiff.items() if len(results) == len(numbers)}
    paper = np.min([everywhere[name] for name in PAPER if name in everywhere], axis=0) / everywhere[SMALL]
    others = everywhere[LEAST] / everywhere[SMALL]
    held = (paper >= AIM) & (others < 1)
    rows = [
        *bills(STIFF, stiff),
        compared(STIFF, "the paper's best setting", SMALL, paper, paper >= AIM, f"at least × {AIM:g}"),
        compared(STIFF, _title(STIFF, LEAST), SMALL, others, others < 1, "below × 1"),
    ]
    return Outcome(
        tuple(rows),
        {"clients": "20", "d": "100", "rounds": f"at most {setting.rounds or most_rounds(STIFF, 1)}"}
        | {"draw 0 only": f"× {NEAR:g} of the least bytes and more", "draws": str(len(numbers))}
        | COUNTED,
        held=int(held.sum()),
        draws=len(numbers),
        figures=(Figure("open-models", "Bytes to accuracy", (panel(STIFF, stiff),), CAPTION),),
        findings=(best(STIFF, stiff),),
    )


def run_methods(problem: str, names: Sequence[str], numbers: range, rounds: int | None) -> Runs:
    """Every method on the first draw, and on the others those that come near the least bytes there."""
    runs = {name: [_run(problem, name, numbers[0], rounds)] for name in names}
    first_costs = {name: spent(results[0], GOALS[-1]) for name, results in runs.items()}
    limit = NEAR * min(first_costs.values())
    for name, cost in first_costs.items():
        if name == SMALL or cost <= limit or (name in PAPER and np.isfinite(cost)):
            runs[name] += [_run(problem, name, n, rounds) for n in numbers[1:]]
    return runs


def _run(problem: str, method: str, draw: int, rounds: int | None) -> Result:
    chosen, choice = instance(problem, draw), TUNED[problem][method]
    assert isinstance(chosen, Problem)
    stop = Stop(gap=GOALS[-1] * chosen.gap(chosen.start))
    steps = plan(method, chosen, choice.tau, choice.step)
    most = rounds or most_rounds(problem, choice.tau)
    return simulate(methods()[method][choice.variant], chosen, steps, most, seed=draw, stop=stop, iterates=False)


def spent(run: Result, goal: float, way: str = "bytes") -> float:
    """Bytes sent when the gap first was `goal` of its start; infinite if never."""
    met = first(run.gap, goal * run.gap[0])
    return np.inf if met is None else float(getattr(run, way)[met])


def costs(results: list[Result], goal: float = GOALS[-1], way: str = "bytes") -> Array:
    """`spent` of every run."""
    return np.array([spent(run, goal, way) for run in results])


def _title(problem: str, method: str) -> str:
    """The method with what it chose."""
    return ", ".join(filter(None, (method, TUNED[problem][method].variant)))


def bills(problem: str, runs: Runs) -> list[Row]:
    """A row for every method."""
    return [
        Row(f"{problem}: {_title(problem, name)}", bill(results), "MB up + down = sum to 10⁻⁴; 10⁻⁸; 10⁻¹²")
        for name, results in runs.items()
    ]


def bill(results: list[Result]) -> str:
    """Median megabytes up, down and in all to each goal, and where a method ends that misses one."""
    parts: list[str] = []
    for goal in GOALS:
        up, down, total = (np.median(costs(results, goal, way)) / 1e6 for way in ("bytes_up", "bytes_down", "bytes"))
        if not np.isfinite(total):
            return "; ".join([*parts, _end(results[0])])
        parts.append(f"{up:.3g} + {down:.3g} = {total:.3g}")
    return "; ".join(parts)


def _end(run: Result) -> str:
    """Whether it came to rest, and where."""
    half = len(run.gap) // 2
    resting = np.min(run.gap[half:]) > 0.9 * np.min(run.gap[:half])
    floor = np.min(run.gap) / run.gap[0]
    return f"never, floor {floor:.1e}" if resting else f"not in {run.rounds} rounds, at {floor:.1e}"


def compared(problem: str, method: str, ours: str, ratios: Array, met: Array, expected: str) -> Row:
    """The bytes of something over those of a method of ours, by draw."""
    measured = f"× {np.median(ratios):.1f} (median), × {ratios.min():.1f} (least)"
    return Row(f"{problem}: {method} over {ours}", measured, expected, bool(np.all(met)))


def best(problem: str, runs: Runs) -> str:
    """Which method takes the fewest bytes, in words."""
    cost = {name: float(np.median(costs(results))) for name, results in runs.items()}
    paper = min((name for name in PAPER if name in cost), key=cost.__getitem__)
    best = min(cost, key=cost.__getitem__)
    sentence = f"On {problem} the fewest bytes are those of {_title(problem, best)}"
    return f"{sentence}: × {cost[paper] / cost[best]:.1f} fewer than the paper's best, {_title(problem, paper)}."


def panel(problem: str, runs: Runs) -> Panel:
    """The first draw of the methods that get there with the fewest bytes, fewest first, and the paper's best."""
    cost = {name: spent(results[0], GOALS[-1]) for name, results in runs.items()}
    there = [name for name in sorted(cost, key=cost.__getitem__) if np.isfinite(cost[name])]
    paper = min((name for name in PAPER if name in cost), key=cost.__getitem__)
    names = there[:SHOWN] if paper in there[:SHOWN] else [*there[: SHOWN - 1], paper]
    named = [(_title(problem, name), runs[name][0]) for name in names]
    curves = tuple(thin(Curve(name, run.bytes / 1e6, run.gap / run.gap[0]), "log") for name, run in named)
    return Panel(problem[0].upper() + problem[1:], "megabytes up and down", "gap / first gap", curves, xscale="log")
