"""A federation on one machine: a server and three sites that keep their rows, held to the simulated run.

The sites live in this process and their messages are bytes, as on a network. `fedlin federation init north south` makes
one of real processes with certificates.
"""

import argparse
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from numpy.typing import NDArray

import fedlin
from fedlin.transports.loopback import Loopback

Array = NDArray[np.float64]
SITES = {"north": 40, "south": 80, "west": 120}  # rows each
DIM = 10


def rows(number: int, count: int) -> tuple[Array, Array]:
    """A site's own rows: read yours here."""
    draw = np.random.default_rng(number)
    X = draw.normal(size=(count, DIM)) + 0.2 * number
    return X, np.where(X @ np.linspace(-1, 1, DIM) + draw.normal(size=count) > 0, 1.0, -1.0)


def main() -> None:
    """Run both and compare, to the last digits and to the byte."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    method = fedlin.compressed(3)
    plan = fedlin.Plan.scaled([2, 5, 10], eta_bar=0.1)
    data = [rows(number, count) for number, count in enumerate(SITES.values())]
    folder = Path(mkdtemp())  # what each site remembers; a site that is started again goes on from it
    handlers = {}
    for name, (X, y) in zip(SITES, data, strict=True):
        own = fedlin.problems.logistic([X], [y], l2=0.1)
        handlers[name] = fedlin.Client(method, own, folder=folder / name).handle
    result = fedlin.serve(
        method, Loopback(handlers), plan, rounds, dim=DIM, folder=folder / "server", expect=len(SITES)
    )

    together = fedlin.problems.logistic([X for X, _ in data], [y for _, y in data], l2=0.1)
    simulated = fedlin.simulate(method, together, plan, rounds)
    print(f"{result.status} after {rounds} rounds; gap {together.gap(result.x):.1e}, ", end="")
    print(f"{result.bytes_up[-1]:,} bytes up and {result.bytes_down[-1]:,} down")
    assert result.bytes_up[-1] == simulated.bytes_up[-1]
    np.testing.assert_allclose(result.x, simulated.x, rtol=0, atol=1e-10)
    print("the simulated run ends at the same model")


if __name__ == "__main__":
    main()
