"""What is minimised: f = Σ w_i f_i over the clients, with everything that is known about it."""

import copy
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from numpy.typing import ArrayLike

from fedlin.checks import finite
from fedlin.columns import Measures
from fedlin.core import Array, Key, PyTree, Scalar, Vector
from fedlin.errors import ArgumentError, UnknownError
from fedlin.layout import one_pass_block
from fedlin.memory import fitting_block
from fedlin.precision import precision
from fedlin.problems.measure_model import Optimum, Sums, measure, survey
from fedlin.problems.metrics import Evaluate, Metric, as_it_is, evaluate_in_blocks
from fedlin.problems.objective import Data, Model, Objective, Sampling, Slope

_BLOCKS: dict[Hashable, int | None] = {}  # clients at a time, of problems with one objective and data of one shape


@dataclass(frozen=True)
class Layer:
    """An array of a model's parameters; a flat model is its layers one after the other."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many entries it has."""
        return prod(self.shape)


class Rows(NamedTuple):
    """How to draw a mini-batch from a client: its rows, and the slope of f_i restricted to a few of them."""

    data: Data
    lengths: Array  # n_i, of every client
    sizes: Callable[[Data], tuple[Scalar | int, int]]  # of a client: n_i, and the rows its data has room for
    # (data, numbers of rows, share of each or None where all are alike) -> batch
    pick: Callable[[Data, jax.Array, Vector | None], Data]
    slope: Callable[[Data, Model, Key], Slope]  # (batch, x, key)
    sampling: Sampling | None = None  # over all rows, of a loss that draws
    # From a flat model to the arrays on which `slope` works, and back; None where it works on flat models.
    split: Callable[[Vector], Model] | None = None
    join: Callable[[Model], Vector] | None = None


