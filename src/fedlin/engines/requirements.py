"""What an algorithm requires of a run, asked for before anything is compiled."""

import numpy as np

from fedlin.aggregation import Aggregator, mean
from fedlin.checks import instance_of
from fedlin.core import Array, Method, Requirement
from fedlin.errors import ArgumentError, PlanError, UnknownError
from fedlin.problems.problem import Problem

ANY_COHORT = "fedlin.scaffold() or fedlin.fedlin(uplink=fedlin.innovation(fedlin.identity()))"
_ANY_PLAN = "fedlin.fedlin() or fedlin.scaffold(), which take any"


def check_plan(algorithm: Method, tau: Array, eta: Array) -> None:
    """Refuse τ_i and η_i that the algorithm cannot work with."""
    if Requirement.ONE_STEP_SIZE in algorithm.requires and np.any(eta != eta[..., :1]):
        raise PlanError(
            f"{algorithm.name} needs {Requirement.ONE_STEP_SIZE}, and the plan's range from {eta.min():.3g} to "
            f"{eta.max():.3g}: give Plan(tau=..., eta=one number), or use {_ANY_PLAN}."
        )
    if Requirement.ONE_STEP_COUNT in algorithm.requires and np.any(tau != tau[..., :1]):
        raise PlanError(
            f"{algorithm.name} needs {Requirement.ONE_STEP_COUNT}, and the plan's range from {tau.min()} to "
            f"{tau.max()}: give Plan(tau=one number, eta=...), or use {_ANY_PLAN}."
        )


def check_oracle(algorithm: Method, problem: Problem) -> None:
    """Refuse a problem without the proximal operator or the second derivatives that the algorithm needs."""
    if Requirement.PROX in algorithm.requires and problem.objective.prox is None:
        raise ArgumentError(
            f"{algorithm.name} needs {Requirement.PROX}, and {problem!r} has none: give steps= to replace it by "
            "gradient steps."
        )
    if Requirement.HESSIAN in algorithm.requires and problem.objective.outside:
        raise ArgumentError(
            f"{algorithm.name} needs {Requirement.HESSIAN}, and {problem!r} is computed by another library, which "
            "gives gradients alone: write the loss in JAX (fedlin.problems.from_loss), or use a method of first order "
            "such as fedlin.fedlin() or fedlin.scaffnew()."
        )


def check_clients(algorithm: Method, weights: Array) -> None:
    """Refuse clients of whom there are too many or too few, or who count differently, where that matters."""
    if algorithm.clients is not None and algorithm.clients != len(weights):
        raise ArgumentError(
            f"{algorithm.name} is made for {algorithm.clients} clients, and there are {len(weights)}: give "
            f"clients={len(weights)}, or use fedlin.scaffnew() or fedlin.fedlin(), which serve any number."
        )
    if Requirement.EQUAL_WEIGHTS in algorithm.requires and not np.allclose(weights, weights[0], rtol=1e-6):
        raise ArgumentError(
            f"{algorithm.name} needs {Requirement.EQUAL_WEIGHTS}, and theirs range from {weights.min():.3g} to "
            f"{weights.max():.3g}: give equal ones, or use fedlin.scaffnew() or fedlin.fedlin(), which serve any."
        )


def check_convexity(algorithm: Method, problem: Problem) -> None:
    """Refuse a problem that is not as convex as the algorithm needs it."""
    if Requirement.STRONG_CONVEXITY not in algorithm.requires:
        return
    try:
        known = "has μ = 0" if problem.strong_convexity <= 0 else ""
    except UnknownError:
        known = "does not know its μ"
    if known:
        raise ArgumentError(
            f"{algorithm.name} needs {Requirement.STRONG_CONVEXITY}, and {problem!r} {known}: "
            "add l2 regularisation, give strong_convexity= a number above 0, or use fedlin.fedlin() or "
            "fedlin.gradient_descent(), which do without."
        )


def check_presence(algorithm: Method, everyone: bool) -> None:
    """Refuse rounds without all clients where the algorithm needs every one."""
    if Requirement.EVERY_CLIENT in algorithm.requires and not everyone:
        raise ArgumentError(
            f"{algorithm.name} needs {Requirement.EVERY_CLIENT}: set participation=1.0, or use {instead_of(algorithm)}."
        )


def instead_of(algorithm: Method) -> str:
    """What can be used where clients miss rounds, in words."""
    if Requirement.HESSIAN in algorithm.requires:
        return f"fedlin.fednl_pp(fedlin.low_rank(1)), {ANY_COHORT}, which serve any"
    links = "; FedLin does without everyone where gradients go down by plain or error_feedback links and models whole"
    return f"{ANY_COHORT}, which serve any{links if algorithm.name.startswith('fedlin') else ''}"


def check_cohort(algorithm: Method, answering: Array, clients: int) -> None:
    """Refuse rounds of more or fewer clients than the algorithm is made for; `answering` has how many each has."""
    size = algorithm.cohort
    if size is not None and np.any(answering != size):
        fewest, most = int(answering.min()), int(answering.max())
        have = f"they have {most}" if fewest == most else f"they have {fewest} to {most}"
        raise ArgumentError(
            f"{algorithm.name} is made for rounds of {size} clients, and {have}: give participation="
            f"{size / clients:.4g} or another cohort=, or use {ANY_COHORT}, which serve any."
        )


def check_aggregate(algorithm: Method, aggregate: Aggregator | None, weights: Array) -> Aggregator:
    """The aggregator, the mean where none is given; refused where the algorithm or the weights need the mean itself."""
    if aggregate is None:
        return mean()
    instance_of("aggregate", aggregate, Aggregator, "an aggregator such as fedlin.aggregation.trimmed_mean(2)")
    if aggregate.is_mean:
        return aggregate
    if Requirement.MEAN_UPLOAD in algorithm.requires:
        raise ArgumentError(
            f"{algorithm.name} needs {Requirement.MEAN_UPLOAD}, and aggregate = {aggregate} is another: use "
            "fedlin.fedavg(), fedlin.fedprox(beta), or fedlin.fedlin() with uncompressed or plain uplinks."
        )
    if any(mechanism is not None and mechanism.central for mechanism in algorithm.mechanisms):
        raise ArgumentError(
            f"{algorithm.name} has the server add noise for privacy, as much as hides one client in a mean, and "
            f'aggregate = {aggregate} is none: let the clients add it, where="local".'
        )
    if not np.allclose(weights, weights[0], rtol=1e-6):
        raise ArgumentError(
            f"aggregate = {aggregate} counts all clients alike, and their weights range from {weights.min():.3g} to "
            f'{weights.max():.3g}: give equal ones (in an experiment file, weights = "equal").'
        )
    return aggregate


def check_sum_is_enough(aggregate: Aggregator, secure: bool) -> None:
    """Refuse secure sums where the server has to see each upload."""
    if secure and not aggregate.is_mean:
        raise ArgumentError(
            f"aggregate = {aggregate} compares uploads with each other, and with secure sums the server sees none of "
            "them: take one of the two."
        )


def check_uploads(aggregate: Aggregator, fewest: int) -> None:
    """Refuse rounds with fewer uploads than the aggregator needs."""
    if fewest < aggregate.least:
        raise ArgumentError(
            f"aggregate = {aggregate} needs at least {aggregate.least} uploads, and a round may have {fewest}: "
            "tolerate fewer false ones, or have more clients answer."
        )
