"""Semidefinite programs over forms, solved by Clarabel.

A program has unknown numbers, and forms that must be nonnegative whatever the vectors are: a constant form plus
multiples of others by the unknowns. A form is nonnegative when its matrix over each set of basis vectors is positive
semidefinite and no function value is left in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedlin.errors import FedLinError
from fedlin.theory.exact.symbols import Array, GramForm, Space, SymbolicVector

TOLERANCE = 1e-9
_ROOT = np.sqrt(2)


class SolverError(FedLinError):
    """A semidefinite program was not solved to the accuracy it needs."""


class UnboundedError(SolverError):
    """No numbers satisfy a program: what it bounds has no bound."""


@dataclass(frozen=True)
class FormConstraint:
    """A form that must be nonnegative: `constant` + Σ unknown · form."""

    space: Space
    constant: GramForm
    terms: Sequence[tuple[int, GramForm]]  # the number of an unknown, and what it multiplies

    def total(self, numbers: Sequence[Fraction]) -> GramForm:
        """The form with these numbers for the unknowns."""
        products, values = list(self.constant.products), list(self.constant.values)
        for unknown, form in self.terms:
            scaled = numbers[unknown] * form
            products += scaled.products
            values += scaled.values
        return GramForm(tuple(products), tuple(values))


class Solution(NamedTuple):
    """The unknowns, and for each requirement the Gram matrices and function values at which it is tight."""

    numbers: Array
    grams: list[list[Array]]  # of each set of basis vectors
    values: list[dict[int, float]]


class SemidefiniteProgram:
    """Unknown numbers, what they cost, and what is required of them."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.nonnegative: list[int] = []
        self.semidefinite: list[list[list[int]]] = []
        self.requirements: list[FormConstraint] = []

    def unknown(self, cost: float = 0.0, nonnegative: bool = False) -> int:
        """A new unknown number."""
        self.costs.append(cost)
        number = len(self.costs) - 1
        if nonnegative:
            self.nonnegative.append(number)
        return number

    def matrix(self, size: int) -> list[list[int]]:
        """The unknown entries of a new positive semidefinite matrix."""
        entries = [[0] * size for _ in range(size)]
        for row in range(size):
            for column in range(row + 1):
                entries[row][column] = entries[column][row] = self.unknown()
        self.semidefinite.append(entries)
        return entries

    def require(self, space: Space, constant: GramForm, terms: Sequence[tuple[int, GramForm]]) -> None:
        """A form that must be nonnegative."""
        self.requirements.append(FormConstraint(space, constant, terms))

    def solve(self, tolerance: float = TOLERANCE) -> Solution:
        """The unknowns of least cost; where nothing costs anything, some from the interior of what is allowed."""
        clarabel = load_solver()
        rows = _Rows(clarabel)
        values = [rows.add_values(requirement) for requirement in self.requirements]
        rows.add_unknowns(self.nonnegative)
        for entries in self.semidefinite:
            rows.add_matrix(entries)
        first = rows.count
        bases = [
            [rows.add_gram(requirement, gram) for gram in range(len(requirement.space.sizes))]
            for requirement in self.requirements
        ]
        numbers, dual = rows.solve(self.costs, tolerance)
        tight = [{number: -float(dual[row]) for number, row in each.items()} for each in values]
        return Solution(numbers, _gram_matrices(dual[first:], bases), tight)


