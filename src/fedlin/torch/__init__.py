"""PyTorch models as problems. Needs PyTorch: `pip install 'fedlin[torch]'`."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as cause:
    raise ModuleNotFoundError("fedlin.torch needs PyTorch: pip install 'fedlin[torch]'.", name="torch") from cause

from fedlin.torch.normalisation import with_frozen_batch_norm, with_group_norm
from fedlin.torch.torch_problem import TorchProblem, problem

__all__ = ["TorchProblem", "problem", "with_frozen_batch_norm", "with_group_norm"]
