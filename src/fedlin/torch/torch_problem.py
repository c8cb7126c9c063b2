"""A PyTorch model as a problem: the compiled rounds call back to torch once for each client's local work.

A call from compiled code costs about as much as a gradient of a small model, so a whole local loop is one call.
Numbers cross as 32-bit words, since the threads that call back do not share the caller's precision.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.experimental.buffer_callback import buffer_callback
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from fedlin.checks import nonnegative, positive_integer
from fedlin.core import Key, Scalar, Vector
from fedlin.errors import DataError, UnknownError
from fedlin.problems.fingerprint import fingerprint
from fedlin.problems.objective import Data, Descended, Descent, Objective, Sampling, Slope
from fedlin.problems.problem import Problem, Rows
from fedlin.torch.host import Host, Loss, gradients, trainable
from fedlin.torch.module_checks import check_module, read_clients, try_clients

Array = NDArray[Any]


class TorchProblem(Problem):
    """Clients whose loss is a torch module's; a flat model is its trainable parameters in the module's order."""

    def __init__(self, host: Host, batch_size: int | None) -> None:
        self._host = host
        start = host.point()
        super().__init__(
            _objective(host, start.dtype),
            np.arange(len(host.clients), dtype=np.int32),  # the rows themselves stay with torch
            start=start,
            clients=len(host.clients),
            sampling=None if batch_size is None else _sampling(host, start.dtype, batch_size),
        )

    def signature(self) -> str:
        return f"{self!r} {self._fingerprint}"

    def state_dict(self, x: ArrayLike) -> dict[str, Tensor]:
        """The flat model `x` as a state dict: fixed parameters and buffers as they were given."""
        flat = torch.tensor(self.check_point(x, "x"))
        entries = {}
        for name, own in self._host.module.state_dict(keep_vars=True).items():
            slot = self._host.slots.get(own)
            value = own if slot is None else flat[slot.first : slot.last].view(slot.shape)
            entries[name] = value.detach().clone().to(own.device)
        return entries

    def flatten(self, state_dict: Mapping[str, Tensor]) -> Array:
        """The flat model of a state dict that differs from the module's own in trainable parameters only."""
        module = self._host.module.state_dict(keep_vars=True)
        if module.keys() != state_dict.keys():
            odd = sorted(module.keys() ^ state_dict.keys())
            raise DataError(f"the state dict and the model do not share {', '.join(odd)}: give one of the same model.")
        x = self.start.copy()
        for name, own in module.items():
            if own.shape != state_dict[name].shape:
                raise DataError(f"{name} has shape {tuple(state_dict[name].shape)}: give {tuple(own.shape)}.")
            if own in self._host.slots:
                slot = self._host.slots[own]
                x[slot.first : slot.last] = state_dict[name].detach().cpu().numpy().ravel()
        for name, value in self.state_dict(x).items():
            if not torch.equal(value.cpu(), state_dict[name].detach().cpu().to(value.dtype)):
                raise DataError(
                    f"{name} cannot differ as it does: it is fixed, or shares its values with another parameter."
                )
        return x

    @property
    def row_counts(self) -> Array:
        return np.array([len(client.targets) for client in self._host.clients])

    def rows(self) -> Rows:
        raise UnknownError(f"{self!r} draws its own mini-batches: give batch_size= when building it.")

    @cached_property
    def _fingerprint(self) -> str:
        total = hashlib.sha256()
        host = self._host
        parts = [
            f"{name} {type(part).__qualname__} {fingerprint(type(part).forward)}"
            for name, part in host.module.named_modules()
        ]
        told = host.loss_function if isinstance(host.loss_function, nn.Module) else fingerprint(host.loss_function)
        total.update(f"{host.module} {parts} {told} {host.l2}".encode())
        fixed = [own for own in host.module.state_dict(keep_vars=True).values() if own not in host.slots]
        for tensor in (*fixed, *(tensor for rows in host.clients for tensor in rows)):
            total.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            total.update(tensor.detach().cpu().contiguous().numpy().data)
        return total.hexdigest()