class Problem:
    """Base of all problems. Subclasses say what they know by overriding `curvature` and `solve`.

    Args:
        objective: f_i and its gradient as functions of one client's data.
        data: The data of all clients, a leading axis of clients in every array.
        start: The starting point of runs that are given none, (d,).
        clients: m.
        sampling: How an oracle draws rows, where it does.
        noise: What the oracle's noise needs of each client.

    >>> from fedlin.problems import quadratic
    >>> problem = quadratic([[[1.0]], [[2.0]]], [[3.0], [100.0]])
    >>> problem.clients, problem.dim, problem.smoothness, problem.strong_convexity, problem.minimizer.round(3).tolist()
    (2, 1, 2.0, 1.0, [34.333])
    """

    def __init__(
        self,
        objective: Objective,
        data: Data,
        *,
        start: Array,
        clients: int,
        sampling: Sampling | None = None,
        noise: Data = None,
    ) -> None:
        self.objective = objective
        self.data = data
        self.start = start
        self.clients = clients
        self.weights = np.full(clients, 1 / clients)
        self.sampling = sampling
        self.noise = noise
        self.sampler: Callable[[Any], Problem] | None = None  # makes `sampling` again where pickle cannot store it

    @cached_property
    def dim(self) -> int:
        """d, the number of entries of a model."""
        return int(self.start.size)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The arrays that a flat model is made of, in its order; one where nothing more is known."""
        return (Layer("x", (self.dim,)),)

    @cached_property
    def dtype(self) -> np.dtype:
        """The precision in which everything about this problem is computed."""
        return self.start.dtype

    def __repr__(self) -> str:
        return f"{type(self).__name__}(clients={self.clients}, dim={self.dim}, dtype={self.dtype})"

    def __copy__(self) -> "Problem":
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what the device holds, which is made again where the problem arrives."""
        left = {"device_data", "_packed", *(() if self.sampler is None else ("sampling", "noise"))}
        return {name: value for name, value in vars(self).items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.sampler is not None:
            self.sampling, self.noise = None, None
            made = self.sampler(self)
            self.sampling, self.noise = made.sampling, made.noise

    def signature(self) -> str:
        """What tells this kind of problem from others that have the same data."""
        return repr(self)

    # What is known. Subclasses override the two that compute; the rest follows.

    def curvature(self) -> tuple[Array, Array]:
        """L_i and μ_i of every client."""
        raise UnknownError(
            f"{self!r} does not know its smoothness: give step sizes yourself, or pass smoothness= when building it."
        )

    def solve(self) -> Optimum:
        """x* and f*."""
        raise UnknownError(f"{self!r} does not know its minimiser: pass minimizer= when building it, if you do.")

    @cached_property
    def _curvature(self) -> tuple[Array, Array]:
        return self.curvature()

    @property
    def smoothness_each(self) -> Array:
        """L_i."""
        return self._curvature[0]

    @property
    def strong_convexity_each(self) -> Array:
        """μ_i; zero where f_i is convex and no more."""
        return self._curvature[1]

    @property
    def smoothness(self) -> float:
        """L = max L_i."""
        return float(np.max(self.smoothness_each))

    @property
    def strong_convexity(self) -> float:
        """μ = min μ_i."""
        return float(np.min(self.strong_convexity_each))

    @property
    def condition(self) -> float:
        """κ = L/μ."""
        if self.strong_convexity <= 0:
            raise UnknownError(f"{self!r} is not strongly convex (μ = 0), so it has no condition number κ = L/μ.")
        return self.smoothness / self.strong_convexity

    @property
    def polyak_lojasiewicz(self) -> float:
        """μ of ‖∇f‖² ≥ 2μ(f - f*): the strong convexity, unless a subclass knows better."""
        if self.strong_convexity <= 0:
            raise UnknownError(f"{self!r} does not know a Polyak-Łojasiewicz constant.")
        return self.strong_convexity

    @cached_property
    def device_data(self) -> Data:
        """The clients' data where JAX computes, moved there once."""
        with precision(self.dtype):
            return jax.device_put(self.data)

    def pack(self, parts: int) -> Data | None:
        """The clients' data with rows in blocks, shared out over so many devices; None where that saves little."""
        return None

    @cached_property
    def _packed(self) -> dict[int, Data | None]:
        return {}

    def packed_data(self, parts: int) -> Data | None:
        """What `pack` makes, made once."""
        if parts not in self._packed:
            self._packed[parts] = self.pack(parts) if self.clients % parts == 0 else None
        return self._packed[parts]

    @cached_property
    def optimum(self) -> Optimum:
        """x*, f* and, for quadratics, the Hessian of f; an error where they are not known."""
        return self.solve()

    @cached_property
    def known_optimum(self) -> Optimum | None:
        """The optimum, or None where it is not known."""
        try:
            return self.optimum
        except UnknownError:
            return None

    @property
    def minimizer(self) -> Array:
        """x*."""
        return np.asarray(self.optimum.x)

    @property
    def minimum(self) -> float:
        """f*."""
        return float(self.optimum.value)

    searches = True  # whether `solve` takes many passes over data in memory, as it does where nothing else is known

    def without_search(self) -> "Problem":
        """The same problem, its optimum known only if it was asked for before or takes no search."""
        if not self.searches or "known_optimum" in self.__dict__:
            return self
        other = copy.copy(self)
        other.known_optimum = self.__dict__.get("optimum")
        return other

    # Evaluation, in the problem's own precision.

    def loss(self, x: ArrayLike) -> float:
        """f(x)."""
        return float(self.measure(x)["loss"])

    def gap(self, x: ArrayLike) -> float:
        """f(x) - f*, without cancellation."""
        self.optimum  # noqa: B018 - raises where x* is not known
        return float(self.measure(x)["gap"])

    def grad(self, x: ArrayLike) -> Array:
        """∇f(x)."""
        with precision(self.dtype):
            return np.asarray(self._sums(self.check_point(x, "x"))[1])

    def _sums(self, point: Array) -> Sums:
        """Σ w_i f_i(x) and Σ w_i ∇f_i(x)."""
        weights, block = jnp.asarray(self.weights, self.dtype), self._fitting(_survey, point)
        sums: Sums = _survey(self.objective, block)(self.device_data, weights, point)
        return sums

    def measure(self, x: ArrayLike, data: Data = None) -> Measures:
        """All that is measured of a model, by column; `data` is the clients' where it lies on several devices.

        Args:
            x: A model, (d,).
            data: The clients' data where it lies on several devices.

        Returns:
            The measures by the names of their columns, NaN where one is not known.
        """
        with precision(self.dtype):
            point = self.check_point(x, "x")
            block = self.pass_block if data is None else None
            data = self.device_data if data is None else data
            weights = jnp.asarray(self.weights, self.dtype)
            measures: Measures = _measure(self.objective, block)(data, weights, self.known_optimum, point)
            return measures

    def model(self, x: ArrayLike) -> PyTree:
        """A flat model as users know it: a pytree of parameters, a torch module, or the vector itself."""
        return self.check_point(x, "x")

    def evaluator(self, metrics: Mapping[str, Metric], test: Data) -> Evaluate:
        """The function from a flat model to its metrics on test data.

        Args:
            metrics: Functions (model, batch) by name, each a mean over the batch's rows.
            test: The test data, in the form of one client's.

        Returns:
            A function from a flat model to the metrics by name.
        """
        with precision(self.dtype):
            evaluate = evaluate_in_blocks(metrics, self.restore, self.start, jax.tree.map(self._as_data, test))

        def in_precision(x: ArrayLike) -> dict[str, float]:
            with precision(self.dtype):
                return evaluate(x)

        return in_precision

    @property
    def restore(self) -> Callable[[Vector], PyTree]:
        """From a flat model to what losses and metrics take, as traced code."""
        return as_it_is

    def _as_data(self, leaf: ArrayLike) -> Array:
        """An array in the problem's own precision; whole numbers, such as labels, are left alone."""
        array = np.asarray(leaf)
        return array.astype(self.dtype, copy=False) if np.issubdtype(array.dtype, np.floating) else array

    @cached_property
    def pass_block(self) -> int | None:
        """Clients at a time when a model is measured, so that it fits the device; None for all at once."""
        with precision(self.dtype):
            return self._fitting(_measure, self.known_optimum, self.start)

    def _fitting(self, make: Callable[[Objective, int | None], Wrapped], *more: PyTree) -> int | None:
        """Clients at a time in the program of a pass over all of them, given more than their data and weights."""
        first = one_pass_block(self.data, self.clients)
        if self.objective.outside:  # whose memory JAX does not see
            return first
        arguments = (self.device_data, jnp.asarray(self.weights, self.dtype), *more)
        leaves, tree = jax.tree.flatten(arguments)
        kind = (make, self.objective, tree, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves))
        if kind not in _BLOCKS:
            _BLOCKS[kind] = fitting_block(
                lambda block: make(self.objective, block), arguments, self.clients, first, measuring=True
            )
        return _BLOCKS[kind]

    def check_point(self, x: ArrayLike, name: str) -> Array:
        """`x` as a model of this problem, or an error that says what fits."""
        point = finite(name, x, ArgumentError)
        if point.shape != (self.dim,):
            raise ArgumentError(
                f"{name} has shape {point.shape} and the model has {self.dim} entries: give shape ({self.dim},)."
            )
        return point.astype(self.dtype)

    def client(self, index: int) -> "Problem":
        """Client `index` alone, as a problem that knows its own oracle and nothing about the others.

        >>> from fedlin.problems.regression import least_squares
        >>> least_squares(clients=3, dim=4, samples=5).client(2)
        Problem(clients=1, dim=4, dtype=float64)
        """
        if not 0 <= index < self.clients:
            raise ArgumentError(f"index = {index!r} is not allowed: give a number from 0 to {self.clients - 1}.")
        data, noise = jax.tree.map(lambda leaf: leaf[index : index + 1], (self.data, self.noise))
        return Problem(self.objective, data, start=self.start, clients=1, sampling=self.sampling, noise=noise)

    def weighted(self, weights: ArrayLike) -> "Problem":
        """The same clients with f = Σ w_i f_i, w scaled to sum to one.

        Args:
            weights: w_i, (m,): none negative, and at least one above 0.

        Returns:
            A new problem; its minimiser is searched for anew.
        """
        array = finite("weights", weights, ArgumentError)
        if array.shape != (self.clients,):
            raise ArgumentError(
                f"weights has shape {array.shape} for {self.clients} clients: give one weight for each client."
            )
        if np.any(array < 0) or not np.any(array > 0):
            raise ArgumentError(f"weights are {array.tolist()}: none may be negative and at least one must be above 0.")
        other = copy.copy(self)
        for name in ("optimum", "known_optimum"):
            other.__dict__.pop(name, None)
        other.weights = array / array.sum()
        return other

    @property
    def row_counts(self) -> Array:
        """How many rows each client has."""
        return np.asarray(self.rows().lengths)

    def rows(self) -> Rows:
        """The clients' data row by row, for mini-batches."""
        raise UnknownError(f"{self!r} has no rows to draw mini-batches from: use fedlin.problems.noisy instead.")


@cache
def _measure(objective: Objective, block: int | None) -> Wrapped:
    def run(data: Data, weights: Vector, optimum: Optimum | None, x: Vector) -> Measures:
        return measure(objective, optimum, x, lambda: survey(objective, data, weights, optimum, x, block))

    return jax.jit(run)


@cache
def _survey(objective: Objective, block: int | None) -> Wrapped:
    def run(data: Data, weights: Vector, x: Vector) -> Sums:
        return survey(objective, data, weights, None, x, block)

    return jax.jit(run)
