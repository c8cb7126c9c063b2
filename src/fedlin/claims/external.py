"""Numbers that others published on a9a, beside what our code takes in the same setting."""

from math import ceil, comb, log2
from typing import NamedTuple

import numpy as np

from fedlin import algorithms
from fedlin.claims.claim import OPEN, Outcome, Setting, claim
from fedlin.claims.common.published import (
    BEFORE,
    BITS_TO,
    CLIENTS,
    DIANA_ALPHA,
    DIANA_LEVELS,
    DIANA_ROUNDS,
    DIANA_STEP,
    DITHERED_ENTRY,
    DITHERED_OMEGA,
    ERRORS,
    L2,
    PUBLISHED_BITS,
    SCAFFNEW_LOGGED,
    SCAFFNEW_REPLAYED,
    SCAFFNEW_STEPS,
    SortedProblem,
    dealt_a9a,
    sorted_a9a,
)
from fedlin.compressors import cast, quantize, top_k
from fedlin.core import Array, Method
from fedlin.engines.simulation.simulate import simulate
from fedlin.engines.simulation.stop import Stop
from fedlin.links import error_feedback, innovation
from fedlin.matrices import low_rank, triangle_size
from fedlin.plan import Plan
from fedlin.problems.logistic import Logistic
from fedlin.report.verdict import Row
from fedlin.result import Result, first
from fedlin.theory.accelerated_steps import adiana as adiana_steps
from fedlin.theory.accelerated_steps import adiana_probability

NEAR = 1  # rounds by which a replay may differ
NEARLY = 0.05  # the share by which bits may differ
CLOSE = 0.005  # the share of its rounds by which DIANA may
SPREAD = 0.25  # the share by which the median over our own coins may differ from the logged run
SEEDS = 3
MOST, ADIANA_MOST, FEDNL_MOST = 1500, 2600, 40  # rounds
SHORT, LEVELS = cast("float16", top_k(8)), innovation(quantize(15))


class Untuned(NamedTuple):
    """A method of ours on DIANA's problem, and the bits of what a client sends up in a round after the first."""

    method: Method
    tau: int
    reach: float  # η̄L
    floats: float  # with 32 bits a number and ⌈log₂ d⌉ an index
    coded: float  # by an ideal coder, to which indices are a set and numbers have no pattern


def untuned(dim: int) -> dict[str, Untuned]:
    """Ours by their names."""
    small = algorithms.fedlin(
        uplink=innovation(SHORT), downlink=LEVELS, model_uplink=error_feedback(SHORT), model_downlink=LEVELS
    )
    return {
        "FedLin, 8 entries up, 5 bits down": Untuned(
            small, 10, 4.0, 2 * 8 * (32 + ceil(log2(dim))), 2 * (8 * 16 + log2(comb(dim, 8)))
        ),
        "Scaffnew, float64": Untuned(algorithms.scaffnew(), 40, 40.0, 32 * dim, 64 * dim),
    }


@claim(
    "external",
    order=700,
    title="Published numbers",
    section=OPEN,
    statement="Scaffnew on a9a takes the rounds that its log has, to one round of a replay in plain NumPy, if it takes "
    "the logged local steps, and as many in order with coins of its own. DIANA takes the rounds of its authors' later "
    "code to half a percent, and ADIANA and FedNL send the bits of that code to five percent, counted as it counts.",
    by_name=True,  # minutes of passes over all rows
)
def check(setting: Setting) -> Outcome:
    """Both on all rows of a9a, at the sources' step sizes; and bits up a client to 10⁻⁶ in each way to count them."""
    problem = dealt_a9a()
    if problem is None:
        return Outcome((), skipped="a9a.gz was not found: set FEDLIN_DATA to its folder")
    rows: list[Row] = []
    for kappa in setting.pick((1000, 2000), (1000,)):
        problem_a9a = sorted_a9a(kappa)
        assert problem_a9a is not None
        rows += _replayed(kappa, problem_a9a)
        if kappa == 1000:
            rows.append(_own_coins(kappa, problem_a9a, 1 if setting.quick else SEEDS))
    rows += _diana(problem)
    rows += [_adiana(problem), _fednl(problem)]
    rows += [row for name, ours in untuned(problem.dim).items() for row in _bits(name, ours, problem)]
    held = [row.ok for row in rows if row.ok is not None]
    words = {"Scaffnew": "10 clients sorted by label, γ = 1/L̄, p = √(l2/L̄), x = 0"}
    words |= {
        "DIANA": f"80 clients, l2 = 10⁻³, {DIANA_LEVELS} levels, α = {DIANA_ALPHA:g}, η = {DIANA_STEP:g}, x* + 0.1"
    }
    return Outcome(tuple(rows), words | {"counted": "published numbers"}, held=sum(held), draws=len(held))


