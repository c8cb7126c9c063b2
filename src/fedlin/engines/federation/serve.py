"""The server of a federation: the same rounds as `simulate`, on machines that may be slow, restart or vanish."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from fedlin.aggregation import Aggregator
from fedlin.audit import AuditTrail
from fedlin.checks import finite, positive, positive_integer, true_or_false
from fedlin.core import Algorithm, Array, Method
from fedlin.engines.checkpoint import digest, open_folder
from fedlin.engines.federation.central_metrics import central_metrics
from fedlin.engines.federation.evaluation import Evaluation, FederationEvaluator
from fedlin.engines.federation.exchange import Exchange
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.membership import Membership, greet_again, register
from fedlin.engines.federation.pending import Pending
from fedlin.engines.federation.policy import Policy
from fedlin.engines.federation.roster import Roster
from fedlin.engines.federation.round_log import FederationResult, RoundLog
from fedlin.engines.federation.round_loop import OnRound, play_rounds
from fedlin.engines.federation.secret import secret_words
from fedlin.engines.federation.server_state import ServerCheckpoints, ServerState
from fedlin.engines.federation.session import Session
from fedlin.engines.requirements import check_aggregate, check_sum_is_enough, check_uploads
from fedlin.engines.simulation.run import check_seed
from fedlin.engines.simulation.stop import Stop
from fedlin.errors import ArgumentError
from fedlin.plan import Plan
from fedlin.precision import precision
from fedlin.problems.metrics import Metric
from fedlin.problems.objective import Data
from fedlin.problems.problem import Problem
from fedlin.result import Status
from fedlin.transports.transport import Transport


def serve(
    algorithm: Method,
    transport: Transport,
    plan: Plan,
    rounds: int,
    *,
    dim: int | None = None,
    x0: ArrayLike | None = None,
    dtype: DTypeLike = np.float64,
    seed: int = 0,
    secret: bytes | None = None,
    policy: Policy | None = None,
    folder: str | PathLike[str] | None = None,
    expect: int | Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    name: str = "",
    evaluation: Evaluation | None = None,
    audit: AuditTrail | None = None,
    stop: float | Stop | None = None,
    on_round: OnRound | None = None,
    metrics: Mapping[str, Metric] | None = None,
    test: Data = None,
    every: int = 1,
    model: Problem | None = None,
    secure: bool = False,
    aggregate: Aggregator | None = None,
) -> FederationResult:
    """Run the rounds of a federation with the clients a transport reaches.

    Args:
        algorithm: The method, as every client has it.
        transport: What carries the messages.
        plan: τ_i and η_i; its entries belong to the clients in the order of their names.
        rounds: How many rounds to run.
        dim: The entries of the model, where it starts from zeros.
        x0: The model to start from; give this or `dim`.
        dtype: The precision, where `x0` does not say it.
        seed: What all draws are a function of.
        secret: Where the method has the server add noise for privacy, what the noise also depends on, as a `Client`'s
            does: every client knows the seed. b"" draws as `simulate` does.
        policy: Whom a round waits for, and what is accepted.
        folder: Where the server saves after every round; the same call goes on from there.
        expect: The clients the run begins with, a number or their names.
        weights: The weights that the clients of these names have to declare.
        name: What distinguishes this run from another one with the same settings.
        evaluation: When the clients measure the model on data of their own, and what follows from it.
        audit: Where to write down rounds and events a second time, in lines that cannot be changed unseen.
        stop: The run ends early once a round moves the model by at most this; or a `Stop` of the server's metrics.
        on_round: Called as on_round(rounds done, x, measures) after every round; True ends the run.
        metrics: Functions (model, batch) by name that the server takes on data of its own, as in `simulate`; the model
            with the highest first one is kept and delivered, unless `evaluation` names a metric.
        test: What they are taken on.
        every: Rounds from one such evaluation to the next.
        model: A problem whose `model` the metrics take, such as `from_loss` with any data; flat models unless given.
        secure: Whether the server is to learn the weighted sum of each phase's uploads and nothing of one of them, from
            clients that have an `identity`. Needs at least 3 clients, a policy with a `norm_bound`, and uploads that
            add up: dense ones, rand_k(k, shared=True) or quantize(levels, bound=...).
        aggregate: What the server makes of the uploads, as in `simulate`; another than their mean needs clients that
            declare equal weights, and turns away those who come later with another.

    Returns:
        The model, what every round cost, who was counted and what happened. A run that diverges goes back to the model
        before the upload that stands out, and names it. When a run is over, its model is delivered to the clients: the
        best one, where the evaluation names a metric.

    >>> import fedlin
    >>> from fedlin.transports.loopback import Loopback
    >>> problem = fedlin.problems.least_squares(clients=2, dim=3, samples=9)
    >>> plan = fedlin.theory.strongly_convex(problem, tau=[2, 5])
    >>> sites = {f"site-{i}": fedlin.Client(fedlin.fedlin(), problem.client(i)).handle for i in range(2)}
    >>> result = fedlin.serve(fedlin.fedlin(), Loopback(sites), plan, rounds=200, dim=3)
    >>> simulated = fedlin.simulate(fedlin.fedlin(), problem, plan, rounds=200)
    >>> bool(abs(result.x - simulated.x).max() < 1e-12)
    True
    """
    rounds = positive_integer("rounds", rounds)
    start = _start(dim, x0, dtype)
    policy = Policy.everyone() if policy is None else policy
    for argument, value, kind in (
        ("algorithm", algorithm, Algorithm),
        ("plan", plan, Plan),
        ("policy", policy, Policy),
    ):
        if not isinstance(value, kind):
            raise ArgumentError(f"{argument} = {value!r} is not allowed: give a fedlin {kind.__name__}.")
    policy.check(algorithm)
    aggregate = check_aggregate(algorithm, aggregate, np.ones(1))
    if policy.quorum is not None:
        check_uploads(aggregate, policy.quorum)
    if evaluation is not None and not isinstance(evaluation, Evaluation):
        raise ArgumentError(f"evaluation = {evaluation!r} is not allowed: give a fedlin Evaluation.")
    limits = stop.limits if isinstance(stop, Stop) else {}
    central = central_metrics(metrics, test, every, model, start, limits)
    if isinstance(stop, Stop):
        stop = None
    elif stop is not None:
        positive("stop", stop)
    if isinstance(expect, str):
        raise ArgumentError(f"expect = {expect!r} is not allowed: give a number of clients, or a list of their names.")
    if expect is not None and not isinstance(expect, Sequence):
        positive_integer("expect", expect)
    check_sum_is_enough(aggregate, true_or_false("secure", secure))
    sums = _secure_sums(policy) if secure else None
    handshake = Handshake(algorithm, start.size, start.dtype, secure)
    identity = {
        "contract": json.dumps(handshake.facts),
        "seed": str(check_seed(seed)),
        "starting point": digest(start),
        "plan": digest(plan.tau, plan.eta),
    }
    if name:
        identity["name"] = name
    if not aggregate.is_mean:
        identity["aggregate"] = aggregate.name
    run = handshake.fingerprint + hashlib.sha256(json.dumps(identity).encode()).digest()[:4]
    place = None if folder is None else open_folder(folder, 0o700)
    with precision(handshake.dtype), closing(Pending(place)) as pending:
        checkpoints = ServerCheckpoints(place, handshake, identity)
        progress = checkpoints.read()
        session = Session(
            handshake,
            plan,
            rounds,
            int(seed),
            secret_words(secret, algorithm, place, central=True),
            policy,
            expect,
            weights,
            Exchange(transport, run, policy, pending),
            RoundLog(place, audit),
            checkpoints,
            progress or ServerState.start(algorithm, start, Roster()),
            secure=sums,
            aggregate=aggregate,
        )
        if progress is None:
            register(session)
        else:
            session.round_log.resume(progress.round)
            session.round_log.note("resumed", progress.round, rounds=rounds)
            greet_again(session)
        if sums is not None:
            from fedlin.engines.federation.secure_exchange import check_sites

            check_sites(session)
        evaluator = FederationEvaluator(session, evaluation, place, None if central is None else central.names[0])
        status = play_rounds(session, Membership(session, place), evaluator, stop, on_round, central)
        if status in ("done", "stopped"):
            evaluator.deliver()
        return _result(session, evaluator, status)


def _secure_sums(policy: Policy) -> Any:
    if policy.cohort is not None:
        raise ArgumentError(
            f"secure = True and policy.cohort = {policy.cohort} exclude each other, since a sum over few sites hides "
            "little: use Policy.everyone() or Policy.first(n)."
        )
    if policy.norm_bound is None:
        raise ArgumentError(
            "secure = True needs policy.norm_bound, from which the scale of the sums follows: give the largest norm "
            "that an upload may have, such as Policy.everyone(norm_bound=1e3)."
        )
    try:
        from fedlin.engines.federation.secure_exchange import SecureSums
    except ModuleNotFoundError as cause:
        raise ArgumentError("secure = True needs cryptography: pip install 'fedlin[secure]'.") from cause
    return SecureSums()


def _result(session: Session, evaluator: FederationEvaluator, status: Status) -> FederationResult:
    progress = session.progress
    if status != "done":
        session.round_log.note(status, progress.round)
    return FederationResult(
        session.algorithm.name,
        status,
        progress.x,
        **session.round_log.columns(progress.round),
        events=session.round_log.events,
        clients=session.roster.active,
        seed=session.seed,
        absent=session.roster.absent,
        best=evaluator.best,
    )


def _start(dim: int | None, x0: ArrayLike | None, dtype: DTypeLike) -> Array:
    if (dim is None) == (x0 is None):
        raise ArgumentError(
            f"dim = {dim!r} and x0 = {x0!r}: give one of them, the size of the model or the model itself."
        )
    if x0 is None:
        if np.dtype(dtype) not in (np.float32, np.float64):
            raise ArgumentError(f"dtype = {dtype!r} is not allowed: choose float32 or float64.")
        return np.zeros(positive_integer("dim", dim), dtype)
    point = finite("x0", x0, ArgumentError)
    if point.ndim != 1 or point.size == 0:
        raise ArgumentError(f"x0 has shape {point.shape}: give a vector.")
    return point
