"""A ResNet-18 with group normalisation, or a small transformer, in PyTorch: what a round takes, with accuracy."""

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedlin
import fedlin.torch


class Block(nn.Module):
    """Two convolutions beside a path that skips them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        same = channels == out and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.inner(images) + self.skip(images))


def resnet18(width: int) -> nn.Module:
    """As usual for images of 32×32, with batch normalisation turned into group normalisation."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    channels = width
    for level, times in enumerate((1, 2, 4, 8)):
        for stride in (1 if level == 0 else 2, 1):
            layers.append(Block(channels, times * width, stride))
            channels = times * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    return fedlin.torch.with_group_norm(nn.Sequential(*layers))


class Transformer(nn.Module):
    """Rows of an image as words: the scores of its class."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Linear(96, width)
        self.places = nn.Parameter(0.02 * torch.randn(32, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.ModuleList([layer, nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)])
        self.scores = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        rows = self.words(images.permute(0, 2, 1, 3).flatten(2)) + self.places
        for layer in self.layers:
            rows = layer(rows)
        scores: Tensor = self.scores(rows.mean(1))
        return scores


def accuracy(model: nn.Module, batch: Any) -> Tensor:
    """The share of images whose class has the highest score."""
    share: Tensor = (model(batch[0]).argmax(1) == batch[1]).double().mean()
    return share


def main() -> None:
    """Clients whose images are brighter the higher their class, so that there is something to learn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("resnet18", "transformer"), default="resnet18")
    for name, value in (("clients", 20), ("images", 50), ("width", 64), ("rounds", 10)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    labels = torch.randint(0, 10, (arguments.clients + 1, arguments.images), device=device)
    noise = torch.randn(arguments.clients + 1, arguments.images, 3, 32, 32, device=device)
    images = noise + (labels / 5 - 1)[..., None, None, None]
    model = (resnet18 if arguments.model == "resnet18" else Transformer)(arguments.width).to(device)
    clients = list(zip(images[:-1], labels[:-1], strict=True))
    problem = fedlin.torch.problem(model, functional.cross_entropy, clients, batch_size=10, replace=False)
    plan = fedlin.Plan(fedlin.epochs(problem, 1), 0.03)
    options: dict[str, Any] = {"metrics": {"accuracy": accuracy}, "test": (images[-1], labels[-1]), "every": 5}
    result = fedlin.simulate(
        fedlin.fedavg(), problem, plan, arguments.rounds, participation=0.5, iterates=False, **options
    )
    together = "all clients at once" if problem.together else "client by client"
    print(f"{problem.dim:,} parameters, {together}: {result.seconds[-1] / result.rounds:.3f} s a round")
    print(f"accuracy {result.accuracy[0]:.3f} -> {np.nanmax(result.accuracy):.3f} after round {result.best_round}")


if __name__ == "__main__":
    main()
