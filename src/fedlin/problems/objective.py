"""What one client computes from its data, as pure functions: the part of a problem that fixes the program."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.core import Key, Scalar, Vector
from fedlin.devices import runs_kernels

T = TypeVar("T")
_NEWTON_STEPS = 60  # at most; badly scaled rows take two dozen
Data = Any  # a pytree of arrays; a problem stacks its clients' along a leading axis


class Descent(NamedTuple):
    """The arguments of local work, complete: see `fedlin.core.Descend`."""

    start: Vector
    shift: Vector | float
    pull: Scalar | float
    center: Vector
    steps: Scalar | int
    eta: Scalar | float
    change: Callable[[Vector], Vector] | None = None  # of each gradient; for steps taken one by one


class Slope(NamedTuple):
    """A gradient or an estimate of one, and the loss over the same rows where that comes with it."""

    grad: Vector
    loss: Scalar | float = np.nan


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

    def shortcut(self, data: Data, work: Descent) -> Vector | None:
        """Local work by the fastest way that is not the loop over gradients, if there is one here."""
        if self.descend is not None:
            return self.descend(data, work)
        return self.fused(data, work) if self.fused is not None and runs_kernels() else None


class Descended(NamedTuple):
    """Where local work ended, and the sum of the losses its steps saw."""

    x: Vector
    losses: Scalar


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
    looped: bool = True  # whether `descend` takes its steps one by one in compiled code
    # Over all rows, where the loss itself draws; exact where this is None.
    full: Callable[[Objective, Data, Data, Vector, Key], Slope] | None = None


def repeat_steps(step: Callable[[T, Key], T], carry: T, steps: Scalar | int, key: Key) -> T:
    """carry ← step(carry, key of the step), `steps` times."""
    result: T = jax.lax.fori_loop(0, steps, lambda index, c: step(c, jax.random.fold_in(key, index)), carry)
    return result


def take_step(state: Descended, slope: Slope, work: Descent) -> Descended:
    """x ← x - η(slope + shift + pull (x - center))."""
    x, grad = state.x, slope.grad if work.change is None else work.change(slope.grad)
    x = x - work.eta * (grad + work.shift + work.pull * (x - work.center))
    return Descended(x, state.losses + slope.loss)


def descend_by_slopes(slope: Callable[[Vector, Key], Slope], work: Descent, key: Key) -> Descended:
    """Local work as `steps` times `take_step`, each with a key of its own."""
    return repeat_steps(lambda state, key: take_step(state, slope(state.x, key), work), begin(work), work.steps, key)


def descend_by_gradients(grad: Callable[[Vector, Key], Vector], work: Descent, key: Key) -> Vector:
    """Local work by gradients alone."""
    return descend_by_slopes(lambda x, key: Slope(grad(x, key)), work, key).x


def begin(work: Descent) -> Descended:
    """Local work before its first step."""
    return Descended(work.start, jnp.zeros((), work.start.dtype))


def above(slope: Callable[[Vector], Slope], x: Vector, anchor: Vector | None) -> Slope:
    """The slope at x, or with an anchor what it is above that at the anchor."""
    here = slope(x)
    return here if anchor is None else Slope(here.grad - slope(anchor).grad, here.loss)


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
