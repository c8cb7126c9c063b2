"""What a model, a loss and clients' data must be like, found out before any work starts."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import UninitializedParameter
from torch.utils.data import Dataset, default_collate

from fedlin.errors import ArgumentError, DataError
from fedlin.torch.module_gradients import Loss, ModuleSlopes, find_slots
from fedlin.torch.module_rows import AllRows, ModuleBatches, ModuleRows

_FEW = 4  # rows on which it is tried whether clients can be computed together


def check_module(module: nn.Module) -> None:
    """Refuse a model whose loss would not be one function of its parameters, in one precision."""
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"model = {module!r:.80} is not allowed: give a torch.nn.Module.")
    for name, parameter in module.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise ArgumentError(f"parameter {name} has no shape yet: run the model once on a few rows first.")
    if not find_slots(module):
        raise ArgumentError("the model has no parameter with requires_grad=True: there is nothing to learn.")
    kinds = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in module.parameters()})
    if kinds not in (["float32"], ["float64"]):
        raise ArgumentError(
            f"the model's parameters are {', '.join(kinds)}: use one of float32 and float64 for all, "
            "with model.float() or model.double()."
        )
    places = sorted({str(tensor.device) for tensor in (*module.parameters(), *module.buffers())})
    if len(places) > 1:
        raise ArgumentError(f"the model lies on {', '.join(places)}: move all of it to one device.")
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and part.training:
            raise ArgumentError(
                f"{name or 'the model'} is {type(part).__name__} in training mode, whose output for a row depends on "
                "the other rows and on running statistics that are no part of the model sent: give "
                "fedlin.torch.with_group_norm(model), or fedlin.torch.with_frozen_batch_norm(model)."
            )


def read_clients(datasets: Iterable[Any], like: Tensor, batches: ModuleBatches | None) -> list[ModuleRows]:
    """Every client's rows as two tensors, floats in the precision and all on the device of `like`."""
    if isinstance(datasets, Tensor | Dataset) or not isinstance(datasets, Iterable):
        raise DataError("datasets must be a list with one torch Dataset or one pair (inputs, targets) a client.")
    clients = [_read(number, data, like) for number, data in enumerate(datasets)]
    if not clients:
        raise DataError("datasets has no clients: give at least one.")
    if batches is not None and batches.last == "drop":
        shortest = min(range(len(clients)), key=lambda number: len(clients[number].targets))
        rows = len(clients[shortest].targets)
        if rows < batches.size:
            raise DataError(
                f'client {shortest} has {rows} rows and batch_size = {batches.size}: with last="drop" it would take no '
                f'step. Give batch_size at most {rows}, or last="short".'
            )
    return clients


def _read(number: int, data: object, like: Tensor) -> ModuleRows:
    if isinstance(data, Dataset):
        if not hasattr(data, "__len__"):
            raise DataError(f"client {number}'s dataset has no length: give one that can be indexed.")
        data = default_collate([data[row] for row in range(len(data))]) if len(data) else (torch.empty(0),) * 2
    if not isinstance(data, list | tuple) or len(data) != 2:
        raise DataError(f"client {number} is {type(data).__name__}: give a torch Dataset or a pair (inputs, targets).")
    try:
        inputs, targets = (torch.as_tensor(part) for part in data)
    except (TypeError, ValueError, RuntimeError) as cause:
        raise DataError(f"client {number}'s inputs or targets are no tensor: {cause}.") from cause
    shapes = f"inputs {tuple(inputs.shape)} and targets {tuple(targets.shape)}"
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        raise DataError(f"client {number} has {shapes}: give one row a sample in both.")
    if len(inputs) == 0:
        raise DataError(f"client {number} has no rows: leave it out, or give it at least one.")
    for name, tensor in (("inputs", inputs), ("targets", targets)):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(f"client {number}'s {name} have entries that are NaN or infinite: clean or impute first.")
    return ModuleRows(
        *(t.detach().to(like.device, like.dtype if t.is_floating_point() else None) for t in (inputs, targets))
    )


