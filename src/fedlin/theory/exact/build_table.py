"""Computes the table of certified steps that ships with the package, and proves every row of it.

For each range of κ and several steps η̄ it seeks slopes a, b, c that serve all numbers of local steps, the loss ε and
the surplus s of every τ up to 100, as `client_bound` defines them; then it proves each of these bounds in exact
arithmetic.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, log
from pathlib import Path
from typing import Any

from fedlin.theory.certified import LAST_STEPS
from fedlin.theory.exact.client_bound import ClientBounds, CommonStep, Slopes, prove_client
from fedlin.theory.exact.semidefinite import SolverError

# Where ranges of κ meet: a finer division loses less inside of them, and takes longer.
EDGES = (
    *("1.5", "1.75", "2", "2.5", "3", "3.5", "4", "5", "6", "8", "10", "12.5", "16", "20", "25", "32", "40", "50"),
    *("70", "100", "200", "500", "2000", "1000000"),
)
SMALLER = ("2.5", "3", "4.6")  # η̄L for clients among whom some have few steps
LARGEST = ("3.5", "4", "4.4", "4.8", "5", "5.2", "5.4", "5.6")  # among which the fastest is sought
SEVERAL = (1, 2, 3, 4, 6, 12, 40, 100)  # numbers of local steps that stand for all while slopes are sought
STRONG = (4, 6, 12, 40)  # those that can take the largest steps
_TOLERANCE = 1e-8
_LITTLE = 0.02  # what the surplus of clients with too few steps counts
_ENOUGH = Fraction(3, 2)  # how much more loss it may cost to serve clients with fewer steps too
_ROOM = (Fraction(1), Fraction(4, 3), Fraction(2))  # how much more loss proofs are given, until they succeed
_ATTEMPTS = 6  # at a proof, each with less surplus

Row = dict[str, Any]


def build(edges: Sequence[str], finished: Path, jobs: int = 1) -> list[Row]:
    """The rows of the table; those in the file `finished` are taken from it, and new ones are added to it."""
    ranges = list(pairwise(edges))
    known = [json.loads(line) for line in finished.read_text().splitlines()] if finished.exists() else []
    done = {(*row["kappa"], row["eta_bar"]) for row in known}
    with ProcessPoolExecutor(jobs) as pool:
        steps = [
            (pair, eta_bar)
            for pair, each in zip(ranges, pool.map(chosen_steps, ranges), strict=True)
            for eta_bar in each
        ]
        missing = [(pair, eta_bar) for pair, eta_bar in steps if (*pair, decimal(eta_bar)) not in done]
        for row in pool.map(certify_step, *zip(*missing, strict=True)) if missing else ():
            with finished.open("a") as file:
                file.write(json.dumps(row) + "\n")
            known.append(row)
    order = {edge: number for number, edge in enumerate(edges)}
    return sorted(
        (row for row in known if tuple(row["kappa"]) in ranges),
        key=lambda row: (order[row["kappa"][0]], float(row["eta_bar"])),
    )


def chosen_steps(kappa: tuple[str, str]) -> list[Fraction]:
    """The steps worth certifying for a range of κ: the fastest, and smaller ones for clients with few local steps."""
    low, high = (1 / Fraction(edge) for edge in reversed(kappa))
    rates = {}
    for eta_bar in map(Fraction, LARGEST):
        step = CommonStep((low, high), eta_bar)
        kept = 1 - (1 - float(least_loss(step, STRONG))) * (1 - float(step.full_factor(STRONG[-1], low)))
        rates[eta_bar] = -log(kept) if kept > 0 else 0.0
    fastest = max(rates, key=lambda eta_bar: rates[eta_bar])
    # With one local step, and with two, nothing above these holds.
    limits = [Fraction(floor(1000 * limit / (1 + high)), 1000) for limit in (2, 4)]
    steps = [fastest, *limits]
    for eta_bar in map(Fraction, SMALLER):
        if eta_bar < fastest and all(abs(eta_bar / other - 1) > Fraction(5, 100) for other in steps):
            steps.append(eta_bar)
    return sorted(step for step in steps if step <= fastest)


def certify_step(kappa: tuple[str, str], eta_bar: Fraction) -> Row:
    """Slopes, loss and surplus for one step, all of them proved."""
    low, high = (1 / Fraction(edge) for edge in reversed(kappa))
    step = CommonStep((low, high), eta_bar)
    served, least = clients_served(step)
    for room in _ROOM:
        sought = room * (Fraction(115, 100) * least + Fraction(3, 1000))
        slopes = common_slopes(step, sought, served)
        loss = round_up(Fraction(115, 100) * sought + Fraction(1, 1000))
        surplus = [proved_surplus(step, loss, slopes, first, last) for first, last in spans()]
        if all(s is not None and s >= 0 for s, (first, _) in zip(surplus, spans(), strict=True) if first >= served[0]):
            break
    return {
        "kappa": list(kappa),
        "eta_bar": decimal(step.eta_bar),
        "loss": decimal(loss),
        "slopes": [[decimal(slope) for slope in each] for each in slopes],
        "surplus": [None if value is None else decimal(value) for value in surplus],
    }


def clients_served(step: CommonStep) -> tuple[tuple[int, ...], Fraction]:
    """Numbers of local steps that lack nothing at this step, and the least loss with them."""
    served: tuple[int, ...] = STRONG
    least = least_loss(step, STRONG)
    for count in (3, 2, 1):
        try:
            loss = least_loss(step, (count, *served))
        except SolverError:
            break
        stable = count < 3 and step.eta_bar / count * (1 + step.mu[1]) <= 2
        if not stable and loss > _ENOUGH * least + Fraction(1, 500):
            break
        served, least = (count, *served), max(loss, least)
    return served, least


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


def proved_surplus(
    step: CommonStep, loss: Fraction, slopes: Sequence[Slopes], first: int, last: int
) -> Fraction | None:
    """A surplus that is proved for every number of steps from the first to the last, or None where none is."""
    guesses = [guess for tau in {first, min(last, 30)} if (guess := most_surplus(step, loss, slopes, tau)) is not None]
    if not guesses:
        return None
    surplus = to_decimal(min(guesses) - 0.005 - 0.1 * abs(min(guesses)), 3)
    tau = first
    for _ in range(_ATTEMPTS):
        try:
            while tau <= last:
                prove_client(step, loss, slopes, tau, surplus)
                tau += 1
            return surplus
        except SolverError:
            # A proof for less surplus follows from one for more: only those still to come are tried again.
            surplus = to_decimal(float(surplus) - 0.01 - abs(float(surplus)) / 5, 3)
    return None


def most_surplus(step: CommonStep, loss: Fraction, slopes: Sequence[Slopes], tau: int) -> float | None:
    """The largest surplus the solver finds, or None where it finds none."""
    bounds = ClientBounds(step, loss, slopes)
    unknown = bounds.add(tau, None)
    try:
        return float(bounds.program.solve(_TOLERANCE).numbers[unknown])
    except SolverError:
        return None


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
