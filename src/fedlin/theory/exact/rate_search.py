"""The smallest factor a round for which Lyapunov functions can be found, by bisection, and its proof."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from fedlin.theory.exact.certificate import Certificate, certify
from fedlin.theory.exact.semidefinite import SemidefiniteProgram, SolverError, UnboundedError
from fedlin.theory.exact.symbols import exact

_HALVINGS = 24  # of the drop 1 - ρ, until one holds
_STEPS = 7  # of the bisection that follows
_LARGEST = 1e6  # the constant in front, at most
_KEPT = (99, 97, 94, 90)  # hundredths of the drop that the solver found, of which the first that can be is proved
_ROOM = Fraction(101, 100)  # for the constant in front

# The program that seeks Lyapunov functions for a factor and a constant. Without a constant the least is sought, as the
# program's first unknown.
Search = Callable[[Fraction, Fraction | None], SemidefiniteProgram]


@dataclass(frozen=True)
class ProvedRate:
    """‖x_T - x*‖² ≤ constant · rate^T (‖x_0 - x*‖² + M/L²), proved; for a random method in expectation.

    M is the sum of the memories' squared distances from what they are once x* is reached, of a client's their mean.
    """

    rate: float  # ρ, the factor a round
    constant: float
    certificate: Certificate


def best_rate(search: Search, name: str) -> ProvedRate:
    """The rate of the method of this name, to a hundredth of its drop 1 - ρ."""
    drop = Fraction(1)
    for _ in range(_HALVINGS):
        drop /= 2
        if _least_constant(search, 1 - drop) is not None:
            break
    else:
        raise UnboundedError(
            f"no quadratic Lyapunov function shows that {name} converges with these steps on these functions."
        )
    too_much = 2 * drop
    for _ in range(_STEPS):
        middle = (drop + too_much) / 2
        holds = _least_constant(search, 1 - middle) is not None
        drop, too_much = (middle, too_much) if holds else (drop, middle)
    failure: SolverError | None = None
    for hundredths in _KEPT:
        rate = 1 - hundredths * drop / 100
        least = _least_constant(search, rate)
        if least is not None:
            constant = _ROOM * exact(least)
            try:
                return ProvedRate(float(rate), float(constant), certify(search(rate, constant)))
            except SolverError as cause:
                failure = cause
    raise SolverError(f"the rate {float(1 - drop):.6g} of {name} could not be proved: {failure}") from failure


def _least_constant(search: Search, rate: Fraction) -> float | None:
    """The least constant that the solver finds for a rate, or None where it finds none."""
    try:
        constant = float(search(rate, None).solve().numbers[0])
    except SolverError:
        return None
    return constant if 0 < constant <= _LARGEST else None
