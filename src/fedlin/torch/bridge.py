"""From compiled JAX code to torch and back, by DLPack: nothing is copied between arrays on one device.

One call answers for all clients of a phase, since a call costs about as much as a gradient of a small model.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import jax
import numpy as np
import torch
from jax.experimental.buffer_callback import buffer_callback
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from fedlin.torch.module_gradients import gradients


def ask_torch(
    answer: Callable[..., Sequence[Tensor]], results: Sequence[tuple[tuple[int, ...], Any]], *arguments: jax.Array
) -> list[jax.Array]:
    """`answer(*arguments)` by torch, as arrays of these shapes and types; under vmap all clients are one call.

    `answer` gets every array with one leading axis of clients, of length one where all share it, and gives tensors
    with that axis.

    By buffers, not by `jax.pure_callback`: that one makes JAX arrays of what it passes on, which waits for a thread of
    XLA's while holding one, and on a machine of one core there is no other.
    """
    ranks = [np.ndim(array) for array in arguments]

    @gradients()
    def call(context: Any, out: Any, *buffers: Any) -> None:
        tensors = [from_dlpack(buffer) for buffer in buffers]
        shapes = [tuple(tensor.shape[: tensor.ndim - rank]) for tensor, rank in zip(tensors, ranks, strict=True)]
        lead = np.broadcast_shapes(*shapes)
        with _stream(context, tensors[0].device):
            rows = [
                _with_one_axis(tensor, tensor.ndim - rank, lead) for tensor, rank in zip(tensors, ranks, strict=True)
            ]
            for place, result in zip(out, answer(*rows), strict=True):
                target = from_dlpack(place)
                target.copy_(result.reshape(target.shape))

    shapes = [jax.ShapeDtypeStruct(*result) for result in results]  # type: ignore[no-untyped-call]
    answered: list[jax.Array] = buffer_callback(call, shapes, vmap_method="expand_dims")(*arguments)
    return answered


def _with_one_axis(tensor: Tensor, axes: int, lead: tuple[int, ...]) -> Tensor:
    """The leading axes as one, of length one where the tensor is the same along all of them."""
    own = tensor.shape[axes:]
    if prod(tensor.shape[:axes]) == 1:
        return tensor.reshape(1, *own)
    return tensor.expand(*lead, *own).reshape(prod(lead), *own)


@contextmanager
def _stream(context: Any, device: torch.device) -> Iterator[None]:
    """On a GPU torch goes on where XLA's work has been queued."""
    if device.type != "cuda":
        yield
        return
    queue = torch.cuda.ExternalStream(context.stream, device=device)  # type: ignore[no-untyped-call]
    with torch.cuda.device(device), torch.cuda.stream(queue):
        yield