def _rounds(gaps: Array) -> tuple[int | None, ...]:
    """The first round at which the gap is at most each error."""
    return tuple(first(gaps, error) for error in ERRORS)


def _words(rounds: tuple[int | None, ...]) -> str:
    return " / ".join("never" if one is None else str(one) for one in rounds)


def _run_sorted(
    given: SortedProblem,
    method: Method,
    plan: Plan,
    rounds: int,
    seed: int = 0,
    down_to: float = ERRORS[-1],
) -> Array:
    """f - f* over all rows after every round, until the mean of the clients' is well below `down_to`."""
    run = simulate(method, given.problem, plan, rounds, seed=seed, iterates=True, stop=Stop(gap=down_to / 2))
    return np.array([given.whole.gap(x) for x in run.iterates])


def _replayed(kappa: int, given: SortedProblem) -> list[Row]:
    steps = np.array(SCAFFNEW_STEPS[kappa])
    plan = Plan(np.broadcast_to(steps[:, None], (len(steps), given.problem.clients)), given.step)
    taken = _rounds(_run_sorted(given, algorithms.scaffnew(given.probability), plan, len(steps)))
    apart = max(abs((a or 10**6) - b) for a, b in zip(taken, SCAFFNEW_REPLAYED[kappa], strict=True))
    return [
        Row(
            f"Scaffnew, κ = {kappa}, logged steps: rounds to 10⁻⁴ / 10⁻⁶ / 10⁻⁸",
            _words(taken),
            f"{_words(SCAFFNEW_REPLAYED[kappa])} ± {NEAR} in NumPy; log: {_words(SCAFFNEW_LOGGED[kappa])}",
            apart <= NEAR,
        )
    ]


def _own_coins(kappa: int, given: SortedProblem, seeds: int) -> Row:
    plan = Plan(round(1 / given.probability), given.step)
    most = 2 * SCAFFNEW_LOGGED[kappa][1]
    taken = [
        first(_run_sorted(given, algorithms.scaffnew(), plan, most, seed, ERRORS[1]), ERRORS[1]) or most
        for seed in range(seeds)
    ]
    typical, logged = float(np.median(taken)), SCAFFNEW_LOGGED[kappa][1]
    return Row(
        f"Scaffnew, κ = {kappa}, own coins of {seeds} seeds: rounds to 10⁻⁶",
        f"{', '.join(map(str, taken))} (median {typical:g})",
        f"{logged} ± {SPREAD:.0%}",
        abs(typical / logged - 1) <= SPREAD,
    )


def _diana(problem: Logistic) -> list[Row]:
    method = algorithms.diana(quantize(DIANA_LEVELS), DIANA_ALPHA)
    run = simulate(
        method,
        problem,
        Plan(1, DIANA_STEP),
        4600,
        x0=problem.minimizer + 0.1,
        stop=Stop(gap=ERRORS[-1]),
        iterates=False,
    )
    taken = _rounds(run.gap)
    apart = max(abs((a or 10**6) / b - 1) for a, b in zip(taken, DIANA_ROUNDS, strict=True))
    rounds = taken[1] or run.rounds
    wire = 8 * run.bytes_up[rounds] / problem.clients
    entropy = _entropy(problem)
    d = problem.dim
    ways = {
        "on the wire": wire,
        "as its authors count": rounds * (DITHERED_ENTRY * d + 32),
        f"entropy-coded, {entropy:.2f} an entry": rounds * (entropy * d + 32),
        "as 32-bit floats": rounds * 32 * d,
    }
    return [
        Row(
            "DIANA: rounds to 10⁻⁴ / 10⁻⁶ / 10⁻⁸",
            _words(taken),
            f"{_words(DIANA_ROUNDS)} ± {CLOSE:.1%}",
            apart <= CLOSE,
        ),
        Row(
            f"DIANA: bits up a client to {BITS_TO[0]:g}",
            "; ".join(f"{bits:,.0f} {way}" for way, bits in ways.items()),
            f"{PUBLISHED_BITS['DIANA'][0]:,} as its authors count",
        ),
    ]


def _adiana(problem: Logistic) -> Row:
    """Its authors' code counts one of the two vectors that a message holds."""
    q = adiana_probability(problem, DITHERED_OMEGA)
    eta = adiana_steps(problem, DITHERED_OMEGA).eta * problem.smoothness / _whole_smoothness(problem)
    method = algorithms.adiana(quantize(DIANA_LEVELS), DIANA_ALPHA, q, strong_convexity=L2)
    run = _from_afar(method, problem, Plan(1, eta), ADIANA_MOST)
    each = DITHERED_ENTRY * problem.dim + 32
    return _published("ADIANA", run, [None if r is None else r * each for r in _reached(run)])


