"""Rounds of a method on symbolic vectors, played by the very phases that the engines run."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn, SupportsFloat, TypeVar

import jax
import jax.numpy as jnp

from fedlin.checks import real
from fedlin.compressors import Compressor
from fedlin.core import Central, Key, Local, Method, MethodPhase, Oracle, PyTree
from fedlin.errors import ArgumentError
from fedlin.payloads import Dense, decode
from fedlin.theory.exact.symbols import ExactNumber, GramForm, Space, SymbolicVector, exact, squared, value_of

T = TypeVar("T")


class Group(NamedTuple):
    """Clients that take the same steps."""

    tau: int  # τ_i
    eta: Fraction  # η_i
    weight: Fraction  # of all of them together in the mean
    clients: int


class TracePoint(NamedTuple):
    """Where the functions of a group were looked at."""

    x: SymbolicVector
    gradient: SymbolicVector  # ∇f_i(x), each client's own
    value: GramForm  # f_i(x) - f_i(x*)


class Trace:
    """What a method asked of the functions f_i, and what follows from x* being the minimiser of their mean.

    x* is the origin.

    Args:
        groups: the clients.
        mu: μ, since gradients are expected near μx where the worst case is a slow one.
        shared_minimizer: whether x* is the minimiser of every f_i too.
        smoothness: L, about how large gradients are where x is of size 1.
    """

    def __init__(
        self, groups: Sequence[Group], mu: Fraction, shared_minimizer: bool = False, smoothness: float = 1.0
    ) -> None:
        self.groups = groups
        self.mu = mu
        self.space = Space([group.weight for group in groups], [group.clients for group in groups], smoothness)
        self.values = 0  # how many function values there are
        self.x = self.space.shared(scale=1.0)  # where the first round starts
        star = self.space.origin
        gradients = [star] * len(groups) if shared_minimizer else self.space.of_mean_zero()
        self.points = [
            [TracePoint(star, gradient, GramForm())] for gradient in gradients
        ]  # of each group; x* is the first

    def gradient(self, group: int, x: SymbolicVector) -> SymbolicVector:
        """∇f_i(x) of the clients in the group; the same vector whenever they ask at the same point."""
        return self._point(group, x).gradient

    def gap(self, x: SymbolicVector) -> GramForm:
        """f(x) - f(x*)."""
        parts = (group.weight * self._point(number, x).value for number, group in enumerate(self.groups))
        return sum(parts, GramForm())

    def at_star(self) -> GramForm:
        """Σ w_i ‖∇f_i(x*)‖²."""
        pairs = zip(self.groups, self.points, strict=True)
        return sum((group.weight * squared(points[0].gradient) for group, points in pairs), GramForm())

    def mean_gradient(self, x: SymbolicVector) -> SymbolicVector:
        """∇f(x)."""
        return self.space.mean([self.gradient(number, x) for number in range(len(self.groups))])

    def proximal(self, group: int, u: SymbolicVector, s: Fraction) -> SymbolicVector:
        """The y with y = u - s ∇f_i(y)."""
        gradient = self.space.of_group(group)
        y = u - s * gradient
        self._add_point(group, y, gradient)
        return y

    def _point(self, group: int, x: SymbolicVector) -> TracePoint:
        for point in self.points[group]:
            if point.x == x:
                return point
        return self._add_point(group, x, self.space.of_group(group, near=self.mu * x))

    def _add_point(self, group: int, x: SymbolicVector, gradient: SymbolicVector) -> TracePoint:
        point = TracePoint(x, gradient, value_of(self.values))
        self.values += 1
        self.points[group].append(point)
        return point


class TracedStates(NamedTuple):
    """What the server and each group's clients remember between rounds."""

    server: PyTree
    clients: list[PyTree]


def start(trace: Trace, algorithm: Method) -> TracedStates:
    """The states before the first round: in every part the first model or zero."""

    def in_terms_of_start(state: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: float(leaf[0]) * trace.x, state)

    one = jnp.ones(1)
    return TracedStates(
        in_terms_of_start(algorithm.init_server(one)),
        [in_terms_of_start(algorithm.init_client(one)) for _ in trace.groups],
    )


