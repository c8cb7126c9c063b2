"""What a round of a federation costs over each transport: `python -m benchmarks.federation [loopback ray ...]`.

Five clients, two exchanges a round. "calls" is two rounds of bare calls of the transport's engine with messages of the
same size, in the same processes: what remains is fedlin's. Over FLARE that is all a federation does: codes that prove
who sent a message, states and checkpoints on disk, audit trails. There bare calls are those of FLARE as it is; "quiet
calls" are without the lines of its logs, which cost time (`federation_flare.py`). Calls and rounds are measured in
turns, several times. Flower, in its simulation, has to be named: it needs an environment of its own (`make test-flower`
makes one).

What was found over FLARE is kept in benchmarks/results, and stands in docs/operate.md.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import fedlin
from benchmarks import operate_page
from fedlin.audit import AuditTrail
from fedlin.core import Method
from fedlin.problems.problem import Problem
from fedlin.transports.loopback import Loopback
from fedlin.transports.transport import Handler, Transport

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from routed import Routed, by_name

CLIENTS = tuple(f"site-{number}" for number in range(5))
_REPEATS = 3  # of everything, in turns
_CALLS = 40  # rounds of bare calls, each time
_LARGE_CALLS = 24  # with messages of the large run's size
TOP = fedlin.top_k(1000)
CHANGES = fedlin.innovation(TOP)
EVERY_MESSAGE = fedlin.fedlin(uplink=TOP, downlink=TOP, model_uplink=CHANGES, model_downlink=CHANGES)
RUNS: dict[str, tuple[int, Any, Method, int]] = {  # entries, precision, method, rounds
    "small": (100, np.float64, fedlin.fedlin(), 40),
    "sparse": (100_000, np.float32, EVERY_MESSAGE, 6),
    "large": (1_000_000, np.float32, fedlin.fedlin(), 24),
}
BARE = {"small": "calls", "large": "large calls"}  # the bare calls with messages of a run's size


def distance(x: Any, rows: Any) -> Any:
    """A loss that costs next to nothing, whatever the size of the model."""
    return 0.5 * ((x - rows[0]) ** 2).sum()


@cache
def problem(run: str, name: str) -> Problem:
    """A client's own."""
    dim, dtype, _, _ = RUNS[run]
    centre = np.random.default_rng(CLIENTS.index(name)).standard_normal((1, 1, dim)).astype(dtype)
    return fedlin.problems.from_loss(distance, np.zeros(dim, dtype), centre)


def make(name: str, folder: str = "", job: str = "", kit: Path | None = None) -> Handler:
    """A client of every run, and of the bare calls; with a kit it keeps there what a site keeps."""

    def one(run: str) -> Handler:
        if run == "calls":
            return lambda phase, payload: payload
        place, audit = (None, None) if kit is None else (kit / "state" / run, AuditTrail(kit))
        return fedlin.Client(RUNS[run][2], problem(run, name), folder=place, audit=audit).handle

    return by_name(one)


class Deployment(NamedTuple):
    """What else the server of a federation does, where there is one: its folder, its audit trail, its network."""

    folder: Path | None = None
    audit: AuditTrail | None = None
    carried: Callable[[], float] = lambda: float("nan")  # bytes that have gone over the network so far
    worked: Callable[[], float] = lambda: float("nan")  # CPU seconds of all processes so far
    quiet_calls: Callable[[bytes], object] | None = None  # bare calls without log lines


ALONE = Deployment()


def measure(transport: Transport, calls: Callable[[bytes], object], deployment: Deployment = ALONE) -> dict[str, float]:
    """The medians of every number of one transport; `calls` makes a bare call to all clients and awaits the answers."""
    turns = [_measure_once(transport, calls, deployment, turn) for turn in range(_REPEATS)]
    return {name: median(turn[name] for turn in turns) for name in turns[0]}


def _measure_once(
    transport: Transport, calls: Callable[[bytes], object], deployment: Deployment, turn: int
) -> dict[str, float]:
    found: dict[str, float] = {}
    for bare, (run, times) in {"calls": ("small", _CALLS), "large calls": ("large", _LARGE_CALLS)}.items():
        payload = bytes(RUNS[run][0] * np.dtype(RUNS[run][1]).itemsize)
        carried, worked = deployment.carried(), deployment.worked()
        found[bare] = _median(lambda payload=payload: (calls(payload), calls(payload)), times)  # type: ignore[misc]
        found[f"{bare} carried"] = (deployment.carried() - carried) / times
        found[f"{bare} CPU"] = (deployment.worked() - worked) / times
        if (quiet := deployment.quiet_calls) is not None:
            found[f"{bare} quiet"] = _median(lambda payload=payload: (quiet(payload), quiet(payload)), times)  # type: ignore[misc]
    for run, (dim, dtype, algorithm, rounds) in RUNS.items():
        # The first rounds compile; the opening one is sent in full whatever the compressor.
        costs: dict[int, tuple[float, float]] = {}

        def note(
            played: int, x: Any, line: Any, costs: dict[int, tuple[float, float]] = costs, last: int = rounds
        ) -> None:
            if played in (2, last):
                costs[played] = deployment.carried(), deployment.worked()

        result = fedlin.serve(
            algorithm,
            Routed(transport, run),
            fedlin.Plan(tau=1, eta=0.1),
            rounds,
            dim=dim,
            dtype=dtype,
            expect=CLIENTS,
            on_round=note,
            folder=None if deployment.folder is None else deployment.folder / f"{run}-{turn}",
            audit=deployment.audit,
        )
        found[run] = median(np.diff(result.seconds)[2:-1])  # the last one's time has a look at the costs in it
        for way in ("up", "down"):
            wire, own = (np.diff(getattr(result, f"{kind}_{way}"))[-1] for kind in ("wire", "bytes"))
            found[f"{run} {way}"] = wire / own
            found[f"{run} bytes"] = found.get(f"{run} bytes", 0.0) + float(wire)
        counted = result.bytes_up + result.bytes_down
        carried, worked = (after - before for before, after in zip(costs[2], costs[rounds], strict=True))
        found[f"{run} network"] = carried / (counted[-1] - counted[2])
        found[f"{run} carried"] = carried / (rounds - 2)
        found[f"{run} CPU"] = worked / (rounds - 2)
    for run, bare in BARE.items():
        for what in ("", " carried", " CPU"):
            found[f"{run}{what} over calls"] = found[f"{run}{what}"] / found[f"{bare}{what}"]
        found[f"{run} over quiet calls"] = found[run] / found.get(f"{bare} quiet", float("nan"))
    return found


