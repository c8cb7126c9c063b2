"""PyTorch models as problems. Needs PyTorch: `pip install 'fedlin[torch]'`."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as cause:
    raise ModuleNotFoundError("fedlin.torch needs PyTorch: pip install 'fedlin[torch]'.", name="torch") from cause

from fedlin.torch.torch_problem import TorchProblem, problem

__all__ = ["TorchProblem", "problem"]
