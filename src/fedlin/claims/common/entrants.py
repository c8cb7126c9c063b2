"""The methods that are compared on bits: one line each, with the variants it may choose from.

Sizes of compressors are shares of the dimension d, one twentieth and one fifth, and local steps 10 and 40, for all
methods that have them; whatever a method sends whole it may send in half precision as well (`narrow`). So every method
has up to three variants. `tune_entrants` chooses one of them and the step.
"""

from collections.abc import Callable, Mapping
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedlin import algorithms, theory
from fedlin.algorithms.momentum import momentum
from fedlin.claims.common.fewer_bits import CHANGE, OWN, VALUE, Kinds, narrow
from fedlin.compressors import Compressor, cast, natural, nearest, quantize, rand_k, top_k
from fedlin.core import Method
from fedlin.engines.messages import message_bits
from fedlin.links import Link, error_feedback, innovation, plain
from fedlin.matrices import MatrixCompressor, low_rank
from fedlin.plan import Plan
from fedlin.problems.problem import Problem
from fedlin.theory.accelerated_steps import mask_share

FEW, MANY = 10, 40  # local steps
MOST_ROUNDS, MOST_PASSES = 3000, 12000  # that a run may take, and its passes over the data
NEWTON_ROUNDS = 100
PROXIMAL_PASSES = 120  # that a proximal step by Newton's method takes
HALF, LEVELS = cast("float16"), innovation(quantize(15))
V, C, S = (VALUE,), (CHANGE,), (OWN,)


class Variant(NamedTuple):
    """A method with its compressors, its mean number of local steps, and the share of clients that answer."""

    method: Method
    tau: ArrayLike = 1
    participation: float = 1.0
    steps: float = 1.0  # passes of a round where τ does not say, on average

    @property
    def passes(self) -> int:
        """Passes over the data in a round."""
        return int(max(self.steps, np.max(self.tau)))


