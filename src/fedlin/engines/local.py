"""What a client is handed in a phase: its oracle, its local work, and a count of the gradients it takes."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.core import Key, Local, Oracle, Scalar, Vector
from fedlin.engines.keys import descent_key
from fedlin.problems.objective import Data, Descent, Objective, Sampling, descend_by_gradients, repeat_steps

T = TypeVar("T")
_UNIT = 2**10  # with it both parts of a wide sum keep to 31 bits for two million clients and 2⁴¹ gradients


class Counter:
    """Gradient calls of one client in one phase, counted while its functions run or are traced."""

    def __init__(self) -> None:
        self.calls: Scalar | int = 0


def make_local(
    objective: Objective,
    sampling: Sampling | None,
    data: Data,
    noise: Data,
    tau: Scalar,
    eta: Scalar,
    key: Key,
    shared_key: Key,
) -> tuple[Local, Counter]:
    """Client i's `Local`, and the counter its oracle feeds."""
    counter = Counter()

    def estimate(x: Vector, key: Key) -> Vector:
        return objective.grad(data, x) if sampling is None else sampling.grad(objective, data, noise, x, key)

    def grad(x: Vector, key: Key) -> Vector:
        counter.calls += 1
        return estimate(x, key)

    def full(x: Vector) -> Vector:
        counter.calls += 1
        return objective.grad(data, x)

    def prox(u: Vector, s: Scalar) -> Vector:
        assert objective.prox is not None  # engines refuse an algorithm that needs it before they start
        return objective.prox(data, u, s)

    def descend(
        start: Vector,
        *,
        shift: Vector | float = 0.0,
        pull: Scalar | float = 0.0,
        center: Vector | None = None,
        steps: Scalar | int | None = None,
        eta: Scalar | float | None = None,
        anchor: Vector | None = None,
    ) -> Vector:
        if anchor is not None and sampling is None:
            shift = shift - full(anchor)
        work = Descent(
            start,
            shift,
            pull,
            start if center is None else center,
            local.tau if steps is None else steps,
            local.eta if eta is None else eta,
        )
        counter.calls += work.steps
        if sampling is None:
            quick = objective.shortcut(data, work)
            return descend_by_gradients(estimate, work, descent_key(key)) if quick is None else quick
        if anchor is not None:
            counter.calls += work.steps  # every step draws once and takes two gradients
        if sampling.descend is not None:
            return sampling.descend(data, noise, work, anchor, descent_key(key))
        if anchor is None:
            return descend_by_gradients(estimate, work, descent_key(key))
        at: Vector = anchor
        return descend_by_gradients(lambda x, key: estimate(x, key) - estimate(at, key), work, descent_key(key))

    def repeat(step: Callable[[T, Key], T], carry: T, *, steps: Scalar | int | None = None) -> T:
        before = counter.calls

        def counted(carry: tuple[T, Scalar], key: Key) -> tuple[T, Scalar]:
            counter.calls = 0  # of this step alone, whatever loops it holds
            after = step(carry[0], key)
            return after, carry[1] + counter.calls

        start = (carry, jnp.zeros((), jnp.int32))
        done, calls = repeat_steps(counted, start, local.tau if steps is None else steps, descent_key(key))
        counter.calls = before + calls
        return done

    oracle = Oracle(lambda x: objective.loss(data, x), grad, prox, full)
    local = Local(oracle, tau, eta, descend, repeat, key, shared_key)
    return local, counter


def wide_sum(counts: jax.Array) -> jax.Array:
    """Σ counts in two parts, how many units and the rest: single precision has no whole numbers beyond 32 bits."""
    return jnp.stack([jnp.sum(part, dtype=jnp.int32) for part in jnp.divmod(counts, _UNIT)])


def read_wide_sum(parts: ArrayLike) -> NDArray[np.int64]:
    """The sums, from parts along the last axis.

    >>> read_wide_sum(wide_sum(jnp.full(3, 2**30))).item() == 3 * 2**30
    True
    """
    units, rest = np.moveaxis(np.asarray(parts, np.int64), -1, 0)
    return np.asarray(units * _UNIT + rest)
