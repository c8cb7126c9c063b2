"""FedLin, FedAvg and SCAFFOLD train a CNN on MNIST, 20 clients with two digits each: accuracy a round and a byte.

Reads MNIST's 10,000 test images, gzipped as published, from the folder FEDLIN_DATA; four fifths of them train.
"""

import argparse
import gzip
import os
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import fedlin
import fedlin.torch

METHODS = (fedlin.fedlin(), fedlin.fedavg(), fedlin.scaffold())


def read(name: str, header: int) -> NDArray[np.uint8]:
    """The bytes of a gzipped IDX file after its header."""
    folder = Path(os.environ.get("FEDLIN_DATA", "../shared/data"))
    try:
        return np.frombuffer(gzip.decompress((folder / name).read_bytes())[header:], np.uint8)
    except FileNotFoundError:
        raise SystemExit(f"{name} is not in {folder}: set FEDLIN_DATA to the folder that holds it.") from None


def share_out(labels: Tensor, clients: int = 20) -> list[Tensor]:
    """Row numbers of every client, all of two digits: each digit is cut in four and goes to four clients."""
    pieces = {digit: list(torch.where(labels == digit)[0].chunk(4)) for digit in range(10)}
    pairs = [(i % 10, (i + (1 if i < 10 else 3)) % 10) for i in range(clients)]
    return [torch.cat([pieces[first].pop(), pieces[second].pop()]) for first, second in pairs]


def accuracies(problem: fedlin.torch.TorchProblem, model: nn.Module, iterates: Any, test: Any) -> NDArray[Any]:
    """The share of test images each of the models gets right."""
    rates = []
    with torch.no_grad():
        for x in iterates:
            model.load_state_dict(problem.state_dict(x))
            rates.append((model(test[0]).argmax(1) == test[1]).double().mean().item())
    return np.array(rates)


def main() -> None:
    """Print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--rows", type=int, default=10_000, help="how many images to use, training and test together")
    parser.add_argument("--eta-bar", type=float, default=0.2, help="a round's progress, the same for every method")
    parser.add_argument("--picture", type=Path, default=Path("mnist_cnn.png"))
    arguments = parser.parse_args()
    images = torch.tensor(read("t10k-images-idx3-ubyte.gz", 16)[: 784 * arguments.rows] / 255, dtype=torch.float32)
    labels = torch.tensor(read("t10k-labels-idx1-ubyte.gz", 8)[: arguments.rows].astype(np.int64))
    images = images.reshape(-1, 1, 28, 28)
    held_out = torch.arange(len(labels)) % 5 == 0
    train, test = (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10))
    model = nn.Sequential(*layers)
    clients = [(train[0][own], train[1][own]) for own in share_out(train[1])]
    problem = fedlin.torch.problem(model, nn.functional.cross_entropy, clients)
    plan = fedlin.Plan.scaled(fedlin.draw_steps(20, 2, 10, seed=0), eta_bar=arguments.eta_bar)

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
    table = pd.DataFrame(index=pd.Index(np.arange(arguments.rounds + 1), name="round"))
    for method in METHODS:
        result = fedlin.simulate(method, problem, plan, arguments.rounds, iterates=True)
        accuracy = accuracies(problem, model, result.iterates, test)
        print(f"{method.name}: {result.status} after {result.rounds} rounds, loss {result.loss[-1]:.3f}", flush=True)
        table[method.name] = pd.Series(accuracy)  # shorter where the run diverged
        table[f"{method.name} MB"] = pd.Series(result.bytes / 1e6)
        axes[0].plot(accuracy, label=method.name)
        axes[1].plot(result.bytes / 1e6, accuracy, label=method.name)
    rounds = sorted({0, 1, 2, 5, 10, 20, 30, 40, arguments.rounds} & set(table.index))
    print(table.loc[rounds].to_string(float_format="{:.3f}".format))
    for axis, across in zip(axes, ("rounds", "megabytes sent, up and down"), strict=True):
        axis.set_xlabel(across)
    axes[0].set_ylabel("test accuracy")
    axes[0].legend()
    figure.savefig(arguments.picture, dpi=120)


if __name__ == "__main__":
    main()