def _median(act: Callable[[], object], times: int) -> float:
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def over_loopback() -> dict[str, float]:
    """All in this process."""
    return _plainly(Loopback({name: make(name) for name in CLIENTS}))


def over_ray() -> dict[str, float]:
    """Actors, one a core."""
    from fedlin.transports.ray import RayTransport

    return _plainly(RayTransport(make, CLIENTS))


def _plainly(transport: Transport) -> dict[str, float]:
    try:
        return measure(transport, lambda payload: transport.exchange("calls/x", payload, CLIENTS, 600.0))
    finally:
        transport.close()


def make_remembering(name: str, config: Mapping[str, Any]) -> Handler:
    """Flower makes a client for every message, so its memory is on disk."""
    return make(name, kit=Path(os.environ["FEDLIN_MEMORY"]) / name)


def over_flower() -> dict[str, float]:
    """Flower's simulation: actors, one a core."""
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # without it Ray listens on every address
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from fedlin.transports.flower import FlowerTransport, client_app

    found: dict[str, float] = {}

    def main(grid: Any, context: Any) -> None:
        transport = FlowerTransport(grid)
        while len(transport.clients()) < len(CLIENTS):  # they have yet to tell their names
            time.sleep(0.1)
        found.update(_plainly(transport))

    server = ServerApp()
    server.main()(main)
    clients = client_app(import_module(_NAME).make_remembering)  # imported, so that the actors import it too
    backend = {"init_args": {"_node_ip_address": "127.0.0.1"}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"FEDLIN_MEMORY": folder, "FLWR_HOME": folder}
        run_simulation(server, clients, len(CLIENTS), backend_config=backend)
    return found


def over_flare() -> dict[str, float]:
    """A process for the server and for each site, mutual TLS."""
    from benchmarks import federation_flare

    return federation_flare.run()


_NAME = "benchmarks.federation"
TRANSPORTS = {"loopback": over_loopback, "ray": over_ray, "flare": over_flare, "flower": over_flower}


def table(found: dict[str, Any]) -> str:
    """The table of the handbook."""
    if not found:
        return operate_page.UNMEASURED
    head = (
        "| entries | a round, ms | over FLARE's bare calls | CPU over theirs | bytes over theirs "
        "| over bare calls without FLARE's log lines |"
    )
    rows = [head, "|---|---|---|---|---|---|"]
    for run in BARE:
        names = (*(f"{run}{what} over calls" for what in ("", " CPU", " carried")), f"{run} over quiet calls")
        ratios = " | ".join(f"{found[name]:.2f}" for name in names)
        rows.append(f"| {RUNS[run][0]:,} | {1000 * found[run]:.0f} | {ratios} |")
    where = f"Measured on {found['cores']:g} cores ({found['processor']}) with a load average of {found['load']:g}:"
    return "\n".join([where, "", *rows])


def main() -> None:
    """A table with one row a transport."""
    shown = Table(title="Five clients, two exchanges a round", title_justify="left")
    common = ("transport", "calls, s", "d=100, s", "over calls", "d=10⁶ float32, s", "over calls", "MB/s")
    sparse = "bytes over the algorithm's own, TOP-1 % of 10⁵: "
    titles = (*common, sparse + "up", "down", "both on the network")
    for title in titles:
        shown.add_column(title)
    for name in sys.argv[1:] or ("loopback", "ray", "flare"):
        where = operate_page.machine()
        found = TRANSPORTS[name]()
        if name == "flare":
            operate_page.keep("calls", where | {key: float(f"{value:.4g}") for key, value in found.items()})
            operate_page.fill("calls", table(operate_page.read("calls")))
        shown.add_row(
            name,
            f"{found['calls']:.4f}",
            f"{found['small']:.4f}",
            f"{found['small over calls']:.2f}" if found["calls"] > 1e-4 else "-",  # a call in process is free
            f"{found['large']:.2f}",
            f"{found['large over calls']:.2f}" if found["calls"] > 1e-4 else "-",
            f"{found['large bytes'] / found['large'] / 1e6:.0f}",
            f"{found['sparse up']:.4f}",
            f"{found['sparse down']:.4f}",
            f"{found['sparse network']:.2f}" if found["sparse network"] == found["sparse network"] else "-",
        )
    Console(width=200).print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", shown)


if __name__ == "__main__":
    main()
