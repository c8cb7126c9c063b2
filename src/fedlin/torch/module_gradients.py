"""Losses and gradients of a torch module for many clients at once, each at a flat model of its own.

By `torch.func` all clients are one batched computation. A module that cannot be batched so is asked client by client.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from fedlin.torch.module_rows import ModuleRows

Loss = Callable[[Any, Tensor], Tensor]
PRECISIONS = ("highest", "tf32", "bfloat16")


class Slot(NamedTuple):
    """Where a parameter lies in the flat vector."""

    first: int
    last: int
    shape: torch.Size


class Slopes(NamedTuple):
    """Of every client: the loss, and the gradient as a flat vector."""

    losses: Tensor  # (clients,)
    grads: Tensor  # (clients, d)


def find_slots(module: nn.Module) -> dict[str, Slot]:
    """The slots of the parameters to be learned, each once however many names it has."""
    slots: dict[str, Slot] = {}
    first = 0
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            slots[name] = Slot(first, first + parameter.numel(), parameter.shape)
            first += parameter.numel()
    return slots


class ModuleSlopes:
    """The losses and gradients of one module."""

    def __init__(self, module: nn.Module, loss: Loss, l2: float, precision: str | None, together: bool) -> None:
        self.module, self.together = module, together
        self._loss, self._l2, self._precision = loss, l2, precision
        self._slots = find_slots(module)
        self._one = grad_and_value(self._value)
        self._shared = vmap(self._one, in_dims=(None, 0, 0), randomness="different")
        self._each = vmap(self._one, in_dims=(0, 0, 0), randomness="different")

    def __call__(self, x: Tensor, rows: ModuleRows, seeds: list[int] | None = None) -> Slopes:
        """Every client's loss and gradient over its rows; `x` is (clients, d), or (1, d) where all share a model.

        What the module draws follows from the seeds, one for each client: from the first where clients are computed
        together.
        """
        clients = len(rows.targets)
        with _precise(self._precision, x.device.type):
            if self.together and clients > 1:
                with _seeded(seeds[0] if seeds else None, x.device):
                    slopes = self._together(x, rows)
            else:
                parts = []
                for number in range(clients):
                    with _seeded(seeds[number] if seeds else None, x.device):
                        parts.append(self._alone(x[number if len(x) > 1 else 0], rows, number))
                slopes = Slopes(torch.stack([p.losses for p in parts]), torch.stack([p.grads for p in parts]))
        if not self._l2:
            return slopes
        return Slopes(slopes.losses + self._l2 / 2 * (x * x).sum(1), slopes.grads.add(x, alpha=self._l2))

    def _together(self, x: Tensor, rows: ModuleRows) -> Slopes:
        if len(x) == 1:
            grads, losses = self._shared(self._parameters(x[0]), *rows)
        else:
            grads, losses = self._each(self._parameters(x), *rows)
        return Slopes(losses, torch.cat([grads[name].flatten(1) for name in self._slots], 1))

    def _alone(self, x: Tensor, rows: ModuleRows, number: int) -> Slopes:
        learned = {name: value.detach().requires_grad_() for name, value in self._parameters(x).items()}
        value = self._value(learned, rows.inputs[number], rows.targets[number])
        grads = torch.autograd.grad(value, list(learned.values()), allow_unused=True, materialize_grads=True)
        return Slopes(value.detach(), torch.cat([grad.ravel() for grad in grads]))

    def _value(self, parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return self._loss(functional_call(self.module, parameters, (inputs,)), targets)

    def _parameters(self, x: Tensor) -> dict[str, Tensor]:
        """The parameters of a flat model, or of several along a leading axis, as views."""
        lead = x.shape[:-1]
        return {name: x[..., slot.first : slot.last].view((*lead, *slot.shape)) for name, slot in self._slots.items()}


@contextmanager
def gradients() -> Iterator[None]:
    """Differentiation on, whatever the calling thread's own mode is."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """What is drawn inside follows from the seed, and what is drawn afterwards is as if nothing had been."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _precise(precision: str | None, device: str) -> Iterator[None]:
    """Products and convolutions in this precision, as far as the device has it."""
    if precision is None:
        yield
        return
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest" if precision == "highest" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "highest"
    short: AbstractContextManager[object] = nullcontext()
    if precision == "bfloat16":
        short = torch.autocast(device, torch.bfloat16)
    try:
        with short:
            yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
