"""Any differentiable JAX loss over any pytree of parameters."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from fedlin.checks import finite, first_line, nonnegative, one_of, positive, shown
from fedlin.core import Array, Vector
from fedlin.errors import ArgumentError, DataError, UnknownError
from fedlin.fingerprint import describe, fingerprint
from fedlin.precision import precision as compute_in
from fedlin.problems.client_data import count_rows_of, stack_clients
from fedlin.problems.flat_loss import PRECISIONS, Frozen, Leaf, Loss, LossForm, Params, flat_loss, takes_key
from fedlin.problems.measure_model import Optimum
from fedlin.problems.objective import Data
from fedlin.problems.packed_rows import PackedRows, pack
from fedlin.problems.problem import Layer, Problem, Rows


class Known(NamedTuple):
    """What a user knows of f, None where nothing."""

    smoothness: float | None = None  # L
    strong_convexity: float | None = None  # μ
    polyak_lojasiewicz: float | None = None  # μ of ‖∇f‖² ≥ 2μ(f - f*)
    minimizer: Array | None = None  # x*


class Custom(Problem):
    """Clients whose loss is a user's function; `params(x)` turns a flat model back into the user's pytree."""

    def __init__(self, form: LossForm, start: Array, data: Data, known: Known) -> None:
        self._form, self._known = form, known
        self._functions = flat_loss(form)
        clients = jax.tree.leaves(data)[0].shape[0]
        super().__init__(
            self._functions.objective, data, start=start, clients=clients, sampling=self._functions.sampling
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_functions"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._functions = flat_loss(state["_form"])
        super().__setstate__(state)

    def signature(self) -> str:
        fixed = "" if self._form.frozen is None else describe(tuple(map(np.asarray, self._form.frozen.arrays.values())))
        return f"{self!r} {fingerprint(self._form.loss)} {self._form.precision}{fixed}"

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(Layer(leaf.name, leaf.shape) for leaf in self._form.leaves)

    def model(self, x: ArrayLike) -> Params:
        return self.params(x)

    @property
    def restore(self) -> Callable[[Vector], Params]:
        return self._functions.unravel

    def params(self, x: ArrayLike) -> Params:
        """The flat model `x` as the pytree it came from."""
        with compute_in(self.dtype):
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
        with compute_in(self.dtype):
            return Optimum(x, np.asarray(self._sums(x)[0]))

    def pack(self, parts: int) -> PackedRows | None:
        if not self._form.padded or self._form.draws:
            return None
        rows, weight = self.data
        lengths = self._lengths()
        # Every block has a gradient of its own: no more of them than twice the clients.
        return pack(rows, np.asarray(weight), lengths, -(-int(lengths.sum()) // self.clients), parts)

    def rows(self) -> Rows:
        of = self._functions
        return Rows(self.data, self._lengths(), of.sizes, of.pick, of.slope, of.sampling, of.split, of.join)

    def _lengths(self) -> Array:
        if self._form.padded:
            return np.asarray(np.count_nonzero(self.data[1], axis=1))
        return np.full(self.clients, count_rows_of(jax.tree.map(lambda leaf: leaf[0], self.data)))


def from_loss(
    loss: Loss,
    params: Params,
    data: Data,
    *,
    smoothness: float | None = None,
    strong_convexity: float | None = None,
    polyak_lojasiewicz: float | None = None,
    minimizer: ArrayLike | None = None,
    precision: str | None = None,
    trainable: Callable[[str], bool] | None = None,
) -> Custom:
    """f_i(params) = loss(params, batch_i), for a loss in JAX.

    A loss that draws, for dropout or augmentation, takes a key: `loss(params, batch, key)`. Every gradient then has a
    key of its own, a function of the run's seed, the round, the phase, the client and the step. If the key may be left
    out (`key=None`), models are measured without one; otherwise always with the same.

    Args:
        loss: the loss of a batch, `loss(params, batch)` or `loss(params, batch, key)`: one number, or one for each row
            of which the mean is meant. Rows of clients that differ in length are then masked, and otherwise taken one
            by one, which is slower.
        params: a pytree of float arrays, where runs start.
        data: a pytree whose arrays have a leading client axis, or a list with one pytree a client. Clients in a list
            may differ in length; `loss` must then be a mean over rows, which is checked unless it always draws.
        smoothness: L, if it is known.
        strong_convexity: μ, if it is known.
        polyak_lojasiewicz: μ of ‖∇f‖² ≥ 2μ(f - f*), if it is known.
        minimizer: the flat minimiser, if it is known.
        precision: "highest", or "tf32" (a GPU's short form of float32) for matrix products and convolutions, or
            "bfloat16" for the whole loss, computed from parameters that are kept and updated as they are. Left open,
            it is JAX's default for the device.
        trainable: whether the parameter of this name is learned, such as "block/0/adapter"; all are unless given. The
            others stay as they are: they neither travel nor take memory for each client.

    Returns:
        The problem. Its models are flat vectors; `problem.params(x)` gives the pytree.

    >>> import jax.numpy as jnp, numpy as np
    >>> def loss(w, batch):
    ...     return jnp.mean((batch["x"] @ w["slope"] + w["bias"] - batch["y"]) ** 2)
    >>> clients = [{"x": np.ones((n, 2)), "y": np.zeros(n)} for n in (3, 5)]
    >>> problem = from_loss(loss, {"slope": np.ones(2), "bias": 0.0}, clients)
    >>> problem.dim, problem.loss(problem.start)
    (3, 4.0)
    """
    if not callable(loss) or not isinstance(loss, Hashable):
        raise ArgumentError(f"loss = {shown(loss)} is not allowed: give a function (params, batch) or one with a key.")
    arrays = jax.tree.map(np.asarray, params)
    paths, tree = jax.tree_util.tree_flatten_with_path(arrays)
    leaves = [leaf for _, leaf in paths]
    if not leaves or not all(np.issubdtype(leaf.dtype, np.floating) for leaf in leaves):
        kinds = sorted({str(leaf.dtype) for leaf in leaves}) or ["nothing"]
        raise DataError(
            f"params holds {', '.join(kinds)}: every parameter must be an array of floats. Keep the rest of a model "
            "outside, as eqx.partition(model, eqx.is_inexact_array) or flax.nnx.split do."
        )
    for leaf in leaves:
        finite("params", leaf)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths]
    learned = [trainable is None or bool(trainable(name)) for name in names]
    if not any(learned):
        raise ArgumentError(f"trainable chooses none of the parameters {', '.join(names)}: it must choose one.")
    frozen = {place: leaf for place, leaf in enumerate(leaves) if not learned[place]}
    leaves = [leaf for place, leaf in enumerate(leaves) if learned[place]]
    if precision is not None:
        one_of("precision", precision, PRECISIONS)
    draws, quiet = takes_key(loss)
    stacked, padded = stack_clients(data)
    known = _known(smoothness, strong_convexity, polyak_lojasiewicz, minimizer)
    dtype = np.result_type(*leaves)
    chosen = [name for name, own in zip(names, learned, strict=True) if own]
    named = tuple(Leaf(name, leaf.shape, leaf.dtype.str) for name, leaf in zip(chosen, leaves, strict=True))
    start = np.concatenate([np.ravel(leaf) for leaf in leaves])
    with compute_in(dtype):
        constants = Frozen(jax.device_put(frozen)) if frozen else None
        form = LossForm(loss, tree, named, padded, draws, quiet, precision, constants)
        placed = jax.tree.map(lambda leaf: _as(leaf, dtype), stacked)
        form = form._replace(by_row=_is_by_row(form, params, placed))
        problem = Custom(form, start, placed, known)
        if minimizer is not None:
            problem.check_point(minimizer, "minimizer")
        if padded and quiet and not form.by_row:
            _check_mean(loss, problem, params)
    return problem


def _known(
    smoothness: float | None,
    strong_convexity: float | None,
    polyak_lojasiewicz: float | None,
    minimizer: ArrayLike | None,
) -> Known:
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
    return known


def _as(leaf: ArrayLike, dtype: np.dtype) -> Array:
    # A float32 model stays float32 whatever the data came in; whole numbers (labels, tokens) are left alone.
    array = np.asarray(leaf)
    return array.astype(dtype, copy=False) if np.issubdtype(array.dtype, np.floating) else array


def _is_by_row(form: LossForm, params: Params, data: Data) -> bool:
    """Whether the loss is one number for each row of a batch; refused is what is neither that nor one number."""
    rows = jax.tree.map(lambda leaf: leaf[0], data[0] if form.padded else data)
    key = (jax.random.key(0),) if form.draws else ()
    try:
        value = jax.eval_shape(form.loss, params, rows, *key)
    except Exception as cause:
        raise DataError(
            f"the loss cannot be computed on a client's data ({type(cause).__name__}: {first_line(cause)}): give a "
            "function that JAX can trace, and data it fits."
        ) from cause
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    lengths = {np.shape(leaf)[0] for leaf in jax.tree.leaves(rows) if np.ndim(leaf) > 0}
    by_row = len(lengths) == 1 and shape == (*lengths,)  # data without rows of one number have no loss of each
    if not (shape == () or by_row) or dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        returned = f"{type(value).__name__}" if shape is None else f"an array of shape {shape} and type {dtype}"
        raise DataError(f"the loss of a batch is {returned}: give one float, a mean over rows, or one for each row.")
    return by_row


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