class Entrant(NamedTuple):
    """What a method may choose from, and what its step is a multiple of; `ours` are settings that no paper has.

    A method that asks for Hessians is `newton`.
    """

    variants: Callable[[Problem], dict[str, Variant]]
    unit: Callable[[Problem], float] = lambda problem: 1 / problem.smoothness
    newton: bool = False
    ours: bool = False

    def most(self, variant: Variant) -> int:
        """The rounds that a run may take, by the passes over the data of each."""
        return NEWTON_ROUNDS if self.newton else min(MOST_ROUNDS, MOST_PASSES // variant.passes)

    def work(self, problem: Problem) -> float:
        """What a round takes besides gradients, in gradients: a Hessian d/2, a proximal step ten Hessians."""
        return problem.dim / 2 * (10 if self.unit is proximal else self.newton)

    @property
    def fixed(self) -> bool:
        """Whether the step is Newton's, and not tuned."""
        return self.unit is one

    def plan(self, problem: Problem, variant: Variant, multiple: float) -> Plan:
        """The plan at a multiple of the unit."""
        return Plan(variant.tau, multiple * self.unit(problem))


def _size(problem: Problem, share: int) -> int:
    return max(1, ceil(problem.dim / share))


def _half(method: Method, *vectors: tuple[Kinds, Kinds]) -> Method:
    return narrow(method, "float16", vectors)


def _stepping(make: Callable[[], Method], *vectors: tuple[Kinds, Kinds]) -> Callable[[Problem], dict[str, Variant]]:
    """A method of whole vectors with few and many local steps, and in half precision."""
    return lambda problem: {
        f"τ = {FEW}": Variant(make(), FEW),
        f"τ = {MANY}": Variant(make(), MANY),
        f"τ = {MANY}, half": Variant(_half(make(), *vectors), MANY),
    }


def _plain(make: Callable[[], Method], *vectors: tuple[Kinds, Kinds]) -> Callable[[Problem], dict[str, Variant]]:
    """A method without local steps, as it is and in half precision."""
    return lambda problem: {"whole": Variant(make()), "half": Variant(_half(make(), *vectors))}


def _sparse_fedlin(problem: Problem) -> dict[str, Variant]:
    few, more = _size(problem, 20), _size(problem, 5)
    return {
        f"TOP-{few}, τ = {FEW}": Variant(algorithms.compressed(few), FEW),
        f"TOP-{more}, τ = {FEW}": Variant(algorithms.compressed(more), FEW),
        f"TOP-{more} down alone, τ = {FEW}": Variant(algorithms.fedlin(downlink=plain(top_k(more))), FEW),
    }


def _innovative_fedlin(problem: Problem) -> dict[str, Variant]:
    def links(share: int) -> Method:
        sparse = cast("float16", top_k(_size(problem, share)))
        return algorithms.fedlin(
            uplink=innovation(sparse), downlink=LEVELS, model_uplink=error_feedback(sparse), model_downlink=LEVELS
        )

    few, more = _size(problem, 20), _size(problem, 5)
    return {
        f"{few} up, τ = {FEW}": Variant(links(20), FEW),
        f"{more} up, τ = {FEW}": Variant(links(5), FEW),
        f"{more} up, τ = {MANY}": Variant(links(5), MANY),
    }


def _fedlin_of(link: Link) -> Callable[[Problem], dict[str, Variant]]:
    """FedLin with one link on all four messages, few and many local steps."""

    def variants(problem: Problem) -> dict[str, Variant]:
        method = algorithms.fedlin(uplink=link, downlink=link, model_uplink=link, model_downlink=link)
        return {f"τ = {tau}": Variant(method, tau) for tau in (FEW, MANY)}

    return variants


def _gradskip(problem: Problem) -> dict[str, Variant]:
    method = algorithms.gradskip(theory.gradskip_probability(problem))
    tau = theory.gradskip(problem).tau
    return {"whole": Variant(method, tau), "half": Variant(_half(method, (V, V)), tau)}


def _compressed_scaffnew(problem: Problem) -> dict[str, Variant]:
    def variant(share: int) -> Variant:
        sparsity = max(2, problem.clients // share)
        tau = max(1, int(sqrt(mask_share(problem.clients, sparsity) * problem.condition / 2)))
        return Variant(algorithms.compressed_scaffnew(problem.clients, sparsity), tau)

    few, more = variant(20), variant(5)
    half = _half(more.method, (V, S))
    return {"m/20 clients an entry": few, "m/5 clients an entry": more, "m/5, half": Variant(half, more.tau)}


def _locodl(problem: Problem) -> dict[str, Variant]:
    def variant(compressor: Compressor, omega: float, half: bool = False) -> Variant:
        p, pace = theory.locodl_probability(problem, omega), theory.locodl_pace(problem, omega)
        made = algorithms.locodl(compressor, p, pace, strong_convexity=problem.strong_convexity)
        return Variant(_half(made, (V, S)) if half else made, steps=1 / p)

    more = _size(problem, 5)
    return {
        "powers of two": variant(natural(), 1 / 8),
        "powers of two, half": variant(natural(), 1 / 8, half=True),
        f"{more} random": variant(rand_k(more, unbiased=True), problem.dim / more - 1),
    }


def _diana(problem: Problem) -> dict[str, Variant]:
    levels, more = ceil(sqrt(problem.dim)), _size(problem, 5)
    dithered = algorithms.diana(quantize(levels), 0.5)
    return {
        f"{levels} levels": Variant(dithered),
        f"{levels} levels, half": Variant(_half(dithered, (V, S))),
        f"{more} random": Variant(algorithms.diana(rand_k(more, unbiased=True), more / problem.dim)),
    }


def _adiana(problem: Problem) -> dict[str, Variant]:
    def method(compressor: Compressor, omega: float) -> Method:
        q = theory.adiana_probability(problem, omega)
        return algorithms.adiana(compressor, 1 / (1 + omega), q, strong_convexity=problem.strong_convexity)

    levels, more = ceil(sqrt(problem.dim)), _size(problem, 5)
    dithered = method(quantize(levels), 1.0)
    return {
        f"{levels} levels": Variant(dithered),
        f"{levels} levels, half": Variant(_half(dithered, (V + V, S + S))),
        f"{more} random": Variant(method(rand_k(more, unbiased=True), problem.dim / more - 1)),
    }


def _marina(problem: Problem) -> dict[str, Variant]:
    """With p a compressed message's share of the bits of a whole one, as in its paper."""

    def method(compressor: Compressor) -> Method:
        (whole, _), (part, _) = message_bits(algorithms.marina(compressor, 0.5), problem)
        return algorithms.marina(compressor, part / whole)

    levels, more = ceil(sqrt(problem.dim)), _size(problem, 5)
    dithered = method(quantize(levels))
    return {
        f"{levels} levels": Variant(dithered),
        f"{levels} levels, half": Variant(_half(dithered, (V, S))),
        f"{more} random": Variant(method(rand_k(more, unbiased=True))),
    }


def _ef21(problem: Problem) -> dict[str, Variant]:
    few, more = _size(problem, 20), _size(problem, 5)
    return {
        f"TOP-{few}": Variant(algorithms.ef21(top_k(few))),
        f"TOP-{more}": Variant(algorithms.ef21(top_k(more))),
        f"TOP-{few}, half": Variant(_half(algorithms.ef21(top_k(few)), (V, S))),
    }


def _fednl(problem: Problem, **options: Any) -> dict[str, Variant]:
    mu = problem.strong_convexity
    compressors: dict[str, Compressor | MatrixCompressor]
    compressors = {"rank 1": low_rank(1), "rank 4": low_rank(4), "TOP-d": top_k(problem.dim)}
    return {name: Variant(algorithms.fednl(one, strong_convexity=mu, **options)) for name, one in compressors.items()}


def _searching_fednl(problem: Problem) -> dict[str, Variant]:
    return {"rank 1": _fednl(problem, line_search=True)["rank 1"]}


def _partial_fednl(problem: Problem) -> dict[str, Variant]:
    return {"rank 1, half of the clients": Variant(algorithms.fednl_pp(low_rank(1)), participation=0.5)}


def _half_fednl(problem: Problem) -> dict[str, Variant]:
    """Hessian differences of rank 1, gradients and the model's moves in half precision; the start as it says."""

    def method(start: Any) -> Method:
        made = algorithms.fednl(
            low_rank(1, HALF), start=start, uplink=innovation(HALF), strong_convexity=problem.strong_convexity
        )
        return _half(made, (V, S))

    starts = {"whole start": HALF} | {
        f"{n}d entries at the start": cast("float16", top_k(n * problem.dim)) for n in (16, 4)
    }
    return {name: Variant(method(start)) for name, start in starts.items()}


def _newton_fedlin(problem: Problem) -> dict[str, Variant]:
    """FedLin with a Newton step at each client: changes of gradients up, and all else that is sent vanishes."""

    def of(compressor: Compressor) -> Variant:
        sent = plain(compressor)
        links = {"downlink": sent, "model_uplink": sent, "model_downlink": sent}
        return Variant(algorithms.fedlin_newton(uplink=innovation(compressor), **links))

    return {"6 bits": of(nearest(31)), "8 bits": of(nearest(127)), "16 bits": of(HALF)}


def _momentum(problem: Problem) -> dict[str, Variant]:
    """FedLin with Nesterov's momentum around its rounds, whole and with 8 bits an entry."""
    beta = theory.momentum_factor(problem, FEW)
    codes = innovation(nearest(127))
    small = algorithms.fedlin(uplink=codes, downlink=codes, model_uplink=codes)
    return {
        f"τ = {FEW}": Variant(momentum(algorithms.fedlin(), beta), FEW),
        f"8 bits, τ = {FEW}": Variant(momentum(small, beta), FEW),
    }


def _tamuna(problem: Problem) -> dict[str, Variant]:
    """Half of the clients a round."""
    cohort = max(2, problem.clients // 2)

    def variant(share: int) -> Variant:
        sparsity = max(2, cohort // share)
        tau = int(np.max(theory.tamuna(problem, sparsity).tau))
        return Variant(algorithms.tamuna(problem.clients, cohort, sparsity), tau, cohort / problem.clients)

    return {"c/20 clients an entry": variant(20), "c/5 clients an entry": variant(5)}


def _fedsplit(problem: Problem) -> dict[str, Variant]:
    whole = algorithms.fedsplit()
    return {
        "whole": Variant(whole, steps=PROXIMAL_PASSES),
        "half": Variant(_half(whole, (V, C)), steps=PROXIMAL_PASSES),
    }


def proximal(problem: Problem) -> float:
    """1/√(Lμ)."""
    return 1 / sqrt(problem.smoothness * problem.strong_convexity)


def one(problem: Problem) -> float:
    """Newton's step."""
    return 1.0


def curvature_step(problem: Problem) -> float:
    """That of the theory, by how much the clients' curvatures differ."""
    return float(np.max(theory.fedlin_newton(problem).eta))


ENTRANTS: Mapping[str, Entrant] = {
    "gradient descent": Entrant(_plain(algorithms.gradient_descent, (V, V))),
    "FedAvg": Entrant(lambda problem: {f"τ = {FEW}": Variant(algorithms.fedavg(), FEW)}),
    "FedLin": Entrant(lambda problem: {f"τ = {tau}": Variant(algorithms.fedlin(), tau) for tau in (FEW, MANY)}),
    "FedLin, TOP-k": Entrant(_sparse_fedlin),
    "FedLin, 5 bits": Entrant(_fedlin_of(LEVELS), ours=True),
    "FedLin, half": Entrant(_fedlin_of(innovation(HALF)), ours=True),
    "FedLin, few up": Entrant(_innovative_fedlin, ours=True),
    "FedLin, momentum": Entrant(_momentum, ours=True),
    "FedLin, Newton": Entrant(_newton_fedlin, curvature_step, newton=True, ours=True),
    "SCAFFOLD": Entrant(_stepping(algorithms.scaffold, (V + V, C + C))),
    "Scaffnew": Entrant(_stepping(algorithms.scaffnew, (V, V))),
    "GradSkip": Entrant(_gradskip),
    "CompressedScaffnew": Entrant(_compressed_scaffnew),
    "TAMUNA": Entrant(_tamuna),
    "LoCoDL": Entrant(_locodl),
    "DIANA": Entrant(_diana),
    "ADIANA": Entrant(_adiana),
    "MARINA": Entrant(_marina),
    "EF21": Entrant(_ef21),
    "FedSplit": Entrant(_fedsplit, unit=proximal),
    "FedNL": Entrant(_fednl, one, newton=True),
    "FedNL, line search": Entrant(_searching_fednl, one, newton=True),
    "FedNL-PP": Entrant(_partial_fednl, one, newton=True),
    "FedNL, half": Entrant(_half_fednl, one, newton=True, ours=True),
}
