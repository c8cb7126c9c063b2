"""FedJAX. Every client takes the same number of steps, a whole batch each, in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
if not hasattr(jax, "tree_map"):  # the name is gone from JAX, and FedJAX's last release still uses it
    vars(jax)["tree_map"] = jax.tree_util.tree_map

import fedjax  # noqa: E402
from fedjax.algorithms import fed_avg  # noqa: E402

from benchmarks.peers.contract import Array, Clock, Task, run  # noqa: E402


def loss_of(task: Task) -> Callable[[Any, Any], Any]:
    """f_i of a batch that is the whole client."""

    def loss(x: Any, batch: Any) -> Any:
        predicted = batch["rows"] @ x
        if task.loss == "logistic":
            return jnp.mean(jax.nn.softplus(-batch["y"] * predicted)) + task.l2 / 2 * (x @ x)
        return jnp.sum((predicted - batch["y"]) ** 2) / 2

    return loss


def play(task: Task, method: str, rounds: int, clock: Clock) -> Array:
    """FedAvg with everyone in every round, batches in the order of the rows."""
    gradient = jax.grad(loss_of(task))
    algorithm = fed_avg.federated_averaging(
        lambda x, batch, key: gradient(x, batch),
        fedjax.optimizers.sgd(float(task.eta[0])),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(
            batch_size=task.X.shape[1], num_epochs=None, num_steps=int(task.tau[0]), skip_shuffle=True
        ),
    )
    clients = [
        (str(i), fedjax.ClientDataset({"rows": rows, "y": y}), jax.random.PRNGKey(i))
        for i, (rows, y) in enumerate(zip(task.X, task.y, strict=True))
    ]
    state = algorithm.init(jnp.zeros(task.X.shape[-1]))
    clock.start()
    for _ in range(rounds):
        state, _ = algorithm.apply(state, clients)
        state.params.block_until_ready()
        clock.lap()
    return np.asarray(state.params)


if __name__ == "__main__":
    run(play, "fedjax")
