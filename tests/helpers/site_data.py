"""Real data of four sites that differ: MNIST, a few digits to each site, and a9a, an age to each site."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedlin
from realdata import data_file, idx

SITES = ("east", "north", "south", "west")
Array = NDArray[Any]


def mnist() -> tuple[Array, Array]:
    """Images and labels; every fifth is held out by `digits`."""
    images = (idx("t10k-images-idx3-ubyte.gz", 16) / 255).astype(np.float32).reshape(-1, 1, 28, 28)
    return images, idx("t10k-labels-idx1-ubyte.gz", 8).astype(np.int64)


def digits() -> list[Array]:
    """Each site's rows of MNIST, sorted by digit and cut into four unequal parts."""
    _, labels = mnist()
    rows = np.flatnonzero(np.arange(len(labels)) % 5)
    return np.split(rows[np.argsort(labels[rows], kind="stable")], [1000, 2500, 5000])


def network() -> Any:
    """A small convolutional network of PyTorch, which starts the same everywhere."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10))
    return nn.Sequential(*layers)


def classification(rows: list[Array]) -> Any:
    """The network's problem, with a client for each array of row numbers."""
    import torch

    import fedlin.torch

    images, labels = mnist()
    clients = [(torch.from_numpy(images[own]), torch.from_numpy(labels[own])) for own in rows]
    return fedlin.torch.problem(network(), torch.nn.functional.cross_entropy, clients)


def adults() -> list[tuple[Array, Array]]:
    """Features and labels of a9a by site, sorted by age, which is in the first five columns."""
    table = fedlin.data.read(data_file("a9a.gz"), dim=123)
    X = table.X.toarray()
    parts = np.array_split(np.argsort(X[:, :5] @ np.arange(5.0), kind="stable"), len(SITES))
    return [(X[part], table.y[part]) for part in parts]