class _Rows:
    """The rows of A x + s = b with s in a product of cones.

    A matrix is written as Clarabel has it: the columns of its upper triangle, entries off the diagonal times √2.
    """

    def __init__(self, clarabel: ModuleType) -> None:
        self.clarabel = clarabel
        self.count = 0
        self.entries: list[tuple[NDArray[np.intp], int, Array]] = []  # rows, the unknown, the coefficients
        self.right: list[Array] = []
        self.cones: list[Any] = []

    def add_values(self, requirement: FormConstraint) -> dict[int, int]:
        """No function value is left; the row in which each stands."""
        constant = requirement.constant.value_counts()
        counts = [(unknown, form.value_counts()) for unknown, form in requirement.terms]
        numbers = sorted({number for _, each in counts for number in each} | set(constant))
        row_of = {number: self.count + row for row, number in enumerate(numbers)}
        for unknown, each in counts:
            self._enter([row_of[number] for number in each], unknown, [float(count) for count in each.values()])
        self._close(self.clarabel.ZeroConeT, len(numbers), np.array([-float(constant.get(n, 0)) for n in numbers]))
        return row_of

    def add_unknowns(self, unknowns: Sequence[int]) -> None:
        """These unknowns are nonnegative."""
        for row, unknown in enumerate(unknowns):
            self._enter([self.count + row], unknown, [-1.0])
        self._close(self.clarabel.NonnegativeConeT, len(unknowns), np.zeros(len(unknowns)))

    def add_matrix(self, entries: Sequence[Sequence[int]]) -> None:
        """These unknowns make a positive semidefinite matrix."""
        triangle = [(row, column) for column in range(len(entries)) for row in range(column + 1)]
        for place, (row, column) in enumerate(triangle):
            self._enter([self.count + place], entries[row][column], [-1.0 if row == column else -_ROOT])
        self._close(self.clarabel.PSDTriangleConeT, len(entries), np.zeros(len(triangle)))

    def add_gram(self, requirement: FormConstraint, gram: int) -> Array:
        """A form is positive semidefinite over one set of basis vectors; the basis this is written in, as columns."""
        coordinates = requirement.space.coordinates(gram)
        sparse_vectors: dict[int, dict[int, float]] = {}  # the entries that are not zero

        def entries(vector: SymbolicVector) -> dict[int, float]:
            if id(vector) not in sparse_vectors:
                array = vector.array(gram, coordinates)
                sparse_vectors[id(vector)] = {int(row): float(array[row]) for row in np.flatnonzero(array)}
            return sparse_vectors[id(vector)]

        # The matrix of the constant, and of what each unknown multiplies, by the places in its upper triangle.
        forms = [requirement.constant, *(form for _, form in requirement.terms)]
        matrices = [_symmetric((float(c), entries(u), entries(v)) for c, u, v in form.products) for form in forms]
        used = sorted({row for matrix in matrices for place in matrix for row in place})
        place = {row: number for number, row in enumerate(used)}
        right = np.zeros(len(used) * (len(used) + 1) // 2)
        for unknown, matrix in zip([None, *(unknown for unknown, _ in requirement.terms)], matrices, strict=True):
            rows = [place[high] * (place[high] + 1) // 2 + place[low] for low, high in matrix]
            numbers = [entry if low == high else entry * _ROOT for (low, high), entry in matrix.items()]
            if unknown is None:
                right[rows] = numbers
            else:
                self._enter(self.count + np.array(rows, np.intp), unknown, -np.array(numbers))
        self._close(self.clarabel.PSDTriangleConeT, len(used), right)
        return np.asarray(coordinates[:, used])

    def solve(self, costs: Sequence[float], tolerance: float) -> tuple[Array, Array]:
        """The unknowns of least cost, and the multipliers of the rows."""
        from scipy import sparse  # takes long to import

        rows = np.concatenate([rows for rows, _, _ in self.entries])
        columns = np.concatenate([np.full(len(rows), unknown) for rows, unknown, _ in self.entries])
        numbers = np.concatenate([numbers for _, _, numbers in self.entries])
        A = sparse.csc_matrix((numbers, (rows, columns)), shape=(self.count, len(costs)))  # which sums what coincides
        settings = self.clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_threads = 1
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        nothing = sparse.csc_matrix((len(costs), len(costs)))
        solver = self.clarabel.DefaultSolver(
            nothing, np.array(costs), A, np.concatenate(self.right), self.cones, settings
        )
        done = solver.solve()
        status = str(done.status)
        if status in ("PrimalInfeasible", "AlmostPrimalInfeasible"):
            raise UnboundedError("the worst case is unbounded: no factor holds for all functions of the class.")
        if status not in ("Solved", "AlmostSolved"):
            raise SolverError(
                f"the semidefinite program was not solved ({status}): try smaller steps, fewer rounds or local steps, "
                "or a smaller κ."
            )
        return np.array(done.x), np.array(done.z)

    def _enter(self, rows: ArrayLike, unknown: int, numbers: ArrayLike) -> None:
        self.entries.append((np.asarray(rows, np.intp), unknown, np.asarray(numbers, float)))

    def _close(self, cone: Any, size: int, right: Array) -> None:
        if size:
            self.cones.append(cone(size))
            self.right.append(right)
            self.count += len(right)


def _symmetric(
    products: Iterable[tuple[float, Mapping[int, float], Mapping[int, float]]],
) -> dict[tuple[int, int], float]:
    """The upper triangle of Σ count (u vᵀ + v uᵀ)/2, where vectors and matrix hold only what is not zero."""
    total: dict[tuple[int, int], float] = {}
    for count, u, v in products:
        for row, a in u.items():
            for column, b in v.items():
                low, high = (row, column) if row <= column else (column, row)
                share = count * a * b if row == column else count * a * b / 2
                total[low, high] = total.get((low, high), 0.0) + share
    return total


def load_solver() -> Any:
    """Clarabel, or an error that says how to get it."""
    try:
        import clarabel
    except ImportError as cause:
        # No SolverError: a search for a rate takes that for an answer.
        raise FedLinError(
            "exact worst cases need a solver of semidefinite programs: pip install 'fedlin[exact]'."
        ) from cause
    return clarabel


def _gram_matrices(dual: Array, bases: Sequence[Sequence[Array]]) -> list[list[Array]]:
    grams: list[list[Array]] = []
    first = 0
    for each in bases:
        grams.append([])
        for basis in each:
            size = basis.shape[1]
            columns, rows = np.tril_indices(size)
            triangle = dual[first : first + len(rows)]
            first += len(rows)
            small = np.zeros((size, size))
            small[rows, columns] = np.where(rows == columns, triangle, triangle / _ROOT)
            small[columns, rows] = small[rows, columns]
            grams[-1].append(basis @ small @ basis.T)
    return grams
