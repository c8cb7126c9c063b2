"""Computes the table of certified steps that ships with the package, and proves every row of it.

For each range of κ and a step η̄ it seeks slopes a, b, c that serve all numbers of local steps, the loss ε and
the surplus s of every τ up to 100, as `client_bound` defines them; then it proves each of these bounds in exact
arithmetic.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from fractions import Fraction
from itertools import pairwise
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from fedlin.theory.certified_steps import LAST_STEPS
from fedlin.theory.exact.client_bound import ClientBounds, CommonStep, Slopes, prove_client
from fedlin.theory.exact.semidefinite import SolverError


class Series(NamedTuple):
    """Rows for neighbouring ranges of κ."""

    first: int  # the least number of local steps that must lack nothing
    edges: tuple[str, ...]  # where the ranges meet
    steps: tuple[str, ...]  # η̄L in each


# The steps are the fastest of several that were tried. A finer division loses less inside of its ranges, and takes
# longer. The second series is for clients few of which take one local step alone: the others make up for them.
SERIES = (
    Series(
        1,
        ("1.5", "2", "3", "5", "10", "30", "100", "1000000"),
        ("1.18", "1.3", "1.45", "1.6", "1.7", "1.8", "1.7"),
    ),
    Series(2, ("3", "5", "10", "30", "100", "1000000"), ("1.7", "1.9", "2.2", "2.4", "2.4")),
    Series(2, ("1.5", "3", "5", "10", "25", "100", "1000000"), ("2.2", "2.82", "3.133", "3.418", "3.615", "3.4")),
    Series(3, ("10", "30", "100", "1000000"), ("4.2", "4.6", "4.6")),
    Series(
        4,
        (
            *("1.5", "2", "2.5", "3", "3.5", "4", "5", "6", "8", "10", "12.5", "16", "20", "25", "32", "40", "50"),
            *("70", "100", "1000000"),
        ),
        (
            *("4.6", "4", "4", "4", "4.2", "4.4", "4.6", "4.6", "4.8", "5", "5.2", "5.2", "5.4", "5.4", "5.4", "5.6"),
            *("5.6", "5.6", "5.4"),
        ),
    ),
)
SEVERAL = (1, 2, 3, 4, 6, 12, 40, 100)  # numbers of local steps that stand for all while slopes are sought
_TOLERANCE = 1e-8
_LITTLE = 0.02  # what the surplus of clients with too few steps counts
_ROOM = (Fraction(1), Fraction(4, 3), Fraction(2), Fraction(3))  # how much more loss is given, until proofs succeed
_LEAST_SURPLUS = 0.01  # of clients that are to lack nothing, below which proofs have no margin
_ATTEMPTS = 4  # at a proof, each with less surplus

Row = dict[str, Any]


def build(finished: Path, jobs: int = 1) -> list[Row]:
    """The rows of the table; those in the file `finished` are taken from it, and new ones are added to it."""
    known = [json.loads(line) for line in finished.read_text().splitlines()] if finished.exists() else []
    done = {(*row["kappa"], Fraction(row["eta_bar"])): row for row in known}
    planned = [
        (pair, Fraction(eta_bar), series.first)
        for series in SERIES
        for pair, eta_bar in zip(pairwise(series.edges), series.steps, strict=True)
    ]
    missing = [step for step in planned if (*step[0], step[1]) not in done]
    with ExitStack() as stack:
        # A fresh interpreter each: JAX's threads do not survive a fork.
        pool = stack.enter_context(ProcessPoolExecutor(jobs, get_context("spawn"))) if jobs > 1 else None
        each = map if pool is None else pool.map
        for row in each(certify_step, *zip(*missing, strict=True)) if missing else ():
            with finished.open("a") as file:
                file.write(json.dumps(row) + "\n")
            done[*row["kappa"], Fraction(row["eta_bar"])] = row
    rows = [done[*pair, eta_bar] for pair, eta_bar, _ in planned]
    return sorted(rows, key=lambda row: (float(row["kappa"][0]), float(row["eta_bar"])))


def served_from(first: int) -> tuple[int, ...]:
    """Those of several numbers of local steps that are to lack nothing; the largest is as the one before."""
    return SEVERAL[SEVERAL.index(first) : -1]


def certify_step(kappa: tuple[str, str], eta_bar: Fraction, first: int) -> Row:
    """Slopes, loss and surplus for one step, all of them proved; clients with `first` local steps lack nothing."""
    low, high = (1 / Fraction(edge) for edge in reversed(kappa))
    step = CommonStep((low, high), eta_bar)
    served = served_from(first)
    least = least_loss(step, served)
    for room in _ROOM:
        sought = room * sought_loss(least)
        slopes = common_slopes(step, sought, served)
        loss = proof_loss(sought)
        guesses = [guessed_surplus(step, loss, slopes, *span) for span in spans()]
        needed = [guess for guess, span in zip(guesses, spans(), strict=True) if span[0] >= first]
        if any(guess is None or guess < _LEAST_SURPLUS for guess in needed):
            continue
        surplus = [
            None if guess is None else proved_surplus(step, loss, slopes, *span, guess)
            for guess, span in zip(guesses, spans(), strict=True)
        ]
        proved = [value for value, span in zip(surplus, spans(), strict=True) if span[0] >= first]
        if all(value is not None and value >= 0 for value in proved):
            return {
                "kappa": list(kappa),
                "eta_bar": decimal(step.eta_bar),
                "loss": decimal(loss),
                "slopes": [[decimal(slope) for slope in each] for each in slopes],
                "surplus": [None if value is None else decimal(value) for value in surplus],
            }
    raise SolverError(f"η̄ = {decimal(eta_bar)}/L is not proved for κ from {kappa[0]} to {kappa[1]}.")


def sought_loss(least: Fraction) -> Fraction:
    """The loss at which slopes are sought: more than the least, so that there is surplus to spare."""
    return Fraction(115, 100) * least + Fraction(3, 1000)


def proof_loss(sought: Fraction) -> Fraction:
    """The loss that is proved: more than slopes were sought with, so that proofs have a margin for rounding."""
    return round_up(Fraction(115, 100) * sought + Fraction(1, 1000))


def least_loss(step: CommonStep, counts: Sequence[int]) -> Fraction:
    """The least ε at which no client with one of these numbers of steps lacks anything."""
    bounds = ClientBounds(step, None)
    for tau in counts:
        bounds.add(tau, Fraction(0))
    assert bounds.least_loss is not None
    return round_up(max(0.0, float(bounds.program.solve(_TOLERANCE).numbers[bounds.least_loss])))


def common_slopes(step: CommonStep, loss: Fraction, served: Sequence[int]) -> tuple[Slopes, Slopes]:
    """Slopes that leave the most surplus, to those with too few steps too where that can be had."""
    for counts in (SEVERAL, SEVERAL[SEVERAL.index(served[0]) :]):
        bounds = ClientBounds(step, loss)
        for tau in counts:
            enough = tau >= served[0]
            bounds.add(tau, None, 1.0 if enough else _LITTLE, at_least_zero=enough)
        try:
            numbers = bounds.program.solve(_TOLERANCE).numbers
        except SolverError:
            continue
        low, high = ([to_decimal(numbers[unknown]) for unknown in each] for each in bounds.unknown_slopes)
        return (low[0], low[1], low[2]), (high[0], high[1], high[2])
    raise SolverError(f"no slopes serve clients with {served} local steps.")


def guessed_surplus(step: CommonStep, loss: Fraction, slopes: Sequence[Slopes], first: int, last: int) -> float | None:
    """The least of the largest surpluses that the solver finds for some of these numbers of steps."""
    tried = sorted({first, min(last, 30), min(last, 60)})
    guesses = [guess for tau in tried if (guess := most_surplus(step, loss, slopes, tau)) is not None]
    return min(guesses) if guesses else None


def proved_surplus(
    step: CommonStep, loss: Fraction, slopes: Sequence[Slopes], first: int, last: int, guess: float
) -> Fraction | None:
    """A surplus that is proved for every number of steps from the first to the last, or None where none is."""
    # Half of what there is to spare is left to the proofs, which succeed the more easily.
    surplus = to_decimal(guess / 2 if guess > 0 else 1.2 * guess - 0.05, 3)
    tau = first
    for _ in range(_ATTEMPTS):
        try:
            while tau <= last:
                prove_client(step, loss, slopes, tau, surplus)
                tau += 1
            return surplus
        except SolverError:
            # A proof for less surplus follows from one for more: only those still to come are tried again.
            surplus = to_decimal(float(surplus) / 4 if surplus > 0 else 1.5 * float(surplus) - 0.05, 3)
    return None


def most_surplus(step: CommonStep, loss: Fraction, slopes: Sequence[Slopes], tau: int) -> float | None:
    """The largest surplus the solver finds, or None where it finds none."""
    bounds = ClientBounds(step, loss, slopes)
    unknown = bounds.add(tau, None)
    try:
        return float(bounds.program.solve(_TOLERANCE).numbers[unknown])
    except SolverError:
        return None


def prove_row(row: Row) -> int:
    """Prove all bounds of a row again; how many there are."""
    low, high = (1 / Fraction(edge) for edge in reversed(row["kappa"]))
    step = CommonStep((low, high), Fraction(row["eta_bar"]))
    slopes = [(Fraction(a), Fraction(b), Fraction(c)) for a, b, c in row["slopes"]]
    counts = [
        (tau, Fraction(surplus))
        for (first, last), surplus in zip(spans(), row["surplus"], strict=True)
        for tau in range(first, last + 1)
        if surplus is not None
    ]
    for tau, surplus in counts:
        prove_client(step, Fraction(row["loss"]), slopes, tau, surplus)
    return len(counts)


def write(rows: Sequence[Row], out: Path) -> None:
    """The table as it ships: one row a line."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    out.write_text(f'{{"steps": [\n{lines}\n]}}\n', encoding="utf-8")


def spans() -> Iterator[tuple[int, int]]:
    """The first and the last of the numbers of local steps that share a surplus."""
    return zip((1, *(last + 1 for last in LAST_STEPS)), LAST_STEPS, strict=False)


def round_up(value: Fraction | float) -> Fraction:
    """To four decimals."""
    return Fraction(ceil(10**4 * value), 10**4)


def to_decimal(value: float, places: int = 5) -> Fraction:
    """The nearest decimal."""
    return Fraction(round(value * 10**places), 10**places)


def decimal(value: Fraction) -> str:
    """A decimal fraction as it is written."""
    return repr(float(value))
