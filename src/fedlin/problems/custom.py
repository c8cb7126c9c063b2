"""Any differentiable JAX loss over any pytree of parameters."""

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.checks import all_finite, finite, nonnegative, positive, shape_of, shown
from fedlin.core import Key, Scalar, Vector
from fedlin.errors import ArgumentError, DataError, UnknownError
from fedlin.precision import precision
from fedlin.problems.fingerprint import fingerprint
from fedlin.problems.objective import Objective
from fedlin.problems.problem import Optimum, Problem, Rows

Array = NDArray[Any]
Params = Any
Batch = Any
Loss = Callable[[Params, Batch], Scalar]


class Known(NamedTuple):
    """What a user knows of f, None where nothing."""

    smoothness: float | None = None  # L
    strong_convexity: float | None = None  # μ
    polyak_lojasiewicz: float | None = None  # μ of ‖∇f‖² ≥ 2μ(f - f*)
    minimizer: Array | None = None  # x*


class Custom(Problem):
    """Clients whose loss is a user's function; `params(x)` turns a flat model back into the user's pytree."""

    def __init__(self, loss: Loss, params: Params, data: Any, ragged: bool, known: Known) -> None:
        self._loss, self._ragged, self._known = loss, ragged, known
        leaves, treedef = jax.tree.flatten(jax.tree.map(np.asarray, params))
        flat = np.concatenate([np.ravel(leaf) for leaf in leaves])
        shapes = tuple((leaf.shape, leaf.dtype.str) for leaf in leaves)
        self._functions = _functions(loss, treedef, shapes, ragged)
        clients = jax.tree.leaves(data)[0].shape[0]
        super().__init__(self._functions.objective, data, start=flat, clients=clients)

    def signature(self) -> str:
        return f"{self!r} {fingerprint(self._loss)}"

    def params(self, x: ArrayLike) -> Params:
        """The flat model `x` as the pytree it came from."""
        with precision(self.dtype):
            return self._functions.unravel(jnp.asarray(self.check_point(x, "x")))

    def curvature(self) -> tuple[Array, Array]:
        if self._known.smoothness is None:
            return super().curvature()
        least = self._known.strong_convexity or 0.0
        return np.full(self.clients, self._known.smoothness), np.full(self.clients, least)

    @property
    def polyak_lojasiewicz(self) -> float:
        known = self._known.polyak_lojasiewicz
        return super().polyak_lojasiewicz if known is None else known

    def solve(self) -> Optimum:
        if self._known.minimizer is None:
            return super().solve()
        x = self.check_point(self._known.minimizer, "minimizer")
        if not np.allclose(self.weights, self.weights[0]):
            raise UnknownError("minimizer= was given for equal weights; with other weights the minimiser is not known.")
        with precision(self.dtype):
            losses = jax.vmap(lambda client: self.objective.loss(client, jnp.asarray(x)))(self.data)
            return Optimum(x, np.mean(np.asarray(losses)))

    def rows(self) -> Rows:
        return Rows(self.data, self._functions.take, self._functions.grad, self._lengths())

    def _lengths(self) -> Array:
        if self._ragged:
            return np.asarray(np.count_nonzero(self.data[1], axis=1))
        return np.full(self.clients, _length(jax.tree.map(lambda leaf: leaf[0], self.data)))


class _Functions(NamedTuple):
    objective: Objective
    take: Callable[[Any, Key, int], Batch]
    grad: Callable[[Batch, Vector], Vector]  # over a batch of rows
    unravel: Callable[[Vector], Params]


