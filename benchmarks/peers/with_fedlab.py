"""FedLab. Batches come ready from memory, which is several times quicker than its customary DataLoader.

FedLab imports torchvision for its image data sets, which are not used here; where torchvision does not load, as
with a PyTorch built for CPUs alone, an empty module stands in for it.
"""

import sys
from types import ModuleType
from typing import Any

import numpy as np

try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    sys.modules["torchvision"] = ModuleType("torchvision")
    vars(sys.modules["torchvision"])["transforms"] = None

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch import Tensor

from benchmarks.peers.contract import Array, Clock, Task, run
from benchmarks.peers.torch_model import Linear, tensors


class Batches:
    """A client's data, for FedLab's trainers."""

    def __init__(self, task: Task) -> None:
        self.clients = tensors(task)

    def get_dataloader(self, client: int, batch_size: int) -> list[tuple[Tensor, Tensor]]:
        """The one batch an epoch has."""
        return [self.clients[client]]


class Timed(StandalonePipeline):  # type: ignore[misc]
    """FedLab's own loop, which ends a round with `evaluate`."""

    def __init__(self, handler: Any, trainer: Any, clock: Clock) -> None:
        super().__init__(handler, trainer)
        self.clock = clock

    def evaluate(self) -> None:
        """The round has ended."""
        self.clock.lap()


def play(task: Task, method: str, rounds: int, clock: Clock) -> Array:
    """Everyone in every round."""
    module = Linear(task)
    if method == "SCAFFOLD":
        handler, trainer = ScaffoldServerHandler(module, rounds, 1.0), ScaffoldSerialClientTrainer(module, len(task.X))
        handler.setup_optim(1.0)
    else:
        handler, trainer = SyncServerHandler(module, rounds, 1.0), SGDSerialClientTrainer(module, len(task.X))
    trainer.setup_dataset(Batches(task))
    trainer.setup_optim(int(task.tau[0]), task.X.shape[1], float(task.eta[0]))
    trainer.criterion = trainer.model.compare  # the trainer has a copy of the model
    clock.start()
    Timed(handler, trainer, clock).main()
    return np.asarray(handler.model.x.detach())


if __name__ == "__main__":
    run(play, "fedlab")
