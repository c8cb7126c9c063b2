"""What one client computes from its data, as pure functions: the part of a problem that fixes the program."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pickle import PicklingError
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Key, Matrix, Optimizer, PyTree, Scalar, Vector
from fedlin.devices import runs_kernels

T = TypeVar("T")
_NEWTON_STEPS = 60  # at most; badly scaled rows take two dozen
Data = PyTree  # a problem stacks its clients' along a leading axis
Model = PyTree  # a flat vector, or the tuple of the arrays it is made of


class Descent(NamedTuple):
    """The arguments of local work, complete: see `fedlin.core.Descend`.

    Inside of a loop its vectors, like those of a slope, may be tuples of the arrays they are made of.
    """

    start: Vector
    shift: Vector | float
    pull: Scalar | float
    center: Vector
    steps: Scalar | int
    eta: Scalar | float
    change: Callable[[Vector], Vector] | None = None  # of each gradient; for steps taken one by one
    optimizer: Optimizer | None = None  # what makes a move of each direction; for steps taken one by one

    @property
    def plain(self) -> bool:
        """Whether a step is η_i times the gradient, the shift and the pull, and nothing else."""
        return self.change is None and self.optimizer is None


class Slope(NamedTuple):
    """A gradient or an estimate of one, and the loss over the same rows where that comes with it."""

    grad: Vector
    loss: Scalar | float = np.nan


Origin = tuple[Any, ...]


@dataclass(frozen=True)
class Objective:
    """f_i and its derivatives, as functions of client i's data."""

    loss: Callable[[Data, Vector], Scalar]
    grad: Callable[[Data, Vector], Vector]
    # f_i(x) - f_i(y) - ⟨∇f_i(y), x - y⟩, computed without cancellation; its mean at y = x* is the gap.
    divergence: Callable[[Data, Vector, Vector], Scalar] | None = None
    prox: Callable[[Data, Vector, Scalar], Vector] | None = None
    descend: Callable[[Data, Descent], Vector] | None = None  # faster than the loop over gradients
    # The loop as one kernel of a GPU; answers None where a client's data does not fit the chip.
    fused: Callable[[Data, Descent], Vector | None] | None = None
    outside: bool = False  # computed by code of another library, which uses the cores as it sees fit
    slope: Callable[[Data, Vector], Slope] | None = None  # `grad` and `loss` in one pass, where that costs no more
    # (data of several clients, weights w, x) -> Σ w_i f_i(x) and Σ w_i ∇f_i(x), without any client's own gradient
    total: Callable[[Data, Vector, Vector], tuple[Scalar, Vector]] | None = None
    hessian: Callable[[Data, Vector], Matrix] | None = None  # ∇²f_i(x) in closed form

    # The module, the name in it and, where that is a function, the arguments that give these functions again.
    origin: Origin | None = field(default=None, compare=False)

    def __reduce__(self) -> Any:
        return _again(self)

    def shortcut(self, data: Data, work: Descent) -> Vector | None:
        """Local work by the fastest way that is not the loop over gradients, if there is one here."""
        if self.descend is not None:
            return self.descend(data, work)
        return self.fused(data, work) if self.fused is not None and runs_kernels() else None

    def second_derivatives(self, data: Data, x: Vector) -> Matrix:
        """∇²f_i(x): in closed form, or as the derivative of the gradient, forwards, which takes loops of any length."""
        if self.hessian is not None:
            return self.hessian(data, x)
        matrix: Matrix = jax.jacfwd(lambda point: self.grad(data, point))(x)
        return matrix

    def curvature_along(self, data: Data, x: Vector, direction: Vector) -> Vector:
        """∇²f_i(x) v, at the cost of about two gradients."""
        product: Vector = jax.jvp(lambda point: self.grad(data, point), (x,), (direction,))[1]
        return product


class Descended(NamedTuple):
    """Where local work ended, the sum of the losses its steps saw, and what its optimiser remembers."""

    x: Vector
    losses: Scalar | float
    memory: PyTree = None


@dataclass(frozen=True)
class Sampling:
    """A noisy oracle: an unbiased estimate of ∇f_i from the client's data, `noise` and a key.

    `noise` is what the problem keeps for the oracle of each client; None where the client's data is all it needs.
    """

    slope: Callable[[Objective, Data, Data, Vector, Key], Slope]
    name: str = ""
    batch: int | None = None  # rows an estimate is over, where it is over some of them
    last: str | None = None  # "short" or "drop", where batches are the parts of a pass over all rows
    # (objective, data, noise, work, anchor or None, key): local work with draws that are not one a step
    descend: Callable[[Objective, Data, Data, Descent, Vector | None, Key], Descended] | None = None
    looped: bool = True  # whether `descend` takes its steps one by one in compiled code, and knows every kind of step
    # (objective, data, noise, x, key of the local work, number of the step), where `descend` does not
    step_slope: Callable[[Objective, Data, Data, Vector, Key, Scalar], Slope] | None = None
    # Over all rows, where the loss itself draws; exact where this is None.
    full: Callable[[Objective, Data, Data, Vector, Key], Slope] | None = None
    origin: Origin | None = field(default=None, compare=False)  # as of an objective

    def __reduce__(self) -> Any:
        return _again(self)


