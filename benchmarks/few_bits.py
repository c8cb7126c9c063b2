"""Which FedLin needs the fewest bits: everything that was tried, on one problem and under one tuning rule.

The problem is that of FedNL's authors (a9a, 80 clients, start at x* + 0.1), the goal a gap of 10⁻¹⁰. Variants are plain
NumPy, so that what is not worth shipping can be tried too; the methods that ship are held to loops like these by their
tests. Bits are those of one client, up and down, as `fedlin.count_bits` counts in the way "floats". Every variant runs
with every setting of its grid, and the one with the fewest bits counts.

    python -m benchmarks.few_bits     writes benchmarks/results/few_bits.json; what is stored is not run again
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from math import ceil, log2, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.special import expit

import fedlin
from fedlin.claims.common.published import dealt_a9a
from fedlin.result import first

Array = NDArray[np.float64]
RESULTS = Path(__file__).parent / "results" / "few_bits.json"
GOALS = (1e-4, 1e-6, 1e-10)  # f - f*
MOST = 1500  # rounds
SLOWEST = 1e3  # the largest κ that FedLin by itself is tried at
WHOLE = 32  # bits of a number that is not compressed


class Regression:
    """Logistic regression whose clients are blocks of one sparse matrix, so that all take a step at once."""

    def __init__(self, X: Array, y: Array, l2: float, minimizer: Array) -> None:
        self.clients, self.rows, self.dim = X.shape
        self.given, self.l2, self.minimizer = (X, y), l2, minimizer
        signed = X * y[..., None]
        self.blocks = sparse.block_diag([sparse.csr_matrix(part) for part in signed], format="csr")
        self.blocks_transposed = self.blocks.T.tocsr()
        self.all = sparse.csr_matrix(signed.reshape(-1, self.dim))
        self.outer = [_outer_products(part) for part in X]
        self.smoothness = float(sparse.linalg.svds(self.all, 1)[1][0] ** 2) / (4 * self.rows * self.clients) + l2

    def grads(self, x: Array) -> Array:
        """∇f_i at one model for all clients, or at one for each."""
        each = np.broadcast_to(x, (self.clients, self.dim))
        slope = -expit(-(self.blocks @ each.ravel())) / self.rows
        return np.asarray((self.blocks_transposed @ slope).reshape(self.clients, -1) + self.l2 * each)

    def newton(self, x: Array, g: Array) -> Array:
        """∇²f_i(x_i)⁻¹ g_i."""
        each = np.broadcast_to(x, (self.clients, self.dim))
        chance = expit(self.blocks @ each.ravel()).reshape(self.clients, -1)
        bend = chance * (1 - chance) / self.rows
        H = np.array([(outer @ b).reshape(self.dim, -1) for outer, b in zip(self.outer, bend, strict=True)])
        H += self.l2 * np.eye(self.dim)
        return np.linalg.solve(H, np.broadcast_to(g, each.shape)[..., None])[..., 0]

    def gap(self, x: Array) -> float:
        """f(x) - f*, without cancellation."""
        here, there = np.asarray(self.all @ x), np.asarray(self.all @ self.minimizer)
        chance, move = expit(-there), here - there
        above = np.log1p(chance * np.expm1(-move)) + chance * move
        return float(np.mean(above) + self.l2 / 2 * np.sum((x - self.minimizer) ** 2))


def _outer_products(X: Array) -> Any:
    """Every row's outer product with itself as a column: a Hessian is this times one number a row."""
    return sparse.csr_matrix(np.einsum("ij,ik->ijk", X, X).reshape(len(X), -1)).T.tocsr()


class Encoding(NamedTuple):
    """How a vector travels, and what that costs."""

    name: str
    encode: Callable[[Array], Array]  # of the last axis
    bits: Callable[[int], int]  # of a vector of d entries


def whole() -> Encoding:
    """As it is."""
    return Encoding("32 bits", lambda v: v, lambda d: WHOLE * d)


