"""Proofs in exact arithmetic: a program's solution, rounded to fractions, and checked without any rounding.

That a matrix A of fractions is positive semidefinite is shown by a matrix R of fractions for which A - RRᵀ is
diagonally dominant, and so positive semidefinite itself. R comes from a Cholesky factorisation in floating point; that
it was rounded does not matter, since the difference is computed exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from fedlin.theory.exact.semidefinite import FormConstraint, SemidefiniteProgram, SolverError
from fedlin.theory.exact.symbols import GramForm, Place

_BITS = 60  # after the point, of the numbers in a rounded factor
_BLIND = 1e-12  # an eigenvalue that may be zero
_SIMPLE = 10**6  # the largest denominator in the entries of a v with Av = 0


@dataclass(frozen=True)
class Certificate:
    """Numbers for the unknowns of a program that satisfy all of its requirements."""

    program: SemidefiniteProgram
    numbers: tuple[Fraction, ...]

    @property
    def rounded(self) -> list[float]:
        """The numbers as they can be stored: `verified` makes them exact again."""
        return [float(number) for number in self.numbers]

    def check(self) -> None:
        """Prove it by exact arithmetic alone; an error where a requirement is not met."""
        for unknown in self.program.nonnegative:
            if self.numbers[unknown] < 0:
                raise SolverError(f"multiplier {unknown} is negative ({float(self.numbers[unknown]):.3g}).")
        for entries in self.program.semidefinite:
            prove_semidefinite([[self.numbers[unknown] for unknown in row] for row in entries])
        for requirement in self.program.requirements:
            total = requirement.total(self.numbers)
            if any(total.value_counts().values()):
                raise SolverError("function values are left over.")
            for gram, size in enumerate(requirement.space.sizes):
                prove_semidefinite(total.exact_matrix(gram, size))


def certify(program: SemidefiniteProgram) -> Certificate:
    """A certificate that a program can be satisfied in which nothing costs anything."""
    return verified(program, program.solve().numbers.tolist())


def verified(program: SemidefiniteProgram, numbers: Sequence[float]) -> Certificate:
    """The certificate that these numbers make, checked; an error where they prove nothing.

    Args:
        program: what is to be satisfied.
        numbers: the unknowns, right up to rounding: `Certificate.rounded` of an earlier run, or a solver's.

    Returns:
        The certificate.
    """
    if len(numbers) != len(program.costs):
        raise SolverError(f"{len(numbers)} numbers were given for {len(program.costs)} unknowns.")
    whole = [Fraction(number) for number in numbers]
    for unknown in program.nonnegative:
        whole[unknown] = max(whole[unknown], Fraction(0))
    entries = {unknown for matrix in program.semidefinite for row in matrix for unknown in row}
    for requirement in program.requirements:
        if blind := _blind_rows(requirement):
            _annul(requirement, whole, blind, entries)
        else:
            _balance(requirement, whole, set(program.nonnegative))
    certificate = Certificate(program, tuple(whole))
    certificate.check()
    return certificate


def _balance(requirement: FormConstraint, numbers: list[Fraction], nonnegative: set[int]) -> None:
    """Remove what rounding left of the function values, by multipliers that only grow.

    A multiplier that counts one function value, and at most one other, moves what is left of the one to the other, or
    away. Values are emptied along a tree of such moves, those furthest from its root first.
    """
    counts = {unknown: form.value_counts() for unknown, form in requirement.terms}
    moves: dict[
        tuple[int, int | None], dict[bool, int]
    ] = {}  # from, to: the multiplier for a positive or negative rest
    for unknown, each in counts.items():
        if len(each) <= 2:
            for value, count in each.items():
                other = next((number for number in each if number != value), None)
                usable = moves.setdefault((value, other), {})
                usable[count < 0] = unknown
                if unknown not in nonnegative:
                    usable[count > 0] = unknown
    order: list[int | None] = [None]
    target: dict[int, int | None] = {}
    for end in order:
        for (value, other), usable in moves.items():
            if other == end and len(usable) == 2 and value not in target:
                target[value] = end
                order.append(value)
    left = requirement.total(numbers).value_counts()
    for value in reversed(list(target)):
        rest = left.get(value, Fraction(0))
        if rest:
            unknown = moves[value, target[value]][rest > 0]
            change = -rest / counts[unknown][value]
            numbers[unknown] += change
            for number, count in counts[unknown].items():
                left[number] = left.get(number, Fraction(0)) + change * count


def _blind_rows(requirement: FormConstraint) -> set[Place]:
    """The basis vectors whose square no form has: of them nothing may be left, not even what rounding leaves."""
    squares: set[Place] = set()
    for form in (requirement.constant, *(form for _, form in requirement.terms)):
        total: dict[Place, Fraction] = {}
        for count, u, v in form.products:
            for place in u.coefficients.keys() & v.coefficients.keys():
                total[place] = total.get(place, Fraction(0)) + count * u.coefficients[place] * v.coefficients[place]
        squares |= {place for place, value in total.items() if value}
    sizes = requirement.space.sizes
    return {(gram, row) for gram, size in enumerate(sizes) for row in range(size)} - squares


def _annul(requirement: FormConstraint, numbers: list[Fraction], blind: set[Place], entries: set[int]) -> None:
    """Change multipliers so that all function values and all products with blind basis vectors vanish exactly.

    These are linear equations, solved by elimination in fractions. The largest multipliers change, which stay positive,
    and entries of semidefinite matrices only where nothing else does.
    """
    involved = {unknown for unknown, _ in requirement.terms}
    order = sorted(involved, key=lambda unknown: (unknown in entries, -abs(numbers[unknown])))
    equations: dict[Any, dict[int, Fraction]] = {}  # what must vanish: the coefficient of each unknown in it
    for unknown, form in requirement.terms:
        for key, value in _parts(form, blind).items():
            line = equations.setdefault(key, {})
            line[unknown] = line.get(unknown, Fraction(0)) + value
    left = _parts(requirement.total(numbers), blind)
    lines = [(line, -left.get(key, Fraction(0))) for key, line in equations.items()]
    solved: dict[int, tuple[dict[int, Fraction], Fraction]] = {}
    for unknown in order:
        pivot = next((number for number, (line, _) in enumerate(lines) if line.get(unknown)), None)
        if pivot is None:
            continue
        line, right = lines.pop(pivot)
        scale = line[unknown]
        solution = ({other: value / scale for other, value in line.items() if value}, right / scale)
        lines = [_without(unknown, each, solution) for each in lines]
        solved = {other: _without(unknown, each, solution) for other, each in solved.items()}
        solved[unknown] = solution
    for unknown, (_, change) in solved.items():
        numbers[unknown] += change


def _without(
    unknown: int, equation: tuple[dict[int, Fraction], Fraction], solved: tuple[dict[int, Fraction], Fraction]
) -> tuple[dict[int, Fraction], Fraction]:
    """An equation from which another one, solved for an unknown, has taken it."""
    factor = equation[0].get(unknown)
    if not factor:
        return equation
    rest = dict(equation[0])
    for other, value in solved[0].items():
        rest[other] = rest.get(other, Fraction(0)) - factor * value
    return {other: value for other, value in rest.items() if value}, equation[1] - factor * solved[1]


def _parts(form: GramForm, blind: set[Place]) -> dict[Any, Fraction]:
    """How often a form has each function value, and each product with a blind basis vector."""
    parts: dict[Any, Fraction] = dict(form.value_counts())
    for count, u, v in form.products:
        for a, x in u.coefficients.items():
            for b, y in v.coefficients.items():
                if a[0] == b[0] and (a in blind or b in blind):
                    parts[min(a, b), max(a, b)] = parts.get((min(a, b), max(a, b)), Fraction(0)) + count * x * y
    return {key: value for key, value in parts.items() if value}


def prove_semidefinite(matrix: list[list[Fraction]]) -> None:
    """Show that a symmetric matrix of fractions is positive semidefinite, or raise an error.

    >>> prove_semidefinite([[Fraction(2), Fraction(1)], [Fraction(1), Fraction(1)]])
    >>> prove_semidefinite([[Fraction(1), Fraction(2)], [Fraction(2), Fraction(1)]])
    Traceback (most recent call last):
        ...
    fedlin.theory.exact.semidefinite.SolverError: ...
    """
    # Rows that meet few others come first, so that the factor stays sparse.
    kept = sorted(_independent_rows(matrix), key=lambda row: sum(map(bool, matrix[row])))
    size = len(kept)
    if not size:
        return
    # Scaled by powers of two to about one on the diagonal, which changes no sign.
    halves = [_exponent(matrix[row][row]) // 2 for row in kept]
    scaled = [
        [
            matrix[row][column] / Fraction(2) ** (i + j) if matrix[row][column] else Fraction(0)
            for j, column in zip(halves, kept, strict=True)
        ]
        for i, row in zip(halves, kept, strict=True)
    ]
    rounded = np.array([[float(entry) for entry in row] for row in scaled])
    least = float(np.linalg.eigvalsh(rounded)[0])
    if least <= 0:
        raise SolverError(f"a matrix is not positive semidefinite (least eigenvalue {least:.3g}).")
    try:
        factor = np.linalg.cholesky(rounded - least / 2 * np.eye(size))
    except np.linalg.LinAlgError as cause:
        raise SolverError(f"a matrix is too close to indefinite (least eigenvalue {least:.3g}).") from cause
    whole = [{k: int(entry * 2**_BITS) for k, entry in enumerate(row) if entry} for row in factor.tolist()]
    beside = [Fraction(0)] * size  # Σ |entry| off the diagonal, of A - RRᵀ
    for row in range(size):
        for column in range(row):
            product = _inner_product(whole[row], whole[column])
            if product or scaled[row][column]:
                entry = abs(scaled[row][column] - Fraction(product, 4**_BITS))
                beside[row] += entry
                beside[column] += entry
    for row in range(size):
        if scaled[row][row] - Fraction(_inner_product(whole[row], whole[row]), 4**_BITS) < beside[row]:
            raise SolverError(f"a matrix could not be proved positive semidefinite (least eigenvalue {least:.3g}).")


def _inner_product(left: Mapping[int, int], right: Mapping[int, int]) -> int:
    """Of two rows of whole numbers, of which only those that are not zero are held."""
    short, long = (left, right) if len(left) < len(right) else (right, left)
    return sum(entry * long[place] for place, entry in short.items() if place in long)


def _independent_rows(matrix: list[list[Fraction]]) -> list[int]:
    """The rows without those that are combinations of others: where Av = 0, one row in which v is not zero.

    Such v exist where nothing depends on a vector, or where a method cannot tell f_i from f_i plus a linear function.
    """
    kept = [row for row, line in enumerate(matrix) if any(line)]
    rounded = np.array([[float(matrix[row][column]) for column in kept] for row in kept])
    scale = np.sqrt(np.maximum(np.diag(rounded), np.finfo(float).tiny)) if kept else np.ones(0)
    values, vectors = np.linalg.eigh(rounded.reshape(len(kept), len(kept)) / np.outer(scale, scale))
    span = vectors[:, values <= _BLIND] / scale[:, None]
    pivots: list[int] = []
    for column in range(span.shape[1]):  # to reduced columns, each with a one where the others have zeros
        free = np.abs(span[:, column])
        free[pivots] = 0
        pivot = int(np.argmax(free))
        pivots.append(pivot)
        span[:, column] /= span[pivot, column]
        others = [other for other in range(span.shape[1]) if other != column]
        span[:, others] -= np.outer(span[:, column], span[pivot, others])
    for column, pivot in enumerate(pivots):
        v = [Fraction(entry).limit_denominator(_SIMPLE) for entry in span[:, column]]
        if all(sum(matrix[row][place] * entry for place, entry in zip(kept, v, strict=True)) == 0 for row in kept):
            pivots[column] = kept[pivot]
        else:
            pivots[column] = -1
    return [row for row in kept if row not in pivots]


def _exponent(value: Fraction) -> int:
    return value.numerator.bit_length() - value.denominator.bit_length() if value > 0 else 0
