"""The same network in PyTorch, with the same parameters."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.cifar.setting import Array, initial_parameters


class Network(nn.Module):
    """Images (n, 3, 32, 32) to the scores of ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3)
        self.pixels, self.neurons = nn.Dropout(0.25), nn.Dropout(0.5)
        self.dense, self.scores = nn.Linear(14 * 14 * 64, 128), nn.Linear(128, 10)
        parameters = initial_parameters()
        with torch.no_grad():
            for name in ("first", "second", "dense", "scores"):
                layer, kernel = getattr(self, name), parameters[name]
                layer.weight.copy_(torch.tensor(_as_torch_has_it(kernel)))
                layer.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        """The scores."""
        images = functional.relu(self.second(functional.relu(self.first(images))))
        images = self.pixels(functional.max_pool2d(images, 2))
        scores: Tensor = self.scores(self.neurons(functional.relu(self.dense(images.flatten(1)))))
        return scores

    # What pfl asks of a model.

    def loss(self, images: Tensor, labels: Tensor, eval: bool = False) -> Tensor:
        """The mean cross-entropy."""
        self.train(not eval)
        return functional.cross_entropy(self(images), labels)

    def metrics(self, images: Tensor, labels: Tensor, eval: bool = True) -> dict[str, Any]:
        """The accuracy."""
        from pfl.metrics import Weighted

        self.train(not eval)
        right = (self(images).argmax(1) == labels).sum().item()
        return {"accuracy": Weighted(right, len(labels))}


def _as_torch_has_it(kernel: Array) -> Array:
    if kernel.ndim == 4:
        return np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))
    if len(kernel) == 14 * 14 * 64:  # pixels come channel by channel here
        kernel = kernel.reshape(14, 14, 64, -1).transpose(2, 0, 1, 3).reshape(len(kernel), -1)
    return np.ascontiguousarray(kernel.T)


def tensors(images: Array, labels: Array, device: str) -> tuple[Tensor, Tensor]:
    """Images with their channels first, and labels, on the device."""
    pictures = torch.tensor(np.moveaxis(images, -1, -3)).contiguous()
    return pictures.to(device), torch.tensor(labels.astype(np.int64)).to(device)


def device() -> str:
    """The GPU, or the CPU where there is none."""
    return "cuda" if torch.cuda.is_available() else "cpu"