def half() -> Encoding:
    """In half precision, scaled by a power of two."""

    def encode(v: Array) -> Array:
        scale = np.exp2(np.ceil(np.log2(np.max(np.abs(v), axis=-1, keepdims=True) + 1e-300)))
        return np.asarray((v / scale).astype(np.float16) * scale)

    return Encoding("16 bits", encode, lambda d: 16 * d + 16)


def nearest(bits: int) -> Encoding:
    """To the nearest of 2^{b-1} - 1 multiples of the largest magnitude's share, of either sign."""
    levels = 2 ** (bits - 1) - 1

    def encode(v: Array) -> Array:
        unit = np.max(np.abs(v), axis=-1, keepdims=True) / levels
        return np.asarray(np.rint(v / np.where(unit > 0, unit, 1)) * unit)

    return Encoding(f"{bits} bits", encode, lambda d: bits * d + WHOLE)


def top(k: int) -> Encoding:
    """The k largest entries in half precision."""

    def encode(v: Array) -> Array:
        order = np.argsort(-np.abs(v), axis=-1, kind="stable")[..., :k]
        kept = np.zeros_like(v)
        np.put_along_axis(kept, order, half().encode(np.take_along_axis(v, order, -1)), -1)
        return kept

    return Encoding(f"{k} entries", encode, lambda d: k * (16 + ceil(log2(d))) + 16)


class Ways(NamedTuple):
    """How the four messages travel."""

    uplink: Encoding
    downlink: Encoding
    model_uplink: Encoding
    model_downlink: Encoding


def all_four(encoding: Encoding) -> Ways:
    """The same for every message."""
    return Ways(encoding, encoding, encoding, encoding)


def apart(up: Encoding, down: Encoding) -> Ways:
    """One for messages up, one for those down."""
    return Ways(up, down, up, down)


class Variant(NamedTuple):
    """A FedLin: its local work, what the server makes of the mean move, and how the four messages travel."""

    tau: int
    step: float  # η̄L of gradient steps; η of Newton's
    newton: bool = False
    momentum: float | str = 0.0  # β, or "restart" for one that grows until the move turns back, or "anderson"
    ways: Ways = all_four(half())
    every: int = 1  # in how many rounds gradients are exchanged once
    one_exchange: bool = False  # both vectors in one message: local steps take the mean gradient of the round before
    opens_in_full: bool = True
    pull: float = 0.0  # λ of Catalyst
    inner: int = 1  # rounds between two of Catalyst's centres


class Outcome(NamedTuple):
    """Rounds and bits to every goal, None where it was not reached."""

    rounds: list[int | None]
    bits_up: list[int | None]
    bits: list[int | None]


class Accelerator:
    """What the server makes of the mean moves: the next point from the last, and what it remembers."""

    def __init__(self, kind: float | str) -> None:
        self.kind = kind
        self.ahead: Array | float = 0.0  # v
        self.age = 1.0  # of a momentum that grows
        self.points: list[Array] = []
        self.moves: list[Array] = []

    def next_move(self, x: Array, move: Array) -> Array:
        """From a round that began at x and would end at x + move, to where the next begins, less x."""
        if self.kind == "anderson":
            return self._anderson(x, move)
        beta = self.kind
        if beta == "restart":
            if np.sum(self.ahead * move) < 0:  # momentum points against the move: begin anew
                self.age, self.ahead = 1.0, 0.0
            older, self.age = self.age, (1 + sqrt(1 + 4 * self.age**2)) / 2
            beta = (older - 1) / self.age
        assert isinstance(beta, float)
        self.ahead = beta * (move + self.ahead)
        return np.asarray(move + self.ahead)

    def _anderson(self, x: Array, move: Array, memory: int = 5) -> Array:
        self.points, self.moves = [*self.points, x][-memory - 1 :], [*self.moves, move][-memory - 1 :]
        if len(self.points) < 2:
            return move
        of_points, of_moves = (np.diff(kept, axis=0).T for kept in (self.points, self.moves))
        weights = np.linalg.lstsq(of_moves, move, rcond=None)[0]
        return np.asarray(move - (of_points + of_moves) @ weights)


