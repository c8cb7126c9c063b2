"""Classes of functions, each by the inequalities that hold exactly where some function of the class fits the data.

For smooth and strongly convex functions these are the interpolation conditions of Taylor, Hendrickx and Glineur
(Mathematical Programming, 2017); for quadratics those of Bousselmi, Hendrickx and Glineur (SIAM Journal on
Optimization, 2024).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations
from typing import NamedTuple

from fedlin.checks import real
from fedlin.errors import ArgumentError
from fedlin.theory.exact.semidefinite import SemidefiniteProgram
from fedlin.theory.exact.symbols import GramForm, SymbolicVector, exact, inner, squared
from fedlin.theory.exact.trace import Trace, TracePoint


class Conditions(NamedTuple):
    """What is known of the data a trace holds."""

    at_most_zero: list[GramForm]
    zero: Sequence[GramForm] = ()
    matrices: Sequence[list[list[GramForm]]] = ()  # each positive semidefinite

    def multipliers(self, program: SemidefiniteProgram) -> list[tuple[int, GramForm]]:
        """New unknowns of a program, each with what it multiplies: sums of these are never above zero."""
        terms = [(program.unknown(nonnegative=True), form) for form in self.at_most_zero]
        terms += [(program.unknown(), form) for form in self.zero]
        for forms in self.matrices:
            entries = program.matrix(len(forms))
            terms += [
                (entries[row][column], (-1 if row == column else -2) * forms[row][column])
                for row in range(len(forms))
                for column in range(row + 1)
            ]
        return terms


@dataclass(frozen=True)
class FunctionClass(ABC):
    """Clients' functions of a class, all with the same L and μ.

    Args:
        smoothness: L, above 0.
        strong_convexity: μ, from 0 to below L.
    """

    smoothness: float
    strong_convexity: float = 0.0

    def __post_init__(self) -> None:
        L, mu = self.smoothness, self.strong_convexity
        for name, value in (("smoothness", L), ("strong_convexity", mu)):
            if not isinstance(value, int | float) or not abs(value) < float("inf"):
                raise ArgumentError(f"{name} = {value!r} is not allowed: give a finite number.")
        if not L > 0:
            raise ArgumentError(f"smoothness = {L!r} is not allowed: give L above 0.")
        if not 0 <= mu < L:
            raise ArgumentError(
                f"strong_convexity = {mu!r} with smoothness = {L!r} is not allowed: give 0 ≤ μ < L, or κ = L/μ > 1."
            )

    @property
    def curvature(self) -> tuple[Fraction, Fraction]:
        """The largest and the least curvature that a client's function may have."""
        return exact(self.smoothness), exact(self.strong_convexity)

    @abstractmethod
    def conditions(self, trace: Trace, models: Sequence[SymbolicVector]) -> Conditions:
        """What holds of the points that a trace looked at; `models` are those of the server."""

    def _each(self, trace: Trace) -> list[GramForm]:
        """That some function of each client fits all of its points."""
        return [interpolation(a, b, *self.curvature) for points in trace.points for a, b in permutations(points, 2)]


class Smooth(FunctionClass):
    """L-smooth, μ-strongly convex functions; convex where μ = 0.

    >>> Smooth(10.0, 1.0)
    Smooth(smoothness=10.0, strong_convexity=1.0)
    """

    def conditions(self, trace: Trace, models: Sequence[SymbolicVector]) -> Conditions:
        return Conditions(self._each(trace) + trace.space.at_most_zero)