def draws_numbers(module: nn.Module, loss: Loss, rows: ModuleRows) -> bool:
    """Whether the model or the loss draws from torch's generator; refused are those that draw from another."""
    device = rows.targets.device
    cuda = [device] if device.type == "cuda" else []

    def state() -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(place) for place in cuda)]

    with torch.random.fork_rng(cuda):
        torch.manual_seed(0)
        before = state()
        value = _evaluate(module, loss, 0, rows)
        draws = any(not torch.equal(old, new) for old, new in zip(before, state(), strict=True))
        torch.manual_seed(0)
        again = _evaluate(module, loss, 0, rows)
    if not np.isclose(value, again, rtol=1e-5):
        raise ArgumentError(
            f"the loss of client 0 is {value:.6g} and, asked again with the same seed, {again:.6g}: the model or the "
            "loss has a state, or random numbers, of its own. Draw from torch's default generator."
        )
    return draws


def try_clients(module: nn.Module, loss: Loss, clients: list[ModuleRows], batches: bool, draws: bool) -> None:
    """Evaluate every client's loss, and by halves where mini-batches will be drawn."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    for number, rows in enumerate(clients):
        whole = _evaluate(module, loss, number, rows)
        changed = [name for name, buffer in module.named_buffers() if not torch.equal(buffer, before[name])]
        if changed:
            raise ArgumentError(
                f"a forward pass changes the model's buffer {changed[0]}, which is no part of the model sent: "
                "call model.eval() first, or use a layer without running state."
            )
        middle = len(rows.targets) // 2
        if batches and middle and not draws:
            halves = [rows.take(part) for part in (slice(middle), slice(middle, None))]
            parts = [_evaluate(module, loss, number, half) * len(half.targets) for half in halves]
            if not np.isclose(whole, sum(parts) / len(rows.targets), rtol=1e-3, atol=1e-6):
                raise DataError(
                    f"the loss of client {number} is {whole:.6g}, but the mean over its rows by halves is "
                    f"{sum(parts) / len(rows.targets):.6g}: mini-batches need a loss that is a mean over rows."
                )


def works_together(module: nn.Module, loss: Loss, rows: AllRows, draws: bool) -> bool:
    """Whether `torch.func` computes several clients at once as they are computed one by one."""
    if not rows.alike:
        return False
    few = ModuleRows(*(torch.stack([part[:_FEW]] * 2) for part in rows.clients[0]))
    own = dict(module.named_parameters())
    x = torch.cat([own[name].detach().ravel() for name in find_slots(module)])[None]
    seeds = [0, 0] if draws else None
    try:
        together, alone = (ModuleSlopes(module, loss, 0.0, None, way)(x, few, seeds) for way in (True, False))
    except (RuntimeError, NotImplementedError, TypeError):  # what torch.func says where it cannot
        return False
    return draws or bool(torch.allclose(together.grads, alone.grads, rtol=1e-3, atol=1e-5 * float(x.abs().max())))


def _evaluate(module: nn.Module, loss: Loss, number: int, rows: ModuleRows) -> float:
    try:
        value = loss(module(rows.inputs), rows.targets)
    except Exception as cause:
        raise DataError(
            f"the model or the loss cannot take client {number}'s rows, inputs {tuple(rows.inputs.shape)} "
            f"{rows.inputs.dtype} and targets {tuple(rows.targets.shape)} {rows.targets.dtype}: {cause}"
        ) from cause
    if not isinstance(value, Tensor) or value.ndim or not value.requires_grad:
        returned = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) and value.ndim else repr(value)
        raise DataError(f"the loss of client {number} is {returned}: give a scalar tensor, a mean over rows.")
    at_start = float(value.detach())
    if not np.isfinite(at_start):
        raise DataError(f"the loss of client {number} is {at_start} at the model's own parameters: start elsewhere.")
    return at_start
