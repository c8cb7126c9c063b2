"""The model of a task in PyTorch, for the packages that are built on it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peers.contract import Task


class Linear(nn.Module):
    """x, with the loss of a whole client."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(task.X.shape[-1], dtype=torch.float64))
        self.logistic, self.l2 = task.loss == "logistic", task.l2

    def forward(self, rows: Tensor) -> Tensor:
        """The predictions."""
        return rows @ self.x

    def compare(self, predicted: Tensor, y: Tensor) -> Tensor:
        """f_i, from the predictions."""
        if self.logistic:
            return functional.softplus(-y * predicted).mean() + self.l2 / 2 * (self.x @ self.x)
        return ((predicted - y) ** 2).sum() / 2

    def loss(self, rows: Tensor, y: Tensor) -> Tensor:
        """f_i."""
        return self.compare(self(rows), y)

    def metrics(self, rows: Tensor, y: Tensor) -> dict[str, Any]:
        """pfl asks for some before the first round."""
        return {"loss": float(self.loss(rows, y).detach())}


def tensors(task: Task) -> list[tuple[Tensor, Tensor]]:
    """Every client's rows and labels."""
    return list(zip(torch.tensor(task.X), torch.tensor(task.y), strict=True))