def problem(
    model: nn.Module,
    loss: Loss,
    datasets: Iterable[Any],
    batch_size: int | None = None,
    *,
    l2: float = 0.0,
) -> TorchProblem:
    """f_i(x) = loss(model(inputs_i), targets_i) + (l2/2)‖x‖², x the trainable parameters of `model`, which is copied.

    `datasets` has one torch Dataset, or one pair (inputs, targets), a client; they may differ in length. `loss` is a
    mean over rows. With `batch_size` every gradient a client takes is over so many rows drawn with replacement.
    Parameters with requires_grad=False and buffers stay as they are; batch normalisation and dropout are refused
    in training mode.

    >>> import torch
    >>> rows = [(torch.ones(n, 3), torch.zeros(n, 1)) for n in (2, 5)]
    >>> own = problem(torch.nn.Linear(3, 1), torch.nn.functional.mse_loss, rows)
    >>> own.clients, own.dim, sorted(own.state_dict(own.start))
    (2, 4, ['bias', 'weight'])
    """
    check_module(model)
    size = None if batch_size is None else positive_integer("batch_size", batch_size)
    with gradients():
        clients = read_clients(datasets, trainable(model)[0])
        host = Host(model, loss, clients, nonnegative("l2", l2))
        try_clients(host.module, loss, clients, size is not None)
    return TorchProblem(host, size)


def _objective(host: Host, dtype: np.dtype[Any]) -> Objective:
    # Compiled programs are kept for ever: they must not keep the clients' rows with them.
    weak = ref(host)

    def loss(client: Data, x: Vector) -> Scalar:
        return _ask(lambda i, x: _alive(weak).loss(i, x), (), dtype, client, x)

    def grad(client: Data, x: Vector) -> Vector:
        return _ask(lambda i, x: _alive(weak).grad(i, x), x.shape, dtype, client, x)

    def descend(client: Data, work: Descent) -> Vector:
        return _ask(lambda *given: _alive(weak).descend(*given), work.start.shape, dtype, client, *_arrays(work))

    return Objective(loss, grad, descend=descend, outside=True)


def _sampling(host: Host, dtype: np.dtype[Any], size: int) -> Sampling:
    weak = ref(host)

    def slope(objective: Objective, client: Data, noise: Data, x: Vector, key: Key) -> Slope:
        words = jax.random.key_data(key)
        return Slope(_ask(lambda i, x, key: _alive(weak).estimate(i, x, key, size), x.shape, dtype, client, x, words))

    def descend(
        objective: Objective, client: Data, noise: Data, work: Descent, anchor: Vector | None, key: Key
    ) -> Descended:
        def answer(i: Array, key: Array, *given: Array) -> Array:
            return _alive(weak).descend(i, *given, key=key, size=size)

        at = () if anchor is None else (anchor,)
        x = _ask(answer, work.start.shape, dtype, client, jax.random.key_data(key), *_arrays(work), *at)
        return Descended(x, jnp.asarray(jnp.nan, dtype))

    return Sampling(slope, f"minibatch({size})", size, descend=descend, looped=False)


def _alive(host: "ref[Host]") -> Host:
    found = host()
    assert found is not None  # whoever runs a program holds its problem
    return found


def _arrays(work: Descent) -> tuple[Any, ...]:
    x = work.start

    def vector(value: Any) -> Vector:
        return jnp.broadcast_to(jnp.asarray(value, x.dtype), x.shape)

    pull, eta = jnp.asarray(work.pull, x.dtype), jnp.asarray(work.eta, x.dtype)
    return x, vector(work.shift), pull, vector(work.center), jnp.asarray(work.steps, jnp.int32), eta


def _ask(answer: Callable[..., Array], shape: tuple[int, ...], dtype: np.dtype[Any], *given: Any) -> Vector:
    """`answer(*given)` by the host; under vmap all clients are answered in one call.

    By buffers, not by `jax.pure_callback`: that one makes JAX arrays of what it passes on, which waits for a thread of
    XLA's while holding one, and on a machine of one core there is no other.
    """

    def call(context: Any, out: Any, *buffers: Any) -> None:
        read = [np.asarray(buffer).copy() for buffer in buffers]
        lead = read[0].shape  # the client's number comes first and is a scalar
        result = np.asarray(out)
        for index in np.ndindex(lead):
            result[index] = answer(*(array[index] for array in read))

    result = jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]
    answered: Vector = buffer_callback(call, result, vmap_method="broadcast_all")(*given)
    return answered
