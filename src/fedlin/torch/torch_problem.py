"""A PyTorch model as a problem: the compiled rounds ask torch for the local work of all their clients at once."""

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fedlin.checks import nonnegative, one_of, positive_integer
from fedlin.core import Array, Key, Scalar, Vector
from fedlin.errors import ArgumentError, DataError, UnknownError
from fedlin.fingerprint import fingerprint
from fedlin.problems.metrics import Evaluate, Metric
from fedlin.problems.objective import Data, Descended, Descent, Objective, Sampling, Slope
from fedlin.problems.problem import Layer, Problem, Rows
from fedlin.torch.bridge import ask_torch
from fedlin.torch.module_checks import check_module, draws_numbers, read_clients, try_clients, works_together
from fedlin.torch.module_gradients import PRECISIONS, Loss, Slopes, gradients
from fedlin.torch.module_metrics import evaluate_module
from fedlin.torch.module_rows import AllRows, ModuleBatches
from fedlin.torch.torch_work import Host, Work


class TorchProblem(Problem):
    """Clients whose loss is a torch module's; a flat model is its trainable parameters in the module's order."""

    def __init__(self, host: Host) -> None:
        self._host = host
        start = host.point()
        clients = len(host.rows.lengths)
        asks = _Asks(host, start.dtype)
        super().__init__(
            asks.objective(),
            np.arange(clients, dtype=np.int32),  # the rows themselves stay with torch
            start=start,
            clients=clients,
            sampling=asks.sampling() if host.batches is not None or host.draws else None,
        )

    def signature(self) -> str:
        return f"{self!r} {self._fingerprint}"

    @property
    def together(self) -> bool:
        """Whether torch computes many clients at once."""
        return self._host.together

    def module(self, x: ArrayLike) -> nn.Module:
        """A copy of the model with the parameters `x`.

        Args:
            x: A model, (d,).

        Returns:
            The copy.
        """
        module = copy.deepcopy(self._host.module)
        module.load_state_dict(self.state_dict(x))
        return module

    def model(self, x: ArrayLike) -> nn.Module:
        return self.module(x)

    def evaluator(self, metrics: Mapping[str, Metric], test: object) -> Evaluate:
        (rows,) = read_clients([test], next(self._host.module.parameters()), None)
        module = copy.deepcopy(self._host.module)

        def load(x: ArrayLike) -> nn.Module:
            module.load_state_dict(self.state_dict(x))
            return module

        return evaluate_module(metrics, load, self.start, rows)

    def state_dict(self, x: ArrayLike) -> dict[str, Tensor]:
        """The flat model `x` as a state dict: fixed parameters and buffers as they were given.

        Args:
            x: A model, (d,).

        Returns:
            Every parameter and buffer by name.
        """
        flat = torch.tensor(self.check_point(x, "x"))
        slots = self._slots_of_names
        entries = {}
        for name, own in self._host.module.state_dict().items():
            slot = slots.get(name)
            value = own if slot is None else flat[slot.first : slot.last].view(slot.shape)
            entries[name] = value.detach().clone().to(own.device)
        return entries

    def flatten(self, state_dict: Mapping[str, Tensor]) -> Array:
        """The flat model of a state dict that differs from the module's own in trainable parameters only.

        Args:
            state_dict: Every parameter and buffer by name, as `state_dict` returns them.

        Returns:
            The flat model, (d,).
        """
        module = self._host.module.state_dict()
        if module.keys() != state_dict.keys():
            odd = sorted(module.keys() ^ state_dict.keys())
            raise DataError(f"the state dict and the model do not share {', '.join(odd)}: give one of the same model.")
        x = self.start.copy()
        for name, own in module.items():
            if own.shape != state_dict[name].shape:
                raise DataError(f"{name} has shape {tuple(state_dict[name].shape)}: give {tuple(own.shape)}.")
            slot = self._slots_of_names.get(name)
            if slot is not None:
                x[slot.first : slot.last] = state_dict[name].detach().cpu().numpy().ravel()
        for name, value in self.state_dict(x).items():
            if not torch.equal(value.cpu(), state_dict[name].detach().cpu().to(value.dtype)):
                raise DataError(
                    f"{name} cannot differ as it does: it is fixed, or shares its values with another parameter."
                )
        return x

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(Layer(name, tuple(slot.shape)) for name, slot in self._host.slots.items())

    @property
    def row_counts(self) -> Array:
        return self._host.rows.lengths

    def rows(self) -> Rows:
        raise UnknownError(f"{self!r} draws its own mini-batches: give batch_size= when building it.")

    @cached_property
    def _slots_of_names(self) -> dict[str, Any]:
        """Every name of a learned parameter, which may have several, with its slot."""
        own_slots = self._host.slots
        first = {id(own): own_slots[name] for name, own in self._host.module.named_parameters() if name in own_slots}
        every = self._host.module.named_parameters(remove_duplicate=False)
        return {name: first[id(own)] for name, own in every if id(own) in first}

    @cached_property
    def _fingerprint(self) -> str:
        total = hashlib.sha256()
        host = self._host
        parts = [
            f"{name} {type(part).__qualname__} {fingerprint(type(part).forward)}"
            for name, part in host.module.named_modules()
        ]
        loss = host.loss_function if isinstance(host.loss_function, nn.Module) else fingerprint(host.loss_function)
        total.update(f"{host.module} {parts} {loss} {host.l2} {host.precision} {host.together}".encode())
        fixed = [own for name, own in host.module.state_dict().items() if name not in self._slots_of_names]
        for tensor in (*fixed, *(tensor for rows in host.rows.clients for tensor in rows)):
            total.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            total.update(tensor.detach().cpu().contiguous().numpy().data)
        return total.hexdigest()


