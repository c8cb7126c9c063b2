"""The clients' rows as tensors, and which of them a mini-batch takes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedlin.core import Array


class ModuleRows(NamedTuple):
    """Some rows: of one client, or of several along a leading axis."""

    inputs: Tensor
    targets: Tensor

    def take(self, numbers: Tensor | Array | slice) -> "ModuleRows":
        """The rows with these numbers."""
        return ModuleRows(self.inputs[numbers], self.targets[numbers])


class AllRows:
    """Every client's rows; in one tensor, where a row looks the same everywhere, so that many are taken at once."""

    def __init__(self, clients: list[ModuleRows]) -> None:
        self.lengths = np.array([len(client.targets) for client in clients])
        self.alike = len({(c.inputs.shape[1:], c.targets.shape[1:]) for c in clients}) == 1
        self._first = np.cumsum(self.lengths) - self.lengths
        self.clients = clients
        if self.alike:
            self._joined = ModuleRows(*(torch.cat(parts) for parts in zip(*clients, strict=True)))
            ends = zip(self._first, self._first + self.lengths, strict=True)
            self.clients = [self._joined.take(slice(first, last)) for first, last in ends]

    def of(self, clients: Array, numbers: list[Array] | None) -> ModuleRows:
        """As many rows of each of these clients: those with the given numbers, or all."""
        if len(clients) == 1:
            own = self.clients[int(clients[0])]
            picked = own if numbers is None else own.take(torch.from_numpy(numbers[0]).to(own.targets.device))
            return ModuleRows(*(part[None] for part in picked))
        if numbers is None:
            count = int(self.lengths[clients[0]])
            if np.array_equal(clients, np.arange(clients[0], clients[0] + len(clients))):  # no copy
                whole = self._joined.take(slice(self._first[clients[0]], self._first[clients[-1]] + count))
                return ModuleRows(*(part.view(len(clients), count, *part.shape[1:]) for part in whole))
            numbers = [np.arange(count)] * len(clients)
        at = torch.from_numpy(self._first[clients][:, None] + np.stack(numbers))
        return self._joined.take(at.to(self._joined.targets.device, non_blocking=True))


class ModuleBatches(NamedTuple):
    """How mini-batches are drawn: `last` is None with replacement, and otherwise "short" or "drop"."""

    size: int
    last: str | None = None

    def draw(self, key: Sequence[int], rows: int, steps: int) -> list[Array]:
        """The numbers of the rows that each step takes: a function of the key and the step alone."""
        generator = np.random.default_rng([int(word) for word in key])
        if self.last is None:
            return list(generator.integers(0, rows, (steps, self.size)))
        batches: list[Array] = []
        end = rows if self.last == "short" else rows - rows % self.size
        while len(batches) < steps:
            order = generator.permutation(rows)[:end]
            batches += [order[first : first + self.size] for first in range(0, end, self.size)]
        return batches[:steps]
