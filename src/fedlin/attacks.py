"""Clients that lie, as wrappers of a method: what a robust mean (`fedlin.aggregation`) is tried against.

An attack names its attackers by their numbers; all others are honest. `sign_flip`, `noise`, `a_little_is_enough` and
`inner_product` change what the attackers upload in every phase, the latter two by all honest uploads of the phase, as
clients could that see each other's. They are simulated: in a federation the server has no say in what a site sends.
`wrong_labels` has the attackers work honestly on labels that are false.

M. Baruch, G. Baruch, Y. Goldberg, A Little Is Enough, NeurIPS 2019.
C. Xie, O. Koyejo, I. Gupta, Fall of Empires: Breaking Byzantine-Tolerant SGD by Inner Product Manipulation, UAI 2019.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from fedlin.algorithms.factory import factory
from fedlin.algorithms.wrap import wrap
from fedlin.checks import positive, positive_integer, real, shown
from fedlin.core import Key, Local, Matrix, Message, Method, Oracle, Scalar, Vector
from fedlin.errors import ArgumentError


def sign_flip(method: Method, attackers: Iterable[int], scale: float = 1.0, phase: str | None = None) -> Method:
    """-s u_i in place of an attacker's upload u_i.

    Args:
        method: What the clients were to do.
        attackers: The numbers of those who lie.
        scale: s.
        phase: The name of the phase whose uploads are false; every phase's unless given.

    Returns:
        The attacked method.

    >>> import fedlin
    >>> sign_flip(fedlin.fedavg(), attackers=[0]).name
    'sign_flip(fedavg)'
    """
    return _named("sign_flip", method, attackers, phase, own=-positive("scale", scale))


def noise(method: Method, attackers: Iterable[int], scale: float, phase: str | None = None) -> Method:
    """u_i + s ξ in place of an attacker's upload u_i, the entries of ξ standard normal.

    Args:
        method: What the clients were to do.
        attackers: The numbers of those who lie.
        scale: s.
        phase: The name of the phase whose uploads are false; every phase's unless given.

    Returns:
        The attacked method.

    >>> import fedlin
    >>> noise(fedlin.fedavg(), attackers=[0, 3], scale=10.0).name
    'noise(fedavg)'
    """
    return _named("noise", method, attackers, phase, own=1.0, draw=positive("scale", scale))


def a_little_is_enough(
    method: Method, attackers: Iterable[int], deviations: float = 1.5, phase: str | None = None
) -> Method:
    """ū - z σ from every attacker: the honest uploads' mean, moved by z of their standard deviations in every entry.

    Args:
        method: What the clients were to do.
        attackers: The numbers of those who lie.
        deviations: z, small enough that a false upload lies among the honest ones.
        phase: The name of the phase whose uploads are false; every phase's unless given.

    Returns:
        The attacked method.

    >>> import fedlin
    >>> a_little_is_enough(fedlin.fedavg(), attackers=[0]).name
    'a_little_is_enough(fedavg)'
    """
    away = -positive("deviations", deviations)
    return _named("a_little_is_enough", method, attackers, phase, centre=1.0, deviation=away)


def inner_product(method: Method, attackers: Iterable[int], scale: float = 2.0, phase: str | None = None) -> Method:
    """-s ū from every attacker, ū the mean of the honest uploads: the mean of all is shorter, or points the other way.

    Where a method has two phases that multiply each other, as FedLin's gradients and moves do, two lies may cancel.

    Args:
        method: What the clients were to do.
        attackers: The numbers of those who lie.
        scale: s.
        phase: The name of the phase whose uploads are false; every phase's unless given.

    Returns:
        The attacked method.

    >>> import fedlin
    >>> inner_product(fedlin.fedavg(), attackers=[0]).name
    'inner_product(fedavg)'
    """
    return _named("inner_product", method, attackers, phase, centre=-positive("scale", scale))


def _named(name: str, method: Method, attackers: Iterable[int], phase: str | None, **parts: float) -> Method:
    zero = dict.fromkeys(("own", "centre", "deviation", "draw"), 0.0)
    attacked = _forged(method, _numbers(attackers), phase, **(zero | parts))
    return replace(attacked, name=f"{name}({method.name})")


def _any_number(name: str, value: object) -> float:
    return real(name, value, lambda number: True, "a finite number")


@factory(own=_any_number, centre=_any_number, deviation=_any_number, draw=_any_number)
def _forged(
    method: Method,
    attackers: tuple[int, ...],
    phase: str | None,
    own: float,
    centre: float,
    deviation: float,
    draw: float,
) -> Method:
    """own u_i + centre ū + deviation σ + draw ξ from attacker i: one program for attacks that differ in numbers."""

    def forge(rows: Matrix, honest: Vector, key: Key) -> Matrix:
        mean = _honest_mean(rows, honest)[None]
        spread = jnp.sqrt(_honest_mean((rows - mean) ** 2, honest))[None]
        return own * rows + centre * mean + deviation * spread + draw * jax.random.normal(key, rows.shape, rows.dtype)

    def tamper(uploads: Message, numbers: Vector, present: Vector, key: Key) -> Message:
        lies = _among(numbers, attackers)

        def arrived(place: int, rows: Matrix) -> Matrix:
            false = forge(rows, present & ~lies, jax.random.fold_in(key, place))
            return jnp.where(lies.reshape(-1, *[1] * (rows.ndim - 1)), false, rows)

        leaves, tree = jax.tree.flatten(uploads)
        return jax.tree.unflatten(tree, [arrived(place, rows) for place, rows in enumerate(leaves)])

    return wrap(method, "forged", tamper=tamper, tampered_phase=phase)


def wrong_labels(method: Method, attackers: Iterable[int]) -> Method:
    """f_i(-x) in place of an attacker's f_i(x): its loss with every label or target negated, where the model is linear.

    That is so for `logistic` with labels ±1 and for least squares, with an intercept or without. For other problems,
    give the attackers false labels in their data instead.

    Args:
        method: What the clients do.
        attackers: The numbers of those whose labels are wrong.

    Returns:
        The attacked method.

    >>> import fedlin
    >>> wrong_labels(fedlin.fedavg(), attackers=[0]).name
    'wrong_labels(fedavg)'
    """
    return _wrong_labels(method, _numbers(attackers))


@factory()
def _wrong_labels(method: Method, attackers: tuple[int, ...]) -> Method:
    return wrap(method, "wrong_labels", local=lambda local: _mirrored(local, _among(local.number, attackers)))


def _mirrored(local: Local, lies: Scalar) -> Local:
    """The `Local` of f_i(-x) where the client lies, of f_i(x) itself where not."""

    def turn(x: Any) -> Any:
        return jnp.where(lies, -x, x)

    honest = local.oracle
    oracle = Oracle(
        loss=lambda x: honest.loss(turn(x)),
        grad=lambda x, key: turn(honest.grad(turn(x), key)),
        prox=lambda u, s: turn(honest.prox(turn(u), s)),
        full=lambda x: turn(honest.full(turn(x))),
        hessian=lambda x: honest.hessian(turn(x)),
        hvp=lambda x, v: honest.hvp(turn(x), v),
    )

    def descend(start: Vector, **options: Any) -> Vector:
        change = options.pop("change", None)
        vectors = {name: value for name, value in options.items() if name in ("shift", "center", "anchor")}
        options |= {name: turn(value) for name, value in vectors.items() if isinstance(value, jax.Array)}
        if change is not None:
            options["change"] = lambda grad: turn(change(turn(grad)))
        x: Vector = turn(local.descend(turn(start), **options))
        return x

    return local._replace(oracle=oracle, descend=descend)


def _numbers(attackers: Iterable[int]) -> tuple[int, ...]:
    if not isinstance(attackers, Iterable):
        raise ArgumentError(
            f"attackers = {shown(attackers)} is not allowed: give the numbers of clients, such as [0, 3]."
        )
    return tuple(sorted({positive_integer("attackers", number, least=0) for number in attackers}))


def _among(numbers: Vector, attackers: tuple[int, ...]) -> Vector:
    return jnp.isin(numbers, jnp.array(attackers, numbers.dtype))


def _honest_mean(rows: Matrix, honest: Vector) -> Vector:
    mask = honest.reshape(-1, *[1] * (rows.ndim - 1))
    return jnp.sum(jnp.where(mask, rows, 0), axis=0) / jnp.sum(honest).astype(rows.dtype)