def run(
    problem: Regression, variant: Variant, start: Array, goals: tuple[float, ...] = GOALS, most: int = MOST
) -> Outcome:
    """Rounds until the last goal, or the most there are."""
    up_g, down_g, up_x, down_x = variant.ways
    d, x = problem.dim, start
    known = np.zeros((problem.clients, d))  # the gradients, as the server knows them
    shift = fresh = np.zeros_like(known)  # g - ∇f_i(x̄) of this round's local steps, and as the last exchange left it
    server, center, ahead = Accelerator(variant.momentum), start, start  # of Catalyst: y, and the model it came from
    ratio = problem.l2 / (problem.l2 + variant.pull)  # q of Catalyst
    spent = np.zeros(2)  # up, down
    found: list[tuple[int, float, float] | None] = [None] * len(goals)
    for t in range(most):
        own = problem.grads(x) + variant.pull * (x - center)
        if t % variant.every == 0:
            full = t == 0 and variant.opens_in_full
            known = known + (own - known if full else up_g.encode(own - known))
            newest = (known.mean(axis=0) if full else down_g.encode(known.mean(axis=0))) - own
            shift, fresh = (newest if t == 0 or not variant.one_exchange else fresh), newest
            spent += [(whole() if full else up_g).bits(d), (whole() if full else down_g).bits(d)]
        y = np.broadcast_to(x, known.shape)
        for _ in range(variant.tau):
            slope = problem.grads(y) + variant.pull * (y - center) + shift
            y = y - (variant.step * problem.newton(y, slope) if variant.newton else _scaled(problem, variant, slope))
        full = t == 0 and variant.opens_in_full
        move = (y - x if full else up_x.encode(y - x)).mean(axis=0)
        x = x + down_x.encode(server.next_move(x, move))
        spent += [(whole() if full else up_x).bits(d), (whole() if t == 0 else down_x).bits(d)]
        if variant.pull and (t + 1) % variant.inner == 0:
            root = sqrt(ratio)
            ahead, center = x, x + (1 - root) / (1 + root) * (x - ahead)
        gap = problem.gap(x)
        for number, goal in enumerate(goals):
            if found[number] is None and gap < goal:
                found[number] = (t + 1, spent[0], spent.sum())
        if found[-1] is not None or not gap < 1e3:
            break
    columns = [[None if one is None else int(one[k]) for one in found] for k in range(3)]
    return Outcome(columns[0], columns[1], columns[2])


def _scaled(problem: Regression, variant: Variant, slope: Array) -> Array:
    return np.asarray(variant.step / (problem.smoothness * variant.tau) * slope)


@cache
def authors_problem() -> Regression:
    """a9a as FedNL's authors deal it."""
    problem = dealt_a9a()
    assert problem is not None, "a9a.gz was not found: set FEDLIN_DATA to its folder"
    sheet = problem.sheet
    return Regression(np.asarray(sheet.X), np.asarray(sheet.y), problem.strong_convexity, problem.minimizer)


def momentum_of(kappa: float, step: float) -> float:
    """β = (1 - √q)/(1 + √q) with q = η̄μ."""
    root = sqrt(step / kappa)
    return (1 - root) / (1 + root)


