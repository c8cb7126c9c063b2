"""What a client's function receives in a phase: its oracle, its local work, and a count of the gradients it takes."""

import operator
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.core import Key, Local, Optimizer, Oracle, Scalar, Vector
from fedlin.engines.keys import descent_key, full_key
from fedlin.problems.objective import (
    Data,
    Descent,
    Objective,
    Sampling,
    Slope,
    above,
    descend_by_slopes,
    repeat_steps,
)

T = TypeVar("T")
_UNIT = 2**10  # with it both parts of a wide sum keep to 31 bits for two million clients and 2⁴¹ gradients


class Counts(NamedTuple):
    """What some gradients come to."""

    calls: Scalar | int = 0
    losses: Scalar | float = 0.0  # the sum of those that came with a gradient; NaN where one came without
    seen: Scalar | int = 0  # how many those are


class Counter:
    """The gradients of one client in one phase, counted while its functions run or are traced."""

    def __init__(self) -> None:
        self.counts = Counts()

    def add(self, calls: Scalar | int, losses: Scalar | float, seen: Scalar | int) -> None:
        """Count so many gradients more, and the sum of so many losses."""
        self.counts = Counts(*map(operator.add, self.counts, (calls, losses, seen)))

    @property
    def calls(self) -> Scalar | int:
        """How many gradients."""
        return self.counts.calls


def make_local(
    objective: Objective,
    sampling: Sampling | None,
    data: Data,
    noise: Data,
    tau: Scalar,
    eta: Scalar,
    key: Key,
    shared_key: Key,
    number: Scalar | int = 0,
    place: Scalar | int | None = None,
) -> tuple[Local, Counter]:
    """Client i's `Local`, and the counter its oracle feeds; `number` is i, and `place` too where all take part."""
    counter = Counter()

    def exact(x: Vector) -> Slope:
        return Slope(objective.grad(data, x)) if objective.slope is None else objective.slope(data, x)

    def estimate(x: Vector, key: Key) -> Slope:
        return exact(x) if sampling is None else sampling.slope(objective, data, noise, x, key)

    def count(slope: Slope) -> Vector:
        counter.add(1, slope.loss, 1)
        return slope.grad

    def grad(x: Vector, key: Key) -> Vector:
        return count(estimate(x, key))

    def full(x: Vector) -> Vector:
        if sampling is None or sampling.full is None:
            return count(exact(x))
        return count(sampling.full(objective, data, noise, x, full_key(key)))

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
        change: Callable[[Vector], Vector] | None = None,
        optimizer: Optimizer | None = None,
    ) -> Vector:
        if anchor is not None and sampling is None:  # where gradients are exact, the anchor's is taken once
            at_anchor, user_change = full(anchor), change
            shift = shift - at_anchor if user_change is None else shift
            change = None if user_change is None else lambda grad: user_change(grad - at_anchor)
            anchor = None
        work = Descent(
            start,
            shift,
            pull,
            start if center is None else center,
            local.tau if steps is None else steps,
            local.eta if eta is None else eta,
            change,
            optimizer,
        )
        if sampling is None and work.plain:
            closed_form = objective.shortcut(data, work)
            if closed_form is not None:
                counter.add(work.steps, np.nan, 0)
                return closed_form
        steps_key = descent_key(key)
        if sampling is not None and sampling.descend is not None and (work.plain or sampling.looped):
            done = sampling.descend(objective, data, noise, work, anchor, steps_key)
        elif sampling is not None and sampling.step_slope is not None:
            at_step = partial(sampling.step_slope, objective, data, noise)
            done = descend_by_slopes(lambda x, step: above(lambda x: at_step(x, steps_key, step), x, anchor), work)
        else:
            done = descend_by_slopes(
                lambda x, step: above(lambda x: estimate(x, jax.random.fold_in(steps_key, step)), x, anchor), work
            )
        # With an anchor every step draws once and takes two gradients.
        counter.add(work.steps if anchor is None else 2 * work.steps, done.losses, work.steps)
        return done.x

    def repeat(step: Callable[[T, Key], T], carry: T, *, steps: Scalar | int | None = None) -> T:
        before = counter.counts

        def counted(carry: tuple[T, Counts], key: Key) -> tuple[T, Counts]:
            counter.counts = Counts()  # of this step alone, whatever loops it holds
            after = step(carry[0], key)
            return after, Counts(*map(operator.add, carry[1], counter.counts))

        zero = jnp.zeros((), jnp.int32)
        start = (carry, Counts(zero, jnp.zeros((), local.eta.dtype), zero))
        done, during = repeat_steps(counted, start, local.tau if steps is None else steps, descent_key(key))
        counter.counts = Counts(*map(operator.add, before, during))
        return done

    oracle = Oracle(
        partial(objective.loss, data),
        grad,
        prox,
        full,
        partial(objective.second_derivatives, data),
        partial(objective.curvature_along, data),
    )
    number, place = (jnp.asarray(at, jnp.int32) for at in (number, number if place is None else place))
    local = Local(oracle, tau, eta, descend, repeat, key, shared_key, number, place)
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
