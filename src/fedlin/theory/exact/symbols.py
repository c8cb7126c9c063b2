"""Vectors known only by their inner products, as the rounds of a method see them.

A method adds and scales vectors, so that everything it computes is a combination of a few basis vectors: the start,
and every gradient it ever asks for. Lengths and inner products then depend on the basis vectors' Gram matrix alone,
whatever the dimension. Coefficients are fractions: nothing is rounded.

Clients that take the same steps are exchangeable. A vector v_i that each client of such a group holds is its mean over
the group, which is shared, plus the client's deviation from it. The worst case may be taken the same under every
exchange of such clients, so that the mean product of two such vectors,
(1/m) Σ ⟨u_i, v_i⟩ = ⟨ū, v̄⟩ + (1/m) Σ ⟨u_i - ū, v_i - v̄⟩, is all that is ever needed: one Gram matrix of what is shared
and one of the deviations in each group, of sizes that do not depend on the number of clients.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from numbers import Rational, Real
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[np.float64]
Place = tuple[int, int]  # of a basis vector: its Gram matrix, and its row there
SHARED = 0  # the Gram matrix of what everyone shares; group g's deviations are in matrix 1 + g


class ExactNumber(Fraction):
    """A fraction that a method may ask for a precision, as it does of the arrays this stands for."""

    def astype(self, dtype: DTypeLike) -> Any:
        """Itself in the precision of vectors; in any other a rounded number, which only coins are drawn with."""
        return self if np.dtype(dtype) == np.float64 else np.asarray(float(self), dtype)


def exact(value: SupportsFloat) -> Fraction:
    """A number as the fraction it is printed as, so that 0.1 is a tenth.

    >>> exact(0.1), exact(3)
    (Fraction(1, 10), Fraction(3, 1))
    """
    return Fraction(value) if isinstance(value, Rational) else Fraction(repr(float(value)))


class Space:
    """The basis vectors of an analysis, held by everyone or by groups of exchangeable clients.

    Args:
        weights: each group's part of the mean over all clients.
        clients: how many clients each group has; one client alone has no deviations.
        unit: about how large vectors are expected to be, which scales programs and changes no result.

    >>> space = Space([Fraction(1)], [2])
    >>> x, v = space.shared(), space.of_group(0)
    >>> space.mean([x - v / 2]).coefficients
    {(0, 0): Fraction(1, 1), (0, 1): Fraction(-1, 2)}
    """

    def __init__(self, weights: Sequence[Fraction], clients: Sequence[int], unit: float = 1.0) -> None:
        self.weights = weights
        self.clients = clients
        self.unit = unit
        self.sizes = [0] * (1 + len(weights))  # of the Gram matrices
        self.at_most_zero: list[GramForm] = []  # what is known of compressors
        self.encoded: list[SymbolicVector] = []  # what they were given
        self.origin = SymbolicVector({}, self)
        self._offsets: dict[Place, SymbolicVector] = {}
        self._scales: list[list[float]] = [[] for _ in self.sizes]

    def shared(self, near: "SymbolicVector | None" = None, scale: float | None = None) -> "SymbolicVector":
        """A new vector, the same for everyone; it is expected `near` another, up to about `scale`."""
        return self._new(SHARED, near, scale)

    def apart(self, group: int, near: "SymbolicVector | None" = None) -> "SymbolicVector":
        """A new vector of each client of the group, of mean zero over it."""
        return self.origin if self.clients[group] == 1 else self._new(1 + group, near)

    def of_group(self, group: int, near: "SymbolicVector | None" = None) -> "SymbolicVector":
        """A new vector of each client of the group."""
        return self.shared(near) + self.apart(group, near)

    def of_mean_zero(self) -> list["SymbolicVector"]:
        """A new vector of each client, by groups, of mean zero over all clients."""
        # The last group's mean follows from the others'.
        means = [self.shared() for _ in self.weights[1:]]
        rest = zip((-weight / self.weights[-1] for weight in self.weights), means, strict=False)
        means.append(self.combine(*rest))
        return [mean + self.apart(group) for group, mean in enumerate(means)]

    def compressed(self, v: "SymbolicVector", delta: Fraction) -> "SymbolicVector":
        """C(v), of which ‖C(v) - v‖² ≤ (1 - 1/δ)‖v‖² is known."""
        groups = {gram for gram, _ in v.coefficients if gram != SHARED}
        error = self.of_group(groups.pop() - 1) if groups else self.shared()
        self.at_most_zero.append(squared(error) - (1 - 1 / delta) * squared(v))
        self.encoded.append(v)
        return v + error

    def mean(self, vectors: Sequence["SymbolicVector"]) -> "SymbolicVector":
        """The mean over all clients of a vector that each holds, given by groups."""
        return self._collect(
            (place, weight * value)
            for weight, vector in zip(self.weights, vectors, strict=True)
            for place, value in vector.coefficients.items()
            if place[0] == SHARED
        )

    def combine(self, *terms: tuple[SupportsFloat, "SymbolicVector"]) -> "SymbolicVector":
        """Σ factor · vector."""
        scaled = [(exact(factor), vector) for factor, vector in terms]
        return self._collect(
            (place, scale * value) for scale, vector in scaled for place, value in vector.coefficients.items()
        )

    def coordinates(self, gram: int) -> Array:
        """The basis vectors of a Gram matrix as rows, in a basis of what sets each apart from where it is expected.

        Programs are solved in these coordinates, which stay well scaled as κ grows.
        """
        rows = np.diag(self._scales[gram]).reshape(self.sizes[gram], self.sizes[gram])
        for row in range(self.sizes[gram]):
            for (_, earlier), value in self._offsets[gram, row].coefficients.items():
                rows[row] += float(value) * rows[earlier]
        return rows

    def _new(self, gram: int, near: "SymbolicVector | None", scale: float | None = None) -> "SymbolicVector":
        place = (gram, self.sizes[gram])
        self.sizes[gram] += 1
        self._offsets[place] = self.origin if near is None else near.part(gram)
        self._scales[gram].append(self.unit if scale is None else scale)
        return SymbolicVector({place: Fraction(1)}, self)

    def _collect(self, terms: Iterable[tuple[Place, Fraction]]) -> "SymbolicVector":
        total: dict[Place, Fraction] = {}
        for place, value in terms:
            total[place] = total.get(place, Fraction(0)) + value
        return SymbolicVector({place: value for place, value in total.items() if value}, self)


@dataclass(frozen=True)
class SymbolicVector:
    """A combination of basis vectors, with the arithmetic that methods use on arrays."""

    coefficients: Mapping[Place, Fraction]
    space: Space = field(compare=False, repr=False)

    __array_ufunc__ = None  # so that a NumPy number on the left leaves the product to us
    dtype = np.dtype(np.float64)

    def __add__(self, other: object) -> "SymbolicVector":
        return self._plus(1, other)

    def __sub__(self, other: object) -> "SymbolicVector":
        return self._plus(-1, other)

    def __mul__(self, factor: SupportsFloat) -> "SymbolicVector":
        return self.space.combine((factor, self))

    def __truediv__(self, divisor: SupportsFloat) -> "SymbolicVector":
        return self.space.combine((1 / exact(divisor), self))

    def __neg__(self) -> "SymbolicVector":
        return self.space.combine((-1, self))

    __radd__ = __add__
    __rmul__ = __mul__

    def part(self, gram: int) -> "SymbolicVector":
        """What of it lies in the basis vectors of one Gram matrix."""
        return SymbolicVector(
            {place: value for place, value in self.coefficients.items() if place[0] == gram}, self.space
        )

    def array(self, gram: int, coordinates: Array) -> Array:
        """The part in one Gram matrix's basis vectors, as numbers in coordinates in which those are the rows."""
        total = np.zeros(coordinates.shape[1])
        for row, value in self.over(gram).items():
            total += float(value) * coordinates[row]
        return total

    def over(self, gram: int) -> dict[int, Fraction]:
        """The coefficients of the basis vectors of one Gram matrix."""
        return {row: value for (number, row), value in self.coefficients.items() if number == gram}

    def _plus(self, sign: int, other: object) -> "SymbolicVector":
        if isinstance(other, SymbolicVector):
            return self.space.combine((1, self), (sign, other))
        # Methods may start a sum at zero; no other number is a vector.
        return self if isinstance(other, Real) and other == 0 else NotImplemented


