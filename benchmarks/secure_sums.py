"""What secure sums cost: `python -m benchmarks.secure_sums [--sites N ...] [--rows N ...]`, minutes.

Server and sites are in one process, so that the CPU seconds of a round are those of all of them together. Messages
reach a site as new bytes, as over a network, so that it finds their digests itself. Plain and secure rounds take turns
in one run, and the ratio is that of the medians. A site's own work is logistic regression on rows of its own; one row
leaves next to nothing of it, so that messages and masks are all that is measured. What was measured is kept in
benchmarks/results/secure_sums.json, one figure for each number of sites, entries and rows.
"""

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import fedlin
from fedlin.identities import SiteIdentity
from fedlin.transports.loopback import Loopback
from fedlin.transports.transport import Handler

TAU, ETA, BOUND = 5, 1e-3, 1e4
FILE = Path(__file__).parent / "results" / "secure_sums.json"


def received(handle: Handler) -> Handler:
    """A site's answers to messages that came over a network; what the server knows of its own bytes does not travel."""
    return lambda phase, payload: handle(phase, bytes(memoryview(payload)))


def measure(sites: int, dim: int, rows: int, rounds: int, repeats: int) -> dict[str, Any]:
    """Seconds of a round, plain and secure, of wall time and of CPU time."""
    rng = np.random.default_rng(0)
    features = [rng.standard_normal((rows, dim)) / np.sqrt(dim) for _ in range(sites)]
    labels = [np.where(rng.standard_normal(rows) > 0, 1.0, -1.0) for _ in range(sites)]
    names = [f"site-{number:02d}" for number in range(sites)]
    identities = SiteIdentity.generate(names)
    algorithm, plan = fedlin.fedlin(), fedlin.Plan(TAU, ETA)
    handlers: dict[bool, dict[str, Any]] = {False: {}, True: {}}
    for number, name in enumerate(names):
        problem = fedlin.problems.logistic([features[number]], [labels[number]], l2=0.01)
        for secure in handlers:
            own: dict[str, Any] = {"identity": identities[name], "sites": sites} if secure else {}
            handlers[secure][name] = received(fedlin.Client(algorithm, problem, **own).handle)
    taken: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    models = {}
    for repeat in range(repeats + 1):  # the first compiles
        for secure in taken:
            last = [time.perf_counter(), time.process_time()]

            rounds_taken: list[tuple[float, float]] = taken[secure] if repeat else []

            def tick(played: int, *_: Any, last: Any = last, into: Any = rounds_taken) -> None:
                now = time.perf_counter(), time.process_time()
                if played > 1:  # registering and beginning are in the first
                    into.append((now[0] - last[0], now[1] - last[1]))
                last[:] = now

            policy = fedlin.Policy.everyone(norm_bound=BOUND)
            models[secure] = fedlin.serve(
                algorithm,
                Loopback(handlers[secure]),
                plan,
                rounds,
                dim=dim,
                policy=policy,
                secure=secure,
                on_round=tick,
                name=f"repeat {repeat}",
            )
    wall, cpu = ({kind: median(pair[at] for pair in pairs) for kind, pairs in taken.items()} for at in (0, 1))
    difference = float(np.abs(models[True].x - models[False].x).max())
    return {
        "sites": sites,
        "dim": dim,
        "rows": rows,
        "plain_ms": round(1e3 * wall[False], 1),
        "secure_ms": round(1e3 * wall[True], 1),
        "ratio": round(wall[True] / wall[False], 2),
        "plain_cpu_ms": round(1e3 * cpu[False], 1),
        "secure_cpu_ms": round(1e3 * cpu[True], 1),
        "cpu_ratio": round(cpu[True] / cpu[False], 2),
        "wire_up": [int(np.diff(models[kind].wire_up)[-1]) for kind in (False, True)],
        "difference": difference,
    }


def keep(figure: dict[str, Any]) -> None:
    """Put a figure into the file, in place of an earlier one of the same size."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else []
    size = [figure[name] for name in ("sites", "dim", "rows")]
    kept = [one for one in kept if [one[name] for name in ("sites", "dim", "rows")] != size]
    kept = sorted([*kept, figure], key=lambda one: (one["rows"], one["dim"], one["sites"]))
    FILE.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    """A line of JSON for each number of sites and of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--dim", type=int, default=100_000)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for sites in given.sites:
        for rows in given.rows:
            load = round(os.getloadavg()[0], 1)
            figure = measure(sites, given.dim, rows, given.rounds, given.repeats)
            keep({**figure, "load": load, "cores": os.cpu_count()})
            print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