@cache
def _functions(loss: Loss, treedef: Any, shapes: Any, ragged: bool) -> _Functions:
    # Cached by structure, so that two problems with the same loss share one compiled program.
    ends = np.cumsum([int(np.prod(shape)) for shape, _ in shapes])

    def unravel(x: Vector) -> Params:
        parts = jnp.split(x, ends[:-1])
        leaves = [p.reshape(shape).astype(dtype) for p, (shape, dtype) in zip(parts, shapes, strict=True)]
        return jax.tree.unflatten(treedef, leaves)

    def mean_loss(data: Any, x: Vector) -> Scalar:
        return loss(unravel(x), data)

    def padded_loss(data: tuple[Batch, Vector], x: Vector) -> Scalar:
        batch, weight = data
        params = unravel(x)
        rows = jax.vmap(lambda row: loss(params, jax.tree.map(lambda leaf: leaf[None], row)))(batch)
        return jnp.sum(weight.astype(rows.dtype) * jnp.where(weight > 0, rows, 0))

    def take(data: Any, key: Key, size: int) -> Batch:
        batch, count = (data[0], jnp.sum(data[1] > 0)) if ragged else (data, _length(data))
        picked = jax.random.randint(key, (size,), 0, count)
        return jax.tree.map(lambda leaf: leaf[picked], batch)

    chosen = padded_loss if ragged else mean_loss
    objective = Objective(chosen, jax.grad(chosen, argnums=1))
    return _Functions(objective, take, jax.grad(mean_loss, argnums=1), unravel)


def from_loss(
    loss: Loss,
    params: Params,
    data: Any,
    *,
    smoothness: float | None = None,
    strong_convexity: float | None = None,
    polyak_lojasiewicz: float | None = None,
    minimizer: ArrayLike | None = None,
) -> Custom:
    """f_i(params) = loss(params, batch_i).

    `data` is a pytree whose arrays have a leading client axis, or a list with one pytree a client. Clients in
    a list may differ in length; `loss` must then be a mean over rows, which is checked here. What is known of
    f may be given: L, μ, a Polyak-Łojasiewicz constant, and the flat minimiser.

    >>> import jax.numpy as jnp, numpy as np
    >>> def loss(w, batch):
    ...     return jnp.mean((batch["x"] @ w["slope"] + w["bias"] - batch["y"]) ** 2)
    >>> clients = [{"x": np.ones((n, 2)), "y": np.zeros(n)} for n in (3, 5)]
    >>> problem = from_loss(loss, {"slope": np.ones(2), "bias": 0.0}, clients)
    >>> problem.dim, problem.loss(problem.start)
    (3, 4.0)
    """
    if not callable(loss) or not isinstance(loss, Hashable):
        raise ArgumentError(f"loss = {shown(loss)} is not allowed: give a function of parameters and a batch.")
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    if not leaves or not all(np.issubdtype(leaf.dtype, np.floating) for leaf in leaves):
        kinds = sorted({str(leaf.dtype) for leaf in leaves}) or ["nothing"]
        raise DataError(
            f"params holds {', '.join(kinds)}: every parameter must be an array of floats. Keep the rest of a model "
            "outside, as eqx.partition(model, eqx.is_inexact_array) or flax.nnx.split do."
        )
    for leaf in leaves:
        finite("params", leaf)
    ragged = False
    if isinstance(data, list | tuple) and not hasattr(data, "_fields"):
        data, ragged = _stack(list(data))
    else:
        _check_stacked(data)
    _no_nan(data[0] if ragged else data)
    known = Known(
        None if smoothness is None else positive("smoothness", smoothness),
        None if strong_convexity is None else nonnegative("strong_convexity", strong_convexity),
        None if polyak_lojasiewicz is None else positive("polyak_lojasiewicz", polyak_lojasiewicz),
        None if minimizer is None else finite("minimizer", minimizer, ArgumentError),
    )
    if known.strong_convexity is not None and (known.smoothness or 0.0) < known.strong_convexity:
        raise ArgumentError(
            f"strong_convexity = {strong_convexity} with smoothness = {smoothness}: give both, μ at most L."
        )
    dtype = np.result_type(*leaves)
    with precision(dtype):
        problem = Custom(loss, params, jax.tree.map(lambda leaf: _as(leaf, dtype), data), ragged, known)
        _check_loss(problem)
        if minimizer is not None:
            problem.check_point(minimizer, "minimizer")
        if ragged:
            _check_mean(loss, problem, params)
    return problem