def variants(kappa: float) -> Iterator[tuple[str, str, Variant]]:
    """What was tried: the variant's name, the setting, and the variant."""
    changes = apart(top(8), nearest(5))
    for step in (2.0, 4.0, 8.0):
        yield "FedLin", f"10 steps, η̄ = {step:g}/L", Variant(10, step)
        yield "FedLin, 8 entries up, 5 bits down", f"10 steps, η̄ = {step:g}/L", Variant(10, step, ways=changes)
        yield (
            "Gradients exchanged in every other round",
            f"10 steps, η̄ = {step:g}/L",
            Variant(10, step, every=2),
        )
        yield "One exchange a round", f"10 steps, η̄ = {step:g}/L", Variant(10, step, one_exchange=True)
    for tau, step in ((1, 1.0), (5, 1.0), (5, 2.0), (20, 2.0), (20, 4.0)):
        words = f"{tau} steps, η̄ = {step:g}/L"
        beta = momentum_of(kappa, step)
        yield "Nesterov's momentum", words, Variant(tau, step, momentum=beta)
        yield "Nesterov's momentum, 8 bits", words, Variant(tau, step, momentum=beta, ways=all_four(nearest(8)))
        yield "Momentum that restarts itself", words, Variant(tau, step, momentum="restart")
        yield "Anderson's acceleration, 5 rounds", words, Variant(tau, step, momentum="anderson")
    for pull, inner in product((0.03, 0.1, 0.3), (2, 5)):
        words = f"λ = {pull:g}, {inner} rounds a centre, 10 steps, η̄ = 4/L"
        yield "Catalyst", words, Variant(10, 4.0, pull=pull, inner=inner)
    for tau in (100, 300, 1000, 3000):
        yield "Many local steps", f"{tau} steps of 1/L", Variant(tau, float(tau))
    for tau in (300, 1000):
        yield "Many local steps, 8 bits", f"{tau} steps of 1/L", Variant(tau, float(tau), ways=all_four(nearest(8)))
    for tau, step in ((1, 0.8), (2, 0.55)):
        words = f"{tau} Newton steps, η = {step:g}"
        yield "Newton's local steps", words, Variant(tau, step, newton=True)
        for bits in (8, 7, 6, 5):
            yield (
                "Newton's local steps, few bits",
                f"{words}, {bits} bits",
                Variant(tau, step, newton=True, opens_in_full=False, ways=all_four(nearest(bits))),
            )
        for up, down in product((5, 6), (6, 8)):
            yield (
                "Newton's local steps, fewer bits up than down",
                f"{words}, {up} up, {down} down",
                Variant(tau, step, newton=True, opens_in_full=False, ways=apart(nearest(up), nearest(down))),
            )
        for k in (31, 62):
            yield (
                "Newton's local steps, some entries up",
                f"{words}, {k} entries up, 8 bits down",
                Variant(tau, step, newton=True, ways=apart(top(k), nearest(8))),
            )
        yield (
            "Newton's local steps, whole vectors down",
            f"{words}, 8 bits up",
            Variant(tau, step, newton=True, opens_in_full=False, ways=apart(nearest(8), whole())),
        )
        yield (
            "Newton's local steps, Anderson's acceleration",
            f"{tau} Newton steps, η = 1, 8 bits",
            Variant(tau, 1.0, newton=True, momentum="anderson", opens_in_full=False, ways=all_four(nearest(8))),
        )


def shipped() -> Iterator[tuple[str, str, Outcome]]:
    """The methods of the package, as its engine runs them, and the second-order method to beat."""
    problem = dealt_a9a()
    assert problem is not None
    newton, start = fedlin.Plan(1, 1.0), problem.minimizer + 0.1
    rank, narrow = fedlin.low_rank(1), fedlin.cast("float16")
    rank_narrow, up = fedlin.low_rank(1, narrow), fedlin.innovation(narrow)
    yield "FedNL, rank 1", "whole Hessians at the start", _played(fedlin.fednl(rank), newton, problem, start)
    for words, opening in {
        "whole Hessians at the start": narrow,
        "2000 entries of each Hessian at the start": fedlin.cast("float16", fedlin.top_k(2000)),
    }.items():
        learned = fedlin.fednl(rank_narrow, start=opening, uplink=up)
        yield "FedNL, rank 1, half precision", words, _played(learned, newton, problem, start)
    for tau, bits in product((1, 2), (16, 8, 6)):
        encoder = narrow if bits == 16 else fedlin.nearest(2 ** (bits - 1) - 1)
        rest = dict.fromkeys(("downlink", "model_uplink", "model_downlink"), fedlin.plain(encoder))
        method = fedlin.fedlin_newton(uplink=fedlin.innovation(encoder), **rest)
        plan = fedlin.theory.fedlin_newton(problem, tau, start)
        words = f"{tau} Newton steps, η = {float(plan.eta):.3f}, {bits} bits"
        yield "fedlin_newton at the steps of its theory", words, _played(method, plan, problem, start)