@dataclass(frozen=True)
class Dissimilar(Smooth):
    """L-smooth, μ-strongly convex functions with Σ w_i ‖∇f_i(x)‖² ≤ C ‖∇f(x)‖² at the server's models.

    Args:
        smoothness: L, above 0.
        strong_convexity: μ, from 0 to below L.
        dissimilarity: C, at least 1. The clients share their minimiser, since D is 0.

    >>> Dissimilar(10.0, 1.0, 2.0)
    Dissimilar(smoothness=10.0, strong_convexity=1.0, dissimilarity=2.0)
    """

    dissimilarity: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        real("dissimilarity", self.dissimilarity, lambda value: value >= 1, "C of at least 1")

    def conditions(self, trace: Trace, models: Sequence[SymbolicVector]) -> Conditions:
        similar = []
        for x in models:
            each = (group.weight * squared(trace.gradient(number, x)) for number, group in enumerate(trace.groups))
            similar.append(sum(each, GramForm()) - exact(self.dissimilarity) * squared(trace.mean_gradient(x)))
        return Conditions(self._each(trace) + similar + trace.space.at_most_zero)


class Quadratics(FunctionClass):
    """Quadratic functions ½xᵀA_ix - b_iᵀx with eigenvalues of A_i between μ and L.

    >>> Quadratics(10.0, 1.0)
    Quadratics(smoothness=10.0, strong_convexity=1.0)
    """

    def conditions(self, trace: Trace, models: Sequence[SymbolicVector]) -> Conditions:
        L, mu = self.curvature
        zero: list[GramForm] = []
        matrices = []
        for star, *points in trace.points:
            pairs = [(point.x, point.gradient - star.gradient) for point in points]  # x - x* and A_i(x - x*)
            zero += [inner(x, v) - inner(y, u) for (x, u), (y, v) in combinations(pairs, 2)]
            zero += [
                point.value - inner(star.gradient, x) - Fraction(1, 2) * inner(x, u)
                for point, (x, u) in zip(points, pairs, strict=True)
            ]
            # (A_i - μI)(LI - A_i) is positive semidefinite on the points.
            matrices.append(
                [
                    [Fraction(1, 2) * (inner(u - mu * x, L * y - v) + inner(v - mu * y, L * x - u)) for y, v in pairs]
                    for x, u in pairs
                ]
            )
        return Conditions(list(trace.space.at_most_zero), zero, matrices)


class PolyakLojasiewicz(FunctionClass):
    """L-smooth functions, not necessarily convex, whose mean satisfies ‖∇f(x)‖² ≥ 2μ(f(x) - f*).

    No inequalities are known that describe these exactly; the ones used hold for all of them, so that what follows is
    a bound and need not be attained.

    >>> PolyakLojasiewicz(10.0, 1.0)
    PolyakLojasiewicz(smoothness=10.0, strong_convexity=1.0)
    """

    @property
    def curvature(self) -> tuple[Fraction, Fraction]:
        """From -L to L."""
        return exact(self.smoothness), -exact(self.smoothness)

    def conditions(self, trace: Trace, models: Sequence[SymbolicVector]) -> Conditions:
        L, mu = exact(self.smoothness), exact(self.strong_convexity)
        mean = []
        for x in models:
            slope, gap = squared(trace.mean_gradient(x)), trace.gap(x)
            mean += [mu * gap - Fraction(1, 2) * slope, 1 / (2 * L) * slope - gap]
        # Of x* no more is used than that f is nowhere below f*.
        pairs = (pair for _, *points in trace.points for pair in permutations(points, 2))
        each = [interpolation(a, b, *self.curvature) for a, b in pairs]
        return Conditions(each + mean + trace.space.at_most_zero)


def interpolation(a: TracePoint, b: TracePoint, L: Fraction, mu: Fraction) -> GramForm:
    """At most zero for functions of curvature between μ and L: how far f(a) lies below what b says of it.

    f(b) - f(a) + ⟨∇f(b), a - b⟩ + (‖∇f(a) - ∇f(b)‖² + μL‖a - b‖² - 2μ⟨∇f(a) - ∇f(b), a - b⟩)/(2(L - μ)).
    """
    move, change = a.x - b.x, a.gradient - b.gradient
    spread = 2 * (L - mu)
    return (
        b.value
        - a.value
        + inner(b.gradient, move)
        + 1 / spread * squared(change)
        + mu * L / spread * squared(move)
        - 2 * mu / spread * inner(change, move)
    )
