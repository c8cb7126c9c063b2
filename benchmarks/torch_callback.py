"""FedLin on a PyTorch model against a plain Python loop over clients and steps: `python -m benchmarks.torch_callback`.

Two designs: one call from the compiled program for each gradient, and one for the whole local work of all clients.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedlin
import fedlin.torch

Clients = list[tuple[Tensor, Tensor]]
Loss = Callable[[Any, Tensor], Tensor]
ETA = 0.01


def logistic() -> tuple[nn.Module, Loss, Clients]:
    """W2's sizes: 100 clients of 100×60, float64."""
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(100, 100, 60, dtype=torch.float64, generator=draw)
    y = torch.randint(0, 2, (100, 100, 1), generator=draw).double()
    return nn.Linear(60, 1).double(), functional.binary_cross_entropy_with_logits, list(zip(X, y, strict=True))


def cnn() -> tuple[nn.Module, Loss, Clients]:
    """A small network on 10 clients of 100 images, float32."""
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(10, 100, 1, 28, 28, generator=draw)
    y = torch.randint(0, 10, (10, 100), generator=draw)
    layers = (nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10))
    return nn.Sequential(*layers), functional.cross_entropy, list(zip(X, y, strict=True))


def plain(model: nn.Module, loss: Loss, clients: Clients, tau: list[int], rounds: int) -> None:
    """FedLin as one would write it by hand, without measuring anything."""
    weights = list(model.parameters())

    def slope(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss(model(rows[0]), rows[1]), weights)

    for _ in range(rounds):
        start = [w.detach().clone() for w in weights]
        own = [slope(rows) for rows in clients]
        mean = [torch.stack(parts).mean(0) for parts in zip(*own, strict=True)]
        total = [torch.zeros_like(w) for w in start]
        for rows, mine, steps in zip(clients, own, tau, strict=True):
            with torch.no_grad():
                for w, s in zip(weights, start, strict=True):
                    w.copy_(s)
            for _ in range(steps):
                slopes = slope(rows)
                with torch.no_grad():
                    for w, g, a, b in zip(weights, slopes, mine, mean, strict=True):
                        w.sub_(ETA * (g - a + b))
            for sum_, w in zip(total, weights, strict=True):
                sum_ += w.detach()
        with torch.no_grad():
            for w, sum_ in zip(weights, total, strict=True):
                w.copy_(sum_ / len(clients))


def compare(name: str, make: Callable[[], tuple[nn.Module, Loss, Clients]], tau: list[int], repeats: int) -> str:
    """The plain loop's time a round, and each design's ratio to it, median and range."""
    model, loss, clients = make()
    whole, single = (fedlin.torch.problem(model, loss, clients) for _ in range(2))
    single.objective = replace(single.objective, descend=None)
    rounds = 3

    def loop() -> float:
        began = time.perf_counter()
        plain(model, loss, clients, tau, rounds)
        return (time.perf_counter() - began) / rounds

    def simulated(problem: fedlin.torch.TorchProblem) -> float:
        return float(fedlin.simulate(fedlin.fedlin(), problem, fedlin.Plan(tau, ETA), rounds).seconds[-1]) / rounds

    loop()
    times = np.array([[loop(), simulated(single), simulated(whole)] for _ in range(repeats)])
    lines = [f"{name:26} plain loop {np.median(times[:, 0]) * 1e3:6.1f} ms a round"]
    for design, column in (("a call a gradient", 1), ("a call a phase", 2)):
        ratio = times[:, column] / times[:, 0]
        lines.append(f"{design} {np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f})")
    return ", ".join(lines)


def main() -> None:
    """One line a workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print("Seconds a round over the plain loop's, measures included: median (range)")
    print(compare("logistic, ten steps", logistic, [10] * 100, repeats))
    print(compare("logistic, 2 to 18 steps", logistic, fedlin.draw_steps(100, 2, 18).tolist(), repeats))
    print(compare("small CNN, five steps", cnn, [5] * 10, repeats))


if __name__ == "__main__":
    main()