def _again(functions: Objective | Sampling) -> Any:
    """How pickle gets functions that it cannot store: from where they were made."""
    if functions.origin is None:
        raise PicklingError(f"{type(functions).__name__} of unknown origin cannot be pickled: send how to make it.")
    return _made_by, functions.origin


def _made_by(module: str, name: str, *arguments: object) -> Any:
    made = getattr(import_module(module), name)
    return made(*arguments) if arguments else made


def repeat_steps(step: Callable[[T, Key], T], carry: T, steps: Scalar | int, key: Key) -> T:
    """carry ← step(carry, key of the step), `steps` times."""
    result: T = jax.lax.fori_loop(0, steps, lambda index, c: step(c, jax.random.fold_in(key, index)), carry)
    return result


def take_step(state: Descended, slope: Slope, work: Descent) -> Descended:
    """x ← x - η(slope + shift + pull (x - center)), of each array that x is made of.

    With an optimiser x ← x + η u, u what it makes of that sum.
    """
    move = slope.grad if work.change is None else work.change(slope.grad)
    if not _is_zero(work.shift):
        move = jax.tree.map(jnp.add, move, work.shift)
    if not _is_zero(work.pull):
        move = jax.tree.map(lambda m, x, center: m + work.pull * (x - center), move, state.x, work.center)
    losses = state.losses if _is_zero(slope.loss) else state.losses + slope.loss
    memory = state.memory
    if work.optimizer is None:
        return Descended(jax.tree.map(lambda x, m: x - work.eta * m, state.x, move), losses)
    # Optax's own code, which mixes types as JAX allows by default.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        move, memory = work.optimizer.update(move, memory, state.x)
    x = jax.tree.map(lambda x, m: x + work.eta * m.astype(x.dtype), state.x, move)
    return Descended(x, losses, memory)


def _is_zero(number: object) -> bool:
    """Whether this is known to be zero before anything is traced: to add it would cost a pass over the model."""
    return isinstance(number, float | int) and number == 0


def descend_by_slopes(slope: Callable[[Vector, Scalar], Slope], work: Descent) -> Descended:
    """Local work as `steps` times `take_step`, each along the slope of the model and the step's number."""
    without_loss = False

    def step(number: Scalar, state: Descended) -> Descended:
        nonlocal without_loss
        here = slope(state.x, number)
        without_loss = isinstance(here.loss, float) and np.isnan(here.loss)
        if without_loss:  # known before anything is traced: to add it in every step would cost time
            here = Slope(here.grad, 0.0)
        return take_step(state, here, work)

    done: Descended = jax.lax.fori_loop(0, work.steps, step, begin(work))
    return done._replace(losses=np.nan) if without_loss else done


def descend_by_gradients(grad: Callable[[Vector], Vector], work: Descent) -> Vector:
    """Local work by exact gradients."""
    return descend_by_slopes(lambda x, step: Slope(grad(x)), work).x


def begin(work: Descent) -> Descended:
    """Local work before its first step."""
    memory = None if work.optimizer is None else work.optimizer.init(work.start)
    return Descended(work.start, jnp.zeros((), jax.tree.leaves(work.start)[0].dtype), memory)


def above(slope: Callable[[Model], Slope], x: Model, anchor: Model | None) -> Slope:
    """The slope at x, or with an anchor what it is above that at the anchor."""
    here = slope(x)
    return here if anchor is None else Slope(jax.tree.map(jnp.subtract, here.grad, slope(anchor).grad), here.loss)


def prox_by_newton(loss: Callable[[Data, Vector], Scalar]) -> Callable[[Data, Vector, Scalar], Vector]:
    """argmin_x f_i(x) + ‖x - u‖²/(2s) for convex f_i, by Newton's method with halved steps.

    It ends once the slope is as small as rounding leaves it: below a tolerance, or no longer falling.
    """

    def prox(data: Data, u: Vector, s: Scalar) -> Vector:
        def value(x: Vector) -> Scalar:
            total: Scalar = loss(data, x) + jnp.sum((x - u) ** 2) / (2 * s)
            return total

        slope, curvature = jax.grad(value), jax.hessian(value)
        tolerance = float(np.finfo(u.dtype).eps) * (1 + jnp.linalg.norm(u)) / s

        def improve(carry: tuple[Scalar, Vector, Scalar, Scalar]) -> tuple[Scalar, Vector, Scalar, Scalar]:
            count, x, norm, _ = carry
            g = slope(x)
            move: Vector = jnp.linalg.solve(curvature(x), g)
            sizes = 0.5 ** jnp.arange(20, dtype=u.dtype)
            trials = jax.vmap(lambda size: jnp.linalg.norm(slope(x - size * move)))(sizes)
            best = jnp.argmin(trials)
            return count + 1, x - sizes[best] * move, trials[best], trials[best] < norm

        def unfinished(carry: tuple[Scalar, Vector, Scalar, Scalar]) -> Scalar:
            count, _, norm, falls = carry
            going: Scalar = falls & (norm > tolerance) & (count < _NEWTON_STEPS)
            return going

        first = (jnp.zeros((), jnp.int32), u, jnp.linalg.norm(slope(u)), jnp.ones((), bool))
        result: Vector = jax.lax.while_loop(unfinished, improve, first)[1]
        return result

    return prox
