"""fedlin on the network as any user would write it in JAX."""

import time
from typing import Any

import jax
import numpy as np

import fedlin
from benchmarks.cifar.jax_network import accuracy, loss
from benchmarks.cifar.setting import Laps, Setting, contestant, initial_parameters

METHODS = {
    "fedavg": fedlin.fedavg(),
    "fedlin": fedlin.fedlin(same_batch=True),
    "scaffold": fedlin.scaffold(),
}


class CompileClock:
    """Seconds that XLA has compiled in this process."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            self.seconds += duration_secs


def simulate(method: str, problem: Any, setting: Setting, rounds: int, metric: Any, test: Any) -> Any:
    """One pass over each user's images a round, and the accuracy every few rounds."""
    return fedlin.simulate(
        METHODS[method],
        problem,
        fedlin.Plan(fedlin.epochs(problem, 1), setting.eta),
        rounds,
        participation=setting.cohort / setting.users,
        iterates=False,
        metrics={"accuracy": metric},
        test=test,
        every=setting.every,
    )


def timed(method: str, problem: Any, setting: Setting, laps: Laps, metric: Any, test: Any) -> dict[str, Any]:
    """All rounds from the start of the process, then some again, compiled and with the data in place."""
    clock = CompileClock()
    result = simulate(method, problem, setting, setting.rounds, metric, test)
    laps.lap(0)
    again = min(setting.rounds, setting.again)
    began = time.perf_counter()
    simulate(method, problem, setting, again, metric, test)
    laps.rounds, laps.seconds = again, time.perf_counter() - began
    accuracies = result.accuracy[~np.isnan(result.accuracy)]
    memory = jax.devices()[0].memory_stats() or {}
    return {
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "status": result.status,
        "accuracy": float(accuracies[-1]),
        "training loss": float(result.training_loss[-1]),
        "seconds a round without evaluation": float(result.seconds[-1]) / setting.rounds,
        "compile seconds": clock.seconds,
        "device peak": memory.get("peak_bytes_in_use"),
    }


def play(setting: Setting, method: str, laps: Laps) -> dict[str, Any]:
    """A method's name, or one with a precision behind it, such as fedavg/bfloat16."""
    method, _, precision = method.partition("/")
    images, labels = setting.users_data()
    problem = fedlin.problems.from_loss(
        loss, initial_parameters(), {"images": images, "labels": labels}, precision=precision or None
    )
    problem = fedlin.problems.minibatch(problem, setting.batch, replace=False)
    pictures, classes = setting.test_data()
    return timed(method, problem, setting, laps, accuracy, {"images": pictures, "labels": classes})


if __name__ == "__main__":
    contestant(play)
