"""pfl-research. Every client takes the same number of epochs, a whole batch each; updates travel as float32."""

from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.contract import Array, Clock, Task, run
from benchmarks.peers.torch_model import Linear, tensors


class Laps(TrainingProcessCallback):  # type: ignore[misc]
    """A lap of the clock after every round."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> tuple[bool, Any]:
        """The round has ended; go on."""
        self.clock.lap()
        return False, Metrics()


def play(task: Task, method: str, rounds: int, clock: Clock) -> Array:
    """Everything in memory, everyone in every round, nothing evaluated after the first."""
    module, clients = Linear(task), len(task.X)
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    users = {str(i): Dataset(rows, user_id=str(i)) for i, rows in enumerate(tensors(task))}
    data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    train = NNTrainHyperParams(
        local_batch_size=None, local_num_epochs=int(task.tau[0]), local_learning_rate=float(task.eta[0])
    )
    common = {
        "central_num_iterations": rounds,
        "evaluation_frequency": rounds + 1,
        "train_cohort_size": clients,
        "val_cohort_size": None,
    }
    if method == "SCAFFOLD":
        memory = InMemoryUserStateStorage()
        algorithm, params = (
            SCAFFOLD(),
            SCAFFOLDParams(
                **common, population=clients, use_gradient_as_control_variate=False, user_state_storage=memory
            ),
        )
    else:
        algorithm, params = FederatedAveraging(), NNAlgorithmParams(**common)
    clock.start()
    algorithm.run(params, SimulatedBackend(data, data), model, train, callbacks=[Laps(clock)])
    return module.x.detach().numpy()


if __name__ == "__main__":
    run(play, "pfl")
