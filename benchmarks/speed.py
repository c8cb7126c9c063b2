"""Time a round of each workload, interleaved with the NumPy loop, and the time of the two plain layouts."""

import time
from collections.abc import Callable

import numpy as np

import fedlin
from benchmarks.workloads import Workload, numpy_round, w1, w2


def seconds_each(play: Callable[[], int]) -> float:
    """Seconds a round; `play` returns how many it played."""
    began = time.perf_counter()
    rounds = play()
    return (time.perf_counter() - began) / rounds


def simulated(work: Workload, layout: str, rounds: int) -> Callable[[], int]:
    """A run with all its measures, compiled beforehand."""

    def play() -> int:
        fedlin.simulate(fedlin.fedlin(), work.problem, work.plan, rounds, layout=layout)
        return rounds

    play()
    return play


def looped(work: Workload, rounds: int) -> Callable[[], int]:
    """The NumPy loop."""

    def play() -> int:
        x = work.problem.start
        for _ in range(rounds):
            x = numpy_round(work, x)
        return rounds

    return play


def measure(repeats: int = 5) -> list[dict[str, str]]:
    """One row a workload: the loop's time and each layout's ratio to it, median and range over repeats."""
    rows = []
    for work, rounds in ((w1(True), 2000), (w1(False), 200), (w2(), 200)):
        layouts = {layout: simulated(work, layout, rounds) for layout in ("auto", "client", "step")}
        loop = looped(work, 5)
        loop()
        base: list[float] = []
        ratios: dict[str, list[float]] = {layout: [] for layout in layouts}
        for _ in range(repeats):
            base.append(seconds_each(loop))
            for layout, play in layouts.items():
                ratios[layout].append(seconds_each(play) / base[-1])
        row = {"workload": work.name, "NumPy loop": f"{np.median(base) * 1e3:.1f} ms"}
        for layout, values in ratios.items():
            row[layout] = f"{np.median(values):.4f} ({min(values):.4f} to {max(values):.4f})"
        rows.append(row)
    return rows
