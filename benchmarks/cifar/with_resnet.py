"""fedlin on a ResNet-18 with group normalisation, as the example has it."""

import runpy
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from flax import nnx

from benchmarks.cifar.setting import Laps, Setting, contestant
from benchmarks.cifar.with_fedlin import timed

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples/resnet18.py"))


def play(setting: Setting, method: str, laps: Laps) -> dict[str, Any]:
    """A model of eleven million parameters at every client of the cohort."""
    problem = EXAMPLE["make_problem"](setting.users, setting.images, 64, setting.batch)
    structure, _ = nnx.split(EXAMPLE["ResNet18"](nnx.Rngs(0)))

    def accuracy(params: Any, batch: Any) -> Any:
        scores = nnx.merge(structure, params)(batch["images"])
        return jnp.mean(jnp.argmax(scores, axis=1) == batch["labels"])

    images, labels = setting.test_data()
    accuracies = timed(method, problem, setting, laps, accuracy, {"images": images, "labels": labels})
    return {**accuracies, "parameters": problem.dim}


if __name__ == "__main__":
    contestant(play)