def play_round(
    trace: Trace, phases: Sequence[MethodPhase], states: TracedStates, shared_key: Key | None = None
) -> TracedStates:
    """The states after one more round; without a shared key, a method that draws common coins is refused."""
    server, clients = states
    key = jax.random.key(0)  # which methods split for draws that nothing here makes
    total = sum((group.weight * group.eta for group in trace.groups), Fraction(0))
    largest = max(group.weight / group.clients for group in trace.groups)
    central: Any = Central(ExactNumber(1), key, shared_key, ExactNumber(total), ExactNumber(largest))  # type: ignore[arg-type]
    for phase in phases:
        broadcast = decode(phase.down(server))
        answers = [
            phase.client(state, broadcast, _local(trace, number, key, shared_key))
            for number, state in enumerate(clients)
        ]
        clients = [state for state, _ in answers]
        uploads = [decode(message) for _, message in answers]
        mean = jax.tree.map(lambda *parts: _mean(trace, parts), *uploads)
        server = phase.server(server, mean, central)
    return TracedStates(server, clients)


def _mean(trace: Trace, parts: Sequence[PyTree]) -> SymbolicVector | ExactNumber:
    if isinstance(parts[0], SymbolicVector):
        return trace.space.mean(parts)
    return ExactNumber(
        sum((group.weight * exact(part) for group, part in zip(trace.groups, parts, strict=True)), Fraction(0))
    )


def _local(trace: Trace, number: int, key: Key, shared_key: Key | None) -> Local:
    group = trace.groups[number]
    tau, eta = ExactNumber(group.tau), ExactNumber(group.eta)

    def gradient(x: SymbolicVector, key: Key | None = None) -> SymbolicVector:
        return trace.gradient(number, x)

    def proximal(u: SymbolicVector, s: SupportsFloat) -> SymbolicVector:
        return trace.proximal(number, u, exact(s))

    def loss(x: SymbolicVector) -> NoReturn:
        raise ArgumentError("a method that looks at function values has no exact answer here.")

    def descend(
        start: SymbolicVector,
        *,
        shift: Any = 0,
        pull: SupportsFloat = 0,
        center: SymbolicVector | None = None,
        steps: int | None = None,
        eta: SupportsFloat | None = None,
        anchor: SymbolicVector | None = None,
    ) -> SymbolicVector:
        x, middle = start, start if center is None else center
        if anchor is not None:
            shift = shift - gradient(anchor)
        for _ in range(group.tau if steps is None else int(steps)):
            x = x - (group.eta if eta is None else eta) * (gradient(x) + shift + pull * (x - middle))
        return x

    def repeat(step: Callable[[T, Key], T], carry: T, *, steps: int | None = None) -> T:
        for _ in range(group.tau if steps is None else int(steps)):
            carry = step(carry, key)
        return carry

    def curvature(*arguments: object) -> NoReturn:
        raise ArgumentError("a method that looks at second derivatives has no exact answer here.")

    oracle: Any = Oracle(loss, gradient, proximal, gradient, curvature, curvature)  # type: ignore[arg-type]
    return Local(oracle, tau, eta, descend, repeat, key, shared_key, number, number)  # type: ignore[arg-type]


def contraction(delta: float) -> Compressor:
    """Any compressor of which ‖C(v) - v‖² ≤ (1 - 1/δ)‖v‖² is all that is known: TOP-k at its worst, δ = d/k.

    It takes a compressor's place in the links of a method that is to be analysed; it cannot be run.

    Args:
        delta: δ, at least 1; at 1 nothing is lost.

    Returns:
        The compressor.

    >>> contraction(4.0)
    contraction(4.0)
    """
    delta = real("delta", delta, lambda value: value >= 1, "a number of at least 1 (d/k for TOP-k)")

    def encode(key: object, vector: object) -> Dense:
        if not isinstance(vector, SymbolicVector):
            raise ArgumentError(
                f"contraction({delta}) is known only by its δ and cannot be run: give a compressor such as top_k(10)."
            )
        return Dense(vector.space.compressed(vector, exact(delta)))  # type: ignore[arg-type]

    return Compressor(f"contraction({delta})", encode, delta=lambda dim: delta)
