"""Train a PyTorch CNN on handwritten digits, two digits a client, with mini-batches."""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import fedlin
import fedlin.torch


def main() -> None:
    """Run FedLin and print the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    pixels, digits = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(digits)
    owners = [torch.tensor(np.isin(digits, [i, (i + 1) % 10])) for i in range(10)]
    clients = [TensorDataset(images[own], labels[own]) for own in owners]

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.GroupNorm(2, 8),  # batch normalisation would mix the rows of a batch
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 10),
    )
    problem = fedlin.torch.problem(model, nn.functional.cross_entropy, clients, batch_size=32)
    method, plan = fedlin.fedlin(same_batch=True), fedlin.Plan(tau=5, eta=0.1)
    metrics = {"accuracy": lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).double().mean()}
    result = fedlin.simulate(method, problem, plan, rounds, metrics=metrics, test=(images, labels), every=10)
    model.load_state_dict(problem.state_dict(result.x))
    loss = result.training_loss
    print(f"training loss {loss[1]:.3f} -> {loss[-1]:.3f}, accuracy {result.accuracy[-1]:.3f}")


if __name__ == "__main__":
    main()
