"""Where torch computes: a private copy of the module whose parameters are views of one flat vector.

Views save a copy in and out of every parameter at every step. They make the module a shared, mutable thing, and the
compiled program may call from several threads, so one lock covers every computation.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]
Loss = Callable[[Any, Tensor], Tensor]


class ClientRows(NamedTuple):
    """The rows of one client."""

    inputs: Tensor
    targets: Tensor

    def take(self, rows: Array) -> "ClientRows":
        """Some of the rows."""
        picked = torch.from_numpy(rows).to(self.targets.device)
        return ClientRows(self.inputs[picked], self.targets[picked])


class Slot(NamedTuple):
    """Where a parameter lies in the flat vector."""

    first: int
    last: int
    shape: torch.Size


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters to be learned, each once however many names it has."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class Host:
    """f_i, its gradient and its local steps, for NumPy vectors."""

    def __init__(self, module: nn.Module, loss: Loss, clients: list[ClientRows], l2: float) -> None:
        self.module = copy.deepcopy(module)
        self.loss_function = loss
        self.clients = clients
        self.l2 = l2
        parameters = trainable(self.module)
        self._x = torch.cat([parameter.detach().ravel() for parameter in parameters])
        self._slope = torch.zeros_like(self._x)
        self._value = self._x.new_zeros(())
        self.slots: dict[nn.Parameter, Slot] = {}
        first = 0
        for parameter in parameters:
            slot = Slot(first, first + parameter.numel(), parameter.shape)
            self.slots[parameter] = slot
            parameter.data = self._x[slot.first : slot.last].view(slot.shape)
            parameter.grad = self._slope[slot.first : slot.last].view(slot.shape)
            first = slot.last
        self._lock = Lock()
        self._known: dict[int, tuple[Array, Array, Array]] = {}

    def point(self) -> Array:
        """The flat model the module holds now."""
        return _array(self._x)

    def loss(self, client: Array, x: Array) -> Array:
        """f_i(x)."""
        return self._exact(int(client), x)[0]

    def grad(self, client: Array, x: Array) -> Array:
        """∇f_i(x)."""
        return self._exact(int(client), x)[1]

    def estimate(self, client: Array, x: Array, key: Array, size: int) -> Array:
        """∇f_i(x) over `size` rows drawn with the key."""
        rows = self.clients[int(client)]
        with self._lock, gradients():
            return _array(self._slope_at(self._tensor(x), rows.take(draw(key, 0, len(rows.targets), size))))

    def descend(
        self,
        client: Array,
        start: Array,
        shift: Array,
        pull: Array,
        center: Array,
        steps: Array,
        eta: Array,
        anchor: Array | None = None,
        *,
        key: Array | None = None,
        size: int | None = None,
    ) -> Array:
        """x ← x - η(∇f_i(x) + shift + pull (x - center)), over all rows, or over `size` rows drawn anew each step.

        With an anchor each step takes ∇f_i(x) - ∇f_i(anchor) over its draw.
        """
        rows = self.clients[int(client)]
        weight, rate = float(pull), float(eta)
        with self._lock, gradients():
            x, constant, middle = self._tensor(start), self._tensor(shift), self._tensor(center)
            at = None if anchor is None else self._tensor(anchor)
            for step in range(int(steps)):
                part = rows
                if key is not None and size is not None:
                    part = rows.take(draw(key, step, len(rows.targets), size))
                correction = constant if at is None else constant - self._slope_at(at, part)
                move = self._slope_at(x, part).add_(correction)
                if weight:
                    move.add_(x - middle, alpha=weight)
                x.sub_(move, alpha=rate)
            return _array(x)

    def _exact(self, client: int, x: Array) -> tuple[Array, Array]:
        # A round's model is measured (loss and gradient) and then asked for its gradient again: computed once.
        with self._lock, gradients():
            known = self._known.get(client)
            if known is None or not np.array_equal(known[0], x):
                slope = self._slope_at(self._tensor(x), self.clients[client])
                known = x.copy(), _array(self._value), _array(slope)
                self._known[client] = known
            return known[1:]

    def _slope_at(self, x: Tensor, rows: ClientRows) -> Tensor:
        """∇f_i(x) over these rows, good until the next call; the loss is left in `_value`."""
        self._x.copy_(x)
        self._slope.zero_()
        value = self.loss_function(self.module(rows.inputs), rows.targets)
        value.backward()  # type: ignore[no-untyped-call]
        self._value = value.detach() + self.l2 / 2 * (self._x @ self._x)
        return self._slope.add_(self._x, alpha=self.l2)

    def _tensor(self, array: Array) -> Tensor:
        return torch.tensor(array, dtype=self._x.dtype, device=self._x.device)


def draw(key: Array, step: int, rows: int, size: int) -> Array:
    """`size` of `rows` row numbers with replacement, a function of the key and the step alone."""
    return np.random.default_rng([*map(int, key), step]).integers(0, rows, size)


@contextmanager
def gradients() -> Iterator[None]:
    """Differentiation on, whatever the calling thread's own mode is."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _array(tensor: Tensor) -> Array:
    return tensor.cpu().numpy().copy()
