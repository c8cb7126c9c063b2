"""pfl-research itself, from the folder that PFL_FOLDER names, data on the GPU."""

import os
import sys
from typing import Any

import torch

from benchmarks.cifar.setting import Laps, Setting, contestant
from benchmarks.cifar.torch_network import Network, device, tensors


def play(setting: Setting, method: str, laps: Laps) -> dict[str, Any]:
    """FedAvg with central evaluation, as its benchmark has it."""
    sys.path.insert(0, os.environ["PFL_FOLDER"])
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.callback.central_evaluation import CentralEvaluationCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Rounds(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> tuple[bool, Any]:
            laps.lap(1)
            return False, Metrics()

    module = Network().to(device())
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    images, labels = tensors(*setting.users_data(), device())
    users = {str(i): Dataset((images[i], labels[i]), user_id=str(i)) for i in range(setting.users)}
    federated = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    central = Dataset(tensors(*setting.test_data(), device()), eval_kwargs={"eval": True})
    train = NNTrainHyperParams(local_batch_size=setting.batch, local_num_epochs=1, local_learning_rate=setting.eta)
    params = NNAlgorithmParams(
        central_num_iterations=setting.rounds,
        evaluation_frequency=setting.every,
        train_cohort_size=setting.cohort,
        val_cohort_size=None,
    )
    evaluation = CentralEvaluationCallback(central, NNEvalHyperParams(local_batch_size=1000), frequency=setting.every)
    FederatedAveraging().run(
        params, SimulatedBackend(federated, federated), model, train, callbacks=[evaluation, Rounds()]
    )
    return {"torch": torch.__version__, "pfl": "0.6.0"}


if __name__ == "__main__":
    contestant(play)
