"""The server of a federation takes metrics on data of its own, as a simulation does."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin.errors import ArgumentError
from fedlin.transports.loopback import Loopback

DRAW = np.random.default_rng(0)
DATA = {"x": DRAW.standard_normal((3, 10, 4)), "y": DRAW.integers(0, 2, (3, 10))}
TEST = {"x": DRAW.standard_normal((30, 4)), "y": DRAW.integers(0, 2, 30)}


def loss(params: Any, batch: Any) -> Any:
    scores = jax.nn.log_softmax(batch["x"] @ params["w"])
    return -jnp.mean(jnp.take_along_axis(scores, batch["y"][:, None], axis=1))


def accuracy(params: Any, batch: Any) -> Any:
    return jnp.mean(jnp.argmax(batch["x"] @ params["w"], axis=1) == batch["y"])


problem = fedlin.problems.from_loss(loss, {"w": np.zeros((4, 2))}, DATA)
PLAN = fedlin.Plan(2, 0.5)
ASKED: dict[str, Any] = {"metrics": {"accuracy": accuracy}, "test": TEST, "every": 2}


def serve(rounds: int, **given: Any) -> Any:
    sites = {f"site-{i}": fedlin.Client(fedlin.fedavg(), problem.client(i)).handle for i in range(3)}
    return fedlin.serve(
        fedlin.fedavg(), Loopback(sites), PLAN, rounds, x0=problem.start, **{"model": problem, **ASKED, **given}
    )


def test_a_federation_has_the_metrics_of_its_simulation(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    result = serve(7, folder=tmp_path / "server", on_round=lambda t, x, line: lines.append(line))
    simulated = fedlin.simulate(fedlin.fedavg(), problem, PLAN, 7, **ASKED)
    known = ~np.isnan(simulated.accuracy)
    known[0] = False  # nobody has asked yet
    np.testing.assert_array_equal(result.metrics["accuracy"][known], simulated.accuracy[known])
    assert np.all(np.isnan(result.metrics["accuracy"][~known]))
    assert [line.get("accuracy") for line in lines][1] == simulated.accuracy[2]
    assert result.best.value == np.max(simulated.accuracy[known])
    np.testing.assert_allclose(result.best.x, simulated.iterates[result.best.round], rtol=1e-12)
    again = serve(9, folder=tmp_path / "server")  # goes on, and knows what was best
    np.testing.assert_array_equal(again.metrics["accuracy"][:7], result.metrics["accuracy"][:7])
    assert again.best.value >= result.best.value
    limit = float(simulated.accuracy[2])
    stopped = serve(7, stop=fedlin.Stop(accuracy=limit))
    assert (stopped.status, stopped.rounds) == ("stopped", 2)


def test_what_a_server_cannot_evaluate_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a federation ends by its metrics, or by a move"):
        serve(2, stop=fedlin.Stop(gap=0.1))
    with pytest.raises(ArgumentError, match="models of 8 entries"):
        serve(2, model=fedlin.problems.least_squares(clients=2, dim=3, samples=9))
    with pytest.raises(ArgumentError, match="belong together"):
        serve(2, test=None)