def problem(
    model: nn.Module,
    loss: Loss,
    datasets: Iterable[Any],
    batch_size: int | None = None,
    *,
    replace: bool = True,
    last: str = "short",
    l2: float = 0.0,
    precision: str | None = None,
    together: bool = True,
) -> TorchProblem:
    """f_i(x) = loss(model(inputs_i), targets_i) + (l2/2)‖x‖², x the trainable parameters of `model`.

    Dropout and other layers that draw numbers do so while a client trains, from a seed that follows from the run's
    seed, the round, the phase, the client and the step; models are measured in evaluation mode. Batch normalisation in
    training mode is refused: see `fedlin.torch.with_group_norm` and `fedlin.torch.with_frozen_batch_norm`.

    Args:
        model: the module, which is copied; runs start from its parameters. Those with `requires_grad=False`, and its
            buffers, stay as they are and do not travel.
        loss: of the model's outputs and the targets, a mean over rows.
        datasets: a torch Dataset, or a pair (inputs, targets), for each client; they may differ in length.
        batch_size: rows of every gradient that a client takes; all of its own if left open.
        replace: whether mini-batches are drawn with replacement, each by itself, or as the parts of a pass over the
            client's rows in random order.
        last: without replacement, whether the rows at the end of a pass that fill no batch make a "short" one or
            are left out of it ("drop").
        l2: of the regulariser, over the trainable parameters.
        precision: "highest" or "tf32" for matrix products and convolutions on a GPU, or "bfloat16" by autocast; torch's
            own setting if left open.
        together: whether all clients of a round are one batched computation, by `torch.func.vmap`. Without, they are
            taken one by one, which is slower, and layers that draw numbers draw what they would in a federation.

    Returns:
        The problem. Its models are flat vectors; `problem.module(x)` and `problem.state_dict(x)` give them back.

    >>> import torch
    >>> rows = [(torch.ones(n, 3), torch.zeros(n, 1)) for n in (2, 5)]
    >>> own = problem(torch.nn.Linear(3, 1), torch.nn.functional.mse_loss, rows)
    >>> own.clients, own.dim, sorted(own.state_dict(own.start))
    (2, 4, ['bias', 'weight'])
    """
    check_module(model)
    one_of("last", last, ("short", "drop"))
    if precision is not None:
        one_of("precision", precision, PRECISIONS)
    for name, value in (("replace", replace), ("together", together)):
        if not isinstance(value, bool):
            raise ArgumentError(f"{name} = {value!r} is not allowed: give True or False.")
    batches = None
    if batch_size is not None:
        batches = ModuleBatches(positive_integer("batch_size", batch_size), None if replace else last)
    with gradients():
        clients = read_clients(datasets, next(model.parameters()), batches)
        module = copy.deepcopy(model)
        draws = draws_numbers(module, loss, clients[0])
        try_clients(module, loss, clients, batches is not None, draws)
        rows = AllRows(clients)
        together = together and works_together(module, loss, rows, draws)
        host = Host(
            module,
            loss,
            rows,
            batches=batches,
            l2=nonnegative("l2", l2),
            precision=precision,
            together=together,
            draws=draws,
        )
    return TorchProblem(host)


