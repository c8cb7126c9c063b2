"""What noise, secure sums and robust means cost: `python -m benchmarks.trust`, a minute or two; no times are measured.

Federations in one process, so that bytes and exchanges are counted as they are sent; attacks on all uploads at once can
only be simulated. What was found is kept in benchmarks/results/trust.json.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fedlin
from fedlin import aggregation, attacks, privacy
from fedlin.aggregation import Aggregator
from fedlin.core import Array, Method
from fedlin.engines.federation.secure_shares import threshold_of, tolerated
from fedlin.errors import ArgumentError
from fedlin.identities import SiteIdentity
from fedlin.transports.loopback import Loopback

FILE = Path(__file__).parent / "results" / "trust.json"
SITES, DIM, ROUNDS, FALSE = 20, 10, 60, 4
STEP = 1 / 8  # η̄
EPSILON, DELTA, PRIVATE_ROUNDS, PRIVATE_RUNS = 8.0, 1e-5, 20, 5
CLIP = 12.0  # of gradients; a move is η̄ gradients long
BOUND = 1e5
TALLIED_DIM, TALLIED_ROUNDS = 1000, 4  # of the federations whose bytes and exchanges are counted
COUNTS = (3, 4, 5, 10, 20, 50)  # sites of the table of thresholds
NAMES = [f"site-{number:02d}" for number in range(SITES)]

STRENGTHS: dict[Any, tuple[float, ...]] = {
    attacks.sign_flip: (1.0, 10.0),
    attacks.a_little_is_enough: (0.5, 1.5, 10.0),
    attacks.inner_product: (0.5, 2.0, 10.0),
}
TRIMMED = aggregation.trimmed_mean(FALSE)
MIXED = aggregation.nearest_neighbour_mixing(TRIMMED, FALSE)


class Tallied(Loopback):
    """Counts the exchanges of each kind of message."""

    exchanges = 0

    def exchange(self, *arguments: Any, **options: Any) -> Mapping[str, bytes]:
        """One more."""
        self.exchanges += 1
        return super().exchange(*arguments, **options)


def losses(dim: int) -> tuple[Array, Array]:
    """Curvatures and centres of all sites: they go together, so that averaging models is biased; x* is far from 0."""
    source = np.random.default_rng(0)
    curvature = source.uniform(1, 4, (SITES, dim))
    return curvature, 3 + 0.5 * (curvature - 2.5) + source.standard_normal((SITES, dim))


def problem(dim: int = DIM) -> fedlin.problems.Problem:
    """Quadratics with these."""
    curvature, centre = losses(dim)
    return fedlin.problems.quadratic(curvature[:, :, None] * np.eye(dim), curvature * centre)


def plan() -> fedlin.Plan:
    """The same progress a round for everyone."""
    return fedlin.Plan.scaled(fedlin.draw_steps(SITES, 2, 10), STEP)


def private(name: str, where: privacy.Where) -> Method:
    """A method with noise on every uplink, at the ε of this study."""
    noise = privacy.noise_for(EPSILON, rounds=PRIVATE_ROUNDS, delta=DELTA, phases=2 if name == "FedLin" else 1)
    gradients, moves = (privacy.gaussian(clip, noise, where=where) for clip in (CLIP, CLIP * STEP))
    if name == "FedLin":
        return fedlin.fedlin(uplink=gradients, model_uplink=moves)
    return fedlin.fedpaq(moves)


def federate(
    method: Method, rounds: int, dim: int = DIM, *, secure: bool = False, aggregate: Aggregator | None = None
) -> tuple[fedlin.FederationResult, Tallied]:
    """A federation in this process."""
    task, identities, steps = problem(dim), SiteIdentity.generate(NAMES), plan()
    handlers = {}
    for number, name in enumerate(NAMES):
        agreed: dict[str, Any] = {"identity": identities[name], "sites": SITES} if secure else {}
        handlers[name] = fedlin.Client(method, task.client(number), **agreed).handle
    transport = Tallied(handlers)
    policy = fedlin.Policy.everyone(norm_bound=BOUND, patience=0.0, pause=0.0)
    options: dict[str, Any] = {"dim": dim, "policy": policy, "secure": secure, "aggregate": aggregate}
    return fedlin.serve(method, transport, steps, rounds, **options), transport


def accuracy(name: str, method: Method) -> list[dict[str, Any]]:
    """How far from the minimiser runs end, over how far a site by itself is from it."""
    task = problem()
    curvature, centre = losses(DIM)

    def far(model: Any, first: int = 0) -> float:
        """Of the minimiser of the sites from `first` on."""
        kept, weights = centre[first:], curvature[first:]
        goal = (weights * kept).sum(axis=0) / weights.sum(axis=0)
        return float(np.linalg.norm(model - goal) / np.sqrt(np.mean(np.sum((kept - goal) ** 2, axis=1))))

    plain = federate(method, ROUNDS)[0].x
    masked = federate(method, ROUNDS, secure=True)[0].x

    def noised(where: privacy.Where, secure: bool) -> float:
        """The median, since sites draw their noise from what nobody else knows."""
        runs = [federate(private(name, where), PRIVATE_ROUNDS, secure=secure)[0].x for _ in range(PRIVATE_RUNS)]
        return float(np.median([far(x) for x in runs]))

    found = {
        "nothing": far(plain),
        "secure sums": far(masked),
        "noise of each site": noised("local", secure=False),
        "noise shared out in secure sums": noised("central", secure=True),
        "trimmed mean": far(federate(method, ROUNDS, aggregate=TRIMMED)[0].x),
        "mixing, then trimmed mean": far(federate(method, ROUNDS, aggregate=MIXED)[0].x),
    }
    lies = [
        attack(method, range(FALSE), strength, phase)
        for attack, strengths in STRENGTHS.items()
        for strength in strengths
        for phase in (None, method.phases[-1].name)
    ]
    worst: dict[str, float] = {}
    for defence, aggregate in {"nothing": None, "trimmed mean": TRIMMED, "mixing, then trimmed mean": MIXED}.items():
        runs = [fedlin.simulate(lie, task, plan(), ROUNDS, aggregate=aggregate) for lie in lies]
        worst[defence] = max(far(run.x, FALSE) if run.status == "done" else np.inf for run in runs)
    difference = float(np.abs(masked - plain).max() / np.abs(plain).max())
    return [
        {"method": name, "with": what, "far": end, "attacked": worst.get(what), "difference": None}
        | ({"difference": difference} if what == "secure sums" else {})
        for what, end in found.items()
    ]


def costs() -> list[dict[str, Any]]:
    """Exchanges of a round and bytes of a site and round, as they are sent."""
    kinds: dict[str, tuple[Method, dict[str, Any]]] = {
        "nothing": (fedlin.fedlin(), {}),
        "noise of each site": (private("FedLin", "local"), {}),
        "robust mean": (fedlin.fedlin(), {"aggregate": TRIMMED}),
        "secure sums": (fedlin.fedlin(), {"secure": True}),
        "secure sums, rand_k(100, shared=True)": (
            fedlin.fedlin(uplink=fedlin.innovation(fedlin.rand_k(100, shared=True))),
            {"secure": True},
        ),
        "secure sums, quantize(100, bound=50)": (
            fedlin.fedlin(uplink=fedlin.innovation(fedlin.quantize(100, bound=50.0))),
            {"secure": True},
        ),
    }
    rows = []
    for what, (method, options) in kinds.items():
        counted = [federate(method, rounds, TALLIED_DIM, **options) for rounds in (TALLIED_ROUNDS, TALLIED_ROUNDS + 1)]
        (shorter, before), (longer, after) = counted
        up, down = (longer.wire_up[-1] - shorter.wire_up[-1], longer.wire_down[-1] - shorter.wire_down[-1])
        exchanges = after.exchanges - before.exchanges
        rows.append({"with": what, "exchanges": exchanges, "up": int(up) // SITES, "down": int(down) // SITES})
    return rows


def together() -> list[dict[str, str]]:
    """Which go together, by trying; and the refusal's own words where they do not."""
    pairs: dict[str, tuple[Method, dict[str, Any]]] = {
        "secure sums and noise of each site": (private("FedLin", "local"), {"secure": True}),
        "secure sums and noise shared out": (private("FedLin", "central"), {"secure": True}),
        "secure sums and a robust mean": (fedlin.fedlin(), {"secure": True, "aggregate": TRIMMED}),
        "a robust mean and noise of each site": (private("FedLin", "local"), {"aggregate": TRIMMED}),
        "a robust mean and the server's noise": (private("FedLin", "central"), {"aggregate": TRIMMED}),
        "secure sums and rand_k(k, shared=True)": (
            fedlin.fedlin(uplink=fedlin.innovation(fedlin.rand_k(2, shared=True))),
            {"secure": True},
        ),
        "secure sums and top_k(k)": (fedlin.fedlin(uplink=fedlin.top_k(2)), {"secure": True}),
        "a robust mean and innovation(top_k(k))": (
            fedlin.fedlin(uplink=fedlin.innovation(fedlin.top_k(2))),
            {"aggregate": TRIMMED},
        ),
    }
    rows = []
    for what, (method, options) in pairs.items():
        try:
            federate(method, 1, **options)
            rows.append({"pair": what, "refusal": ""})
        except ArgumentError as error:
            rows.append({"pair": what, "refusal": str(error)})
    return rows


def thresholds() -> list[dict[str, int]]:
    """How many sites unmask a sum, and how many may be on the server's side."""
    return [
        {"sites": sites, "threshold": threshold_of(sites), "colluding": tolerated(sites, threshold_of(sites))}
        for sites in COUNTS
    ]


def study() -> dict[str, Any]:
    """All of it."""
    accurate = [*accuracy("FedLin", fedlin.fedlin()), *accuracy("FedAvg", fedlin.fedpaq(fedlin.identity()))]
    return {"accuracy": accurate, "costs": costs(), "together": together(), "thresholds": thresholds()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(study(), indent=1, ensure_ascii=False) + "\n")
