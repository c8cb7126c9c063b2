"""fedlin on the torch module that pfl trains, where torch has a GPU on that, and JAX on the CPU or beside it."""

from typing import Any

import torch
from torch.nn import functional

import fedlin
import fedlin.torch
from benchmarks.cifar.setting import Laps, Setting, contestant
from benchmarks.cifar.torch_network import Network, device, tensors
from benchmarks.cifar.with_fedlin import timed


def accuracy(network: Any, batch: Any) -> Any:
    """The share of images whose class has the highest score."""
    return (network(batch[0]).argmax(1) == batch[1]).double().mean()


def play(setting: Setting, method: str, laps: Laps) -> dict[str, Any]:
    """A method's name, or one with a precision behind it, such as fedavg/tf32."""
    method, _, precision = method.partition("/")
    images, labels = tensors(*setting.users_data(), device())
    problem = fedlin.torch.problem(
        Network().to(device()),
        functional.cross_entropy,
        list(zip(images, labels, strict=True)),
        setting.batch,
        replace=False,
        precision=precision or None,
    )
    accuracies = timed(method, problem, setting, laps, accuracy, tensors(*setting.test_data(), device()))
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    return {**accuracies, "torch": torch.__version__, "together": problem.together, "torch peak": peak}


if __name__ == "__main__":
    contestant(play)
