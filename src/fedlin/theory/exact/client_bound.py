"""What one client of FedLin contributes to a round, proved so that any clients' proofs add up.

In a round client i takes τ_i steps of size η_i = η̄/τ_i on h_i(x) = f_i(x) + ⟨g - ∇f_i(x̄), x⟩, from x̄ to x_i. All h_i
have the same gradient g at x̄, and their gradients p_i at x* have mean zero. With d = x̄ - x*, suppose that for every
client and every vector z

    ⟨z, x_i - x*⟩ ≤ R_i (‖d‖² + ‖z‖²)/2 + ⟨p_i, a d + b g + c z⟩ - s_i ‖g - μd‖²,

with the same a, b and c for all. If Σ w_i s_i ≥ 0, the weighted sum is ⟨z, x̄⁺ - x*⟩ ≤ R (‖d‖² + ‖z‖²)/2 with
R = Σ w_i R_i, and so ‖x̄⁺ - x*‖ ≤ R ‖d‖: one round's factor, for any number of clients and any τ_i at once. A client
with too few steps for η̄ lacks some s_i, which the others may have to spare.

The inequality is proved by multipliers of interpolation conditions between neighbouring points, and between each point
and x* or x̄. Times 1 - μ these conditions are linear in μ (L = 1), and so are multiples of them: where the same
multipliers prove the inequality at two values of μ, they prove it between them, with R_i, a, b, c and ‖g - μd‖²
interpolated linearly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from fedlin.theory.exact.certificate import Certificate, certify
from fedlin.theory.exact.functions import interpolation
from fedlin.theory.exact.semidefinite import SemidefiniteProgram
from fedlin.theory.exact.symbols import GramForm, Space, SymbolicVector, inner, squared, value_of
from fedlin.theory.exact.trace import TracePoint

Slopes = tuple[Fraction, Fraction, Fraction]  # a, b, c


@dataclass(frozen=True)
class CommonStep:
    """A step η̄ for clients whose μ/L lies between two values."""

    mu: tuple[Fraction, Fraction]  # of μ/L
    eta_bar: Fraction  # η̄L

    def full_factor(self, tau: int, mu: Fraction) -> Fraction:
        """(1 - η_iμ)^τ_i, what τ_i steps leave of ‖d‖ where f_i is as flat as it can be."""
        return (1 - self.eta_bar * mu / tau) ** tau


class LocalPath(NamedTuple):
    """A client's vectors in a round."""

    space: Space
    z: SymbolicVector
    d: SymbolicVector
    g: SymbolicVector
    p: SymbolicVector
    end: SymbolicVector  # x_i - x*
    points: list[TracePoint]  # x*, then those of the local steps
    pairs: list[tuple[int, int]]  # between which conditions are used


def local_path(tau: int, eta_bar: Fraction, mu: Fraction) -> LocalPath:
    """τ local steps, in terms of the points they pass: few products of these are in any condition."""
    space = Space([Fraction(1)], [1])
    d = space.shared(scale=float(mu) ** -0.5)
    z, p = space.shared(near=d), space.shared()
    eta = eta_bar / tau
    shrink = float(1 - eta * mu)
    places = [d]
    places += [space.shared(near=Fraction(shrink**number) * d, scale=tau**-0.5) for number in range(1, tau + 1)]
    gradients = [(before - after) / eta for before, after in pairwise(places)]
    points = [TracePoint(space.origin, p, GramForm())]
    points += [TracePoint(x, v, value_of(number)) for number, (x, v) in enumerate(zip(places, gradients, strict=False))]
    pairs = [pair for number in range(1, tau + 1) for pair in ((0, number), (number, 0))]
    pairs += [pair for number in range(1, tau) for pair in ((number, number + 1), (number + 1, number))]
    pairs += [pair for number in range(3, tau + 1) for pair in ((1, number), (number, 1))]
    return LocalPath(space, z, d, gradients[0], p, places[-1], points, pairs)


class ClientBounds:
    """A program in which several clients' bounds are proved with a, b and c in common.

    Args:
        step: the step they take.
        loss: ε of R_i = 1 - (1 - ε)(1 - (1 - η_iμ)^τ_i), or None where the least is sought.
        slopes: a, b, c at both values of μ, or None where they are sought.
    """

    def __init__(self, step: CommonStep, loss: Fraction | None, slopes: Sequence[Slopes] | None = None) -> None:
        self.step, self.loss, self.slopes = step, loss, slopes
        self.program = SemidefiniteProgram()
        self.least_loss = self.program.unknown(cost=1.0) if loss is None else None
        self.unknown_slopes = [] if slopes else [[self.program.unknown() for _ in range(3)] for _ in step.mu]

    def add(self, tau: int, surplus: Fraction | None, weight: float = 1.0, at_least_zero: bool = False) -> int:
        """A client with τ steps, whose surplus s is given or is sought; if sought, the number of the unknown."""
        paths = [local_path(tau, self.step.eta_bar, mu) for mu in self.step.mu]
        unknown = -1 if surplus is not None else self.program.unknown(cost=-weight, nonnegative=at_least_zero)
        multipliers = [self.program.unknown(nonnegative=True) for _ in paths[0].pairs]
        for end, (mu, path) in enumerate(zip(self.step.mu, paths, strict=True)):
            lengths = Fraction(1, 2) * (squared(path.d) + squared(path.z))
            full = self.step.full_factor(tau, mu)
            constant = full * lengths - inner(path.z, path.end)
            terms = [
                (multiplier, (1 - mu) * interpolation(path.points[a], path.points[b], Fraction(1), mu))
                for multiplier, (a, b) in zip(multipliers, path.pairs, strict=True)
            ]
            if self.loss is None:
                assert self.least_loss is not None
                terms.append((self.least_loss, (1 - full) * lengths))
            else:
                constant = constant + self.loss * (1 - full) * lengths
            along = [inner(path.p, vector) for vector in (path.d, path.g, path.z)]
            if self.slopes is None:
                terms += zip(self.unknown_slopes[end], along, strict=True)
            else:
                constant = constant + sum(
                    (a * part for a, part in zip(self.slopes[end], along, strict=True)), GramForm()
                )
            spent = squared(path.g - mu * path.d)
            if surplus is None:
                terms.append((unknown, -1 * spent))
            else:
                constant = constant - surplus * spent
            self.program.require(path.space, constant, terms)
        return unknown


def prove_client(
    step: CommonStep, loss: Fraction, slopes: Sequence[Slopes], tau: int, surplus: Fraction
) -> Certificate:
    """The proof of one client's bound, in exact arithmetic; an error where there is none."""
    bounds = ClientBounds(step, loss, slopes)
    bounds.add(tau, surplus)
    return certify(bounds.program)