@dataclass(frozen=True)
class GramForm:
    """A linear function of inner products and of function values: what an inequality is made of.

    >>> space = Space([Fraction(1)], [2])
    >>> x, v = space.shared(), space.of_group(0)
    >>> form = squared(x + v) - 2 * inner(x, v)
    >>> [[int(entry) for entry in row] for row in form.exact_matrix(0, 2)]
    [[1, 0], [0, 1]]
    """

    products: tuple[tuple[Fraction, SymbolicVector, SymbolicVector], ...] = ()  # (count, u, v): count · ⟨u, v⟩
    values: tuple[tuple[Fraction, int], ...] = ()  # (count, number of the function value)

    def __add__(self, other: "GramForm") -> "GramForm":
        return GramForm(self.products + other.products, self.values + other.values)

    def __sub__(self, other: "GramForm") -> "GramForm":
        return self + (-1) * other

    def __rmul__(self, factor: SupportsFloat) -> "GramForm":
        scale = exact(factor)
        return GramForm(
            tuple((scale * count, u, v) for count, u, v in self.products),
            tuple((scale * count, number) for count, number in self.values),
        )

    def exact_matrix(self, gram: int, size: int) -> list[list[Fraction]]:
        """The symmetric matrix of the form over one set of basis vectors."""
        # In whole numbers over one denominator, since sums of fractions are many times slower.
        terms = [(count, *_whole(u.over(gram)), *_whole(v.over(gram))) for count, u, v in self.products]
        common = 2 * lcm(*(count.denominator * below_u * below_v for count, _, below_u, _, below_v in terms))
        total = [[0] * size for _ in range(size)]
        for count, left, below_u, right, below_v in terms:
            half = count.numerator * (common // (2 * count.denominator * below_u * below_v))
            for row, a in left.items():
                for column, b in right.items():
                    entry = half * a * b
                    total[row][column] += entry
                    total[column][row] += entry
        return [[Fraction(entry, common) for entry in row] for row in total]

    def value_counts(self) -> dict[int, Fraction]:
        """How often each function value counts."""
        counts: dict[int, Fraction] = {}
        for count, number in self.values:
            counts[number] = counts.get(number, Fraction(0)) + count
        return counts


def _whole(coefficients: Mapping[int, Fraction]) -> tuple[dict[int, int], int]:
    """Fractions as whole numbers over one denominator."""
    below = lcm(*(value.denominator for value in coefficients.values()))
    return {row: value.numerator * (below // value.denominator) for row, value in coefficients.items()}, below


def inner(u: SymbolicVector, v: SymbolicVector) -> GramForm:
    """⟨u, v⟩, or its mean over the clients of a group where each has its own."""
    return GramForm(((Fraction(1), u, v),))


def squared(v: SymbolicVector) -> GramForm:
    """‖v‖²."""
    return inner(v, v)


def value_of(number: int) -> GramForm:
    """One function value."""
    return GramForm((), ((Fraction(1), number),))