def _played(method: Any, plan: fedlin.Plan, problem: Any, start: Array) -> Outcome:
    """What the engine's run came to; from the second round on all messages have one size."""
    ran = fedlin.simulate(method, problem, plan, 60, x0=start, stop=fedlin.Stop(gap=GOALS[-1]), iterates=False)
    counts = fedlin.count_bits(method, problem, plan, 2, x0=start)
    rounds = [first(ran.gap, goal) for goal in GOALS]

    def spent(direction: str) -> list[int | None]:
        _, one, two = counts.bits("floats", direction)
        return [None if t is None else int(one + (two - one) * (t - 1)) for t in rounds]

    return Outcome(rounds, spent("up"), spent("both"))


@cache
def scaled_problem(kappa: float, draw: int) -> Regression:
    """20 clients of 100 rows with centres and truths of their own; 20 features of sizes from 1 to √10/κ, l2 = L/κ."""
    source = np.random.default_rng(draw)
    clients, rows, dim = 20, 100, 20
    X = source.standard_normal((clients, rows, dim)) + 0.3 * source.standard_normal((clients, 1, dim))
    X *= np.logspace(0, -0.5 * np.log10(kappa / 10), dim)
    truth = source.standard_normal(dim) + 0.3 * source.standard_normal((clients, 1, dim))
    y = np.where(source.random((clients, rows)) < expit(np.sum(X * truth, axis=-1)), 1.0, -1.0)
    l2 = float(np.linalg.norm(X.reshape(-1, dim), 2) ** 2 / (4 * clients * rows * (kappa - 1)))
    return Regression(X, y, l2, fedlin.problems.logistic(X, y, l2=l2).minimizer)


def against_kappa() -> Iterator[dict[str, Any]]:
    """Rounds and bits to 10⁻¹⁰ of the first gap, as κ grows; half precision, steps of the methods' theories."""
    for kappa, draw in product((1e2, 1e3, 1e4, 1e5), range(3)):
        problem = scaled_problem(kappa, draw)
        start = np.zeros(problem.dim)
        spread = fedlin.theory.fedlin_newton(fedlin.problems.logistic(*problem.given, l2=problem.l2))
        goals = (1e-10 * problem.gap(start),)
        tried = {
            "FedLin": Variant(5, 1.0),
            "FedLin with momentum": Variant(5, 1.0, momentum=momentum_of(kappa, 1 - (1 - 1 / 5) ** 5)),
            "FedLin with Newton's steps": Variant(1, float(spread.eta), newton=True, opens_in_full=False),
        }
        for name, variant in tried.items():
            if name == "FedLin" and kappa > SLOWEST:
                continue
            outcome = run(problem, variant, start, goals, most=40_000)
            print(kappa, draw, name, outcome.rounds, outcome.bits, flush=True)
            yield {"kappa": kappa, "draw": draw, "method": name, "rounds": outcome.rounds[0], "bits": outcome.bits[0]}


def main() -> None:
    """Run what has not been run yet, and store every part as soon as it is known."""
    problem, given = authors_problem(), dealt_a9a()
    assert given is not None
    start = problem.minimizer + 0.1
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known = {(row["variant"], row["setting"]): row for row in stored.get("runs", [])}
    found: dict[str, Any] = {"goals": GOALS, "most": MOST, "kappa of a9a": problem.smoothness / problem.l2}
    found |= {"spread of a9a": fedlin.theory.curvature_spread(given, start)}
    found |= {name: stored.get(name, []) for name in ("shipped", "kappa", "runs")}

    def keep(name: str, rows: list[dict[str, Any]]) -> None:
        found[name] = rows
        RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")

    keep("shipped", found["shipped"] or [_row(*one) for one in shipped()])
    keep("kappa", found["kappa"] or list(against_kappa()))
    wanted = list(variants(problem.smoothness / problem.l2))
    for name, setting, variant in wanted:
        if (name, setting) not in known:
            known[name, setting] = _row(name, setting, run(problem, variant, start))
            keep("runs", [*found["runs"], known[name, setting]])
    keep("runs", [known[name, setting] for name, setting, _ in wanted])


def _row(name: str, setting: str, outcome: Outcome) -> dict[str, Any]:
    print(name, setting, outcome.rounds, outcome.bits, flush=True)
    return {"variant": name, "setting": setting, **outcome._asdict()}


if __name__ == "__main__":
    main()
