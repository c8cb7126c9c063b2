"""A server that keeps the model and nothing else, and takes the mean of what comes back as the next one."""

from typing import NamedTuple

from fedlin.core import Central, Vector


class ModelOnly(NamedTuple):
    """The model is all there is."""

    x: Vector  # x̄_t


def take_mean(state: ModelOnly, mean: Vector, central: Central) -> ModelOnly:
    """x̄ ← the mean of the clients' models."""
    return ModelOnly(mean)