def _fednl(problem: Logistic) -> Row:
    """Its authors' code counts whole Hessians at the start and a Hessian difference in the first round too."""
    method = algorithms.fednl(low_rank(1), strong_convexity=L2)
    run = _from_afar(method, problem, Plan(1, 1.0), FEDNL_MOST)
    first_bits, each = 32 * triangle_size(problem.dim), 2 * 32 * problem.dim
    return _published("FedNL, rank 1", run, [None if r is None else first_bits + r * each for r in _reached(run)])


def _from_afar(method: Method, problem: Logistic, plan: Plan, rounds: int) -> Result:
    start = problem.minimizer + 0.1
    return simulate(method, problem, plan, rounds, x0=start, stop=Stop(gap=BITS_TO[-1]), iterates=False)


def _reached(run: Result) -> list[int | None]:
    return [first(run.gap, goal) for goal in BITS_TO]


def _published(name: str, run: Result, bits: list[float | None]) -> Row:
    """Bits up a client as the authors count them, beside what goes over our wire."""
    expected = PUBLISHED_BITS[name]
    wire = [None if r is None else 8 * run.bytes_up[r] / CLIENTS for r in _reached(run)]
    apart = max(abs((ours or 0) / theirs - 1) for ours, theirs in zip(bits, expected, strict=True) if theirs)
    ours, sent = (" / ".join("never" if one is None else f"{one:,.0f}" for one in way) for way in (bits, wire))
    return Row(
        f"{name}: bits up a client to {' / '.join(f'{goal:g}' for goal in BITS_TO)}",
        f"{ours} ({_words(tuple(_reached(run)))} rounds); {sent} on the wire",
        f"{' / '.join(f'{one:,}' for one in expected)} ± {NEARLY:.0%}, as its authors count",
        apart <= NEARLY,
    )


def _entropy(problem: Logistic) -> float:
    """Bits an entry of what DIANA sends, if an ideal coder knew how often each code occurs: of its first messages."""
    source = np.random.default_rng(0)
    signed = np.asarray(problem.sheet.X) * np.asarray(problem.sheet.y)[..., None]
    x, h, codes = problem.minimizer + 0.1, np.zeros((problem.clients, problem.dim)), []
    for _ in range(30):
        weight = 1 / (1 + np.exp(signed @ x)) / signed.shape[1]
        difference = -np.einsum("in,ind->id", weight, signed) + 1e-3 * x - h
        norm = np.linalg.norm(difference, axis=1, keepdims=True)
        scaled = np.abs(difference) / norm * DIANA_LEVELS
        code = np.sign(difference) * (np.floor(scaled) + (source.random(scaled.shape) < scaled % 1))
        codes.append(code)
        h += DIANA_ALPHA * norm * code / DIANA_LEVELS
        x = x - DIANA_STEP * (h.mean(axis=0) + (1 - DIANA_ALPHA) * np.mean(norm * code / DIANA_LEVELS, axis=0))
    share = np.unique(np.array(codes), return_counts=True)[1] / np.size(codes)
    return float(-np.sum(share * np.log2(share)))


def _whole_smoothness(problem: Logistic) -> float:
    """L of all rows together, without the penalty, as the authors' code takes it."""
    X = np.asarray(problem.sheet.X).reshape(-1, problem.dim)
    return float(np.linalg.norm(X, 2) ** 2 / (4 * len(X)))


def _bits(name: str, ours: Untuned, problem: Logistic) -> list[Row]:
    """What a method of ours sends on DIANA's problem, untuned."""
    plan = Plan(ours.tau, ours.reach / (ours.tau * _whole_smoothness(problem)))
    start = problem.minimizer + 0.1
    run = simulate(ours.method, problem, plan, MOST, x0=start, stop=Stop(gap=BITS_TO[-1]), iterates=False)
    up, down = (8 * part / problem.clients for part in (run.bytes_up, run.bytes_down))
    rows = []
    for goal in BITS_TO:
        rounds = first(run.gap, goal)
        words = f"not in {run.rounds} rounds"
        if rounds is not None:
            later = rounds - 1
            words = (
                f"{up[rounds]:,.0f} on the wire (down {down[rounds]:,.0f}); "
                f"{up[1] + later * ours.coded:,.0f} entropy-coded; {up[1] + later * ours.floats:,.0f} as 32-bit floats"
            )
        rows.append(Row(f"{name}, τ = {ours.tau}: bits up a client to {goal:g}", words, BEFORE.get((name, goal), "")))
    return rows
