"""fedlin on a ResNet-18 with group normalisation, as the example has it."""

from typing import Any

import jax.numpy as jnp
from examples.resnet18 import ResNet18, make_problem
from flax import nnx

from benchmarks.cifar.setting import Laps, Setting, contestant
from benchmarks.cifar.with_fedlin import timed


def play(setting: Setting, method: str, laps: Laps) -> dict[str, Any]:
    """A model of eleven million parameters at every client of the cohort."""
    problem = make_problem(setting.users, setting.images, 64, setting.batch)
    structure, _ = nnx.split(ResNet18(nnx.Rngs(0)))

    def accuracy(params: Any, batch: Any) -> Any:
        scores = nnx.merge(structure, params)(batch["images"])
        return jnp.mean(jnp.argmax(scores, axis=1) == batch["labels"])

    images, labels = setting.test_data()
    found = timed(method, problem, setting, laps, accuracy, {"images": images, "labels": labels})
    return {**found, "parameters": problem.dim}


if __name__ == "__main__":
    contestant(play)
