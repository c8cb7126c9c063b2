"""fedlin on the network as any user would write it in JAX."""

from typing import Any

import jax

import fedlin
from benchmarks.cifar.jax_network import loss
from benchmarks.cifar.setting import Laps, Setting, contestant, initial_parameters

METHODS = {
    "fedavg": fedlin.fedavg(),
    "fedlin": fedlin.fedlin(same_batch=True),
    "scaffold": fedlin.scaffold(),
}


def play(setting: Setting, method: str, laps: Laps) -> dict[str, Any]:
    """One pass over each user's images a round."""
    images, labels = setting.users_data()
    problem = fedlin.problems.from_loss(loss, initial_parameters(), {"images": images, "labels": labels})
    problem = fedlin.problems.minibatch(problem, setting.batch, replace=False)
    result = fedlin.simulate(
        METHODS[method],
        problem,
        fedlin.Plan(fedlin.epochs(problem, 1), setting.eta),
        setting.rounds,
        participation=setting.cohort / setting.users,
        iterates=False,
        measure_every=setting.rounds,
    )
    laps.lap(0)
    laps.rounds, laps.seconds = setting.rounds, float(result.seconds[-1])
    memory = jax.devices()[0].memory_stats() or {}
    return {"jax": jax.__version__, "status": result.status, "device peak": memory.get("peak_bytes_in_use")}


if __name__ == "__main__":
    contestant(play)