def _as(leaf: Any, dtype: np.dtype[Any]) -> Array:
    # A float32 model stays float32 whatever the data came in; whole numbers (labels, tokens) are left alone.
    array = np.asarray(leaf)
    return array.astype(dtype, copy=False) if np.issubdtype(array.dtype, np.floating) else array


def _check_loss(problem: Custom) -> None:
    """Refuse a loss that cannot be computed on a client's data, or that is not one number."""
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), problem.data)  # type: ignore[no-untyped-call]
    try:
        value = jax.eval_shape(problem.objective.loss, one, jnp.asarray(problem.start))
    except Exception as cause:
        lines = str(cause).strip().split("\n")
        raise DataError(
            f"the loss cannot be computed on a client's data ({type(cause).__name__}: {lines[0]}): give loss(params, "
            "batch) that JAX can trace, and data it fits."
        ) from cause
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape != () or not np.issubdtype(dtype, np.floating):
        raise DataError(f"the loss is {value}: return one floating-point number, such as a mean over rows.")


def _check_stacked(data: Any) -> None:
    lengths = {shape_of("data", leaf, DataError)[:1] for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or lengths <= {(), (0,)}:
        raise DataError(
            f"data has arrays of leading sizes {sorted(lengths)}: stack all of them along one client axis, of at least "
            "one client."
        )


def _stack(clients: Sequence[Batch]) -> tuple[Any, bool]:
    if not clients:
        raise DataError("data has no clients: give at least one.")
    structures = {jax.tree.structure(client) for client in clients}
    if len(structures) != 1:
        raise DataError("clients differ in the structure of their data: give every client the same arrays.")
    inner = {tuple(np.shape(leaf)[1:] for leaf in jax.tree.leaves(client)) for client in clients}
    if len(inner) != 1:
        raise DataError(f"clients differ in the shape of a row ({sorted(inner)[:2]}): all must share one.")
    counts = [_length(client) for client in clients]
    if min(counts) == 0:
        raise DataError(f"client {counts.index(0)} has no rows: leave it out, or give it at least one.")
    longest = max(counts)

    def pad(*parts: Array) -> Array:
        return np.stack(
            [np.concatenate([p, np.repeat(p[:1], longest - len(p), axis=0)]) for p in map(np.asarray, parts)]
        )

    stacked = jax.tree.map(pad, *clients)
    if min(counts) == longest:
        return stacked, False
    weight = np.array([[1 / n] * n + [0.0] * (longest - n) for n in counts])
    return (stacked, weight), True


def _length(batch: Batch) -> int:
    lengths = {int(np.shape(leaf)[0]) for leaf in jax.tree.leaves(batch) if np.ndim(leaf) > 0}
    if len(lengths) != 1:
        raise DataError(f"the arrays of a client have {sorted(lengths)} rows: all must have the same number.")
    return lengths.pop()


def _no_nan(data: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        array = np.asarray(leaf)
        name = jax.tree_util.keystr(path)
        if array.dtype.kind not in "biufc":
            raise DataError(f"data{name} holds {array.dtype}: give arrays of numbers, words encoded as such.")
        if np.issubdtype(array.dtype, np.floating) and not all_finite(array):
            raise DataError(f"data{name} has entries that are NaN or infinite: clean or impute it first.")


def _check_mean(loss: Loss, problem: Custom, params: Params) -> None:
    batch, weight = problem.data
    for i in range(problem.clients):
        own = jax.tree.map(lambda leaf, i=i: leaf[i][weight[i] > 0], batch)
        whole = float(loss(params, own))
        by_row = float(
            problem.objective.loss((jax.tree.map(lambda a, i=i: a[i], batch), weight[i]), jnp.asarray(problem.start))
        )
        if not np.isclose(whole, by_row, rtol=1e-4, atol=1e-6):
            raise DataError(
                f"clients have different numbers of rows, and the loss of client {i} is {whole:.6g} but the mean "
                f"of its rows' losses is {by_row:.6g}: write the loss as a mean over rows, "
                "or give clients of equal length."
            )