class _Asks:
    """The problem's functions in JAX, each of which asks the host."""

    def __init__(self, host: Host, dtype: np.dtype) -> None:
        # Compiled programs are kept for ever: they must not keep the clients' rows with them.
        self._host, self._dtype = ref(host), dtype
        self._batches, self._draws = host.batches, host.draws

    @property
    def host(self) -> Host:
        """The host, which whoever runs a program keeps with its problem."""
        host = self._host()
        assert host is not None
        return host

    def objective(self) -> Objective:
        """Exact losses and gradients, and local work over all rows."""

        def slope(client: Data, x: Vector) -> Slope:
            return self._slope(lambda *arguments: self.host.exact(*arguments), x, client, x)

        def total(clients: Data, weights: Vector, x: Vector) -> tuple[Scalar, Vector]:
            sums = self._slope(lambda *arguments: self.host.total(*arguments), x, clients, weights, x)
            return jnp.asarray(sums.loss), sums.grad

        def descend(client: Data, work: Descent) -> Vector:
            return self._descend(client, work, None, jnp.zeros(2, jnp.uint32)).x

        return Objective(
            lambda client, x: jnp.asarray(slope(client, x).loss),
            lambda client, x: slope(client, x).grad,
            descend=descend,
            outside=True,
            slope=slope,
            total=total,
        )

    def sampling(self) -> Sampling:
        """Estimates over the rows that a key draws, with what the module draws."""
        batches = self._batches

        def at_step(objective: Objective, client: Data, noise: Data, x: Vector, key: Key, step: Scalar) -> Slope:
            arguments = (client, x, jax.random.key_data(key), jnp.asarray(step, jnp.int32))
            return self._slope(lambda *arguments: self.host.estimate(*arguments), x, *arguments)

        def slope(objective: Objective, client: Data, noise: Data, x: Vector, key: Key) -> Slope:
            return at_step(objective, client, noise, x, key, jnp.zeros((), jnp.int32))

        def full(objective: Objective, client: Data, noise: Data, x: Vector, key: Key) -> Slope:
            return self._slope(lambda *arguments: self.host.full(*arguments), x, client, x, jax.random.key_data(key))

        def descend(
            objective: Objective, client: Data, noise: Data, work: Descent, anchor: Vector | None, key: Key
        ) -> Descended:
            return self._descend(client, work, anchor, jax.random.key_data(key))

        return Sampling(
            slope,
            "drawn" if batches is None else f"minibatch({batches.size}, last={batches.last!r})",
            None if batches is None else batches.size,
            None if batches is None else batches.last,
            descend,
            looped=False,
            step_slope=at_step,
            full=full if self._draws else None,
        )

    def _slope(self, answer: Callable[..., Slopes], x: Vector, *arguments: jax.Array) -> Slope:
        loss, grad = ask_torch(answer, [((), self._dtype), (x.shape, self._dtype)], *arguments)
        return Slope(grad, loss)

    def _descend(self, client: Data, work: Descent, anchor: Vector | None, key: jax.Array) -> Descended:
        x = work.start
        floats = [jnp.asarray(part, x.dtype) for part in (x, work.shift, work.pull, work.center, work.eta)]
        steps = jnp.asarray(work.steps, jnp.int32)

        def answer(clients: Tensor, keys: Tensor, steps: Tensor, *floats: Tensor) -> tuple[Tensor, Tensor]:
            # A number of each client's is a column, as vectors are rows.
            start, shift, pull, center, eta, *at = (part if part.ndim == 2 else part[:, None] for part in floats)
            return self.host.descend(clients, keys, Work(start, shift, pull, center, steps, eta, *at))

        at = [] if anchor is None else [anchor]
        end, losses = ask_torch(answer, [(x.shape, self._dtype), ((), self._dtype)], client, key, steps, *floats, *at)
        return Descended(end, losses)
