"""A client of a federation: answers every message from its own data, and remembers on its own disk."""

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from os import PathLike
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.audit import AuditTrail
from fedlin.checks import LONGEST, positive, printable
from fedlin.core import Array, Method
from fedlin.engines.checkpoint import open_folder
from fedlin.engines.federation import wire
from fedlin.engines.federation.client_state import ROOT, ClientStates, SavedState
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.limits import Ledger, Limits
from fedlin.engines.federation.phase_programs import work
from fedlin.engines.federation.secret import fresh, secret_words
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader
from fedlin.engines.phase import ClientArrays, ClientProgram
from fedlin.engines.requirements import check_oracle
from fedlin.errors import ArgumentError, WireError
from fedlin.precision import precision
from fedlin.problems.problem import Problem

if TYPE_CHECKING:
    from fedlin.engines.federation.secure_client import SecureAnswers
    from fedlin.identities import Identity

Evaluate = Callable[[Array], Mapping[str, float]]
_log = logging.getLogger(__name__)


class Client:
    """One site: a problem with one client, the algorithm it takes part in, and a folder that outlives the process.

    A site takes part in one run at a time, the last whose server greeted it, and refuses messages of others.

    Args:
        algorithm: The method, as the server has it.
        problem: The site's own data and loss, a problem with one client.
        folder: Where the site remembers. Without one a restarted client has lost its memory, and the federation starts
            afresh from the present model.
        weight: What the site's loss counts before the server scales all weights to sum to one, such as its number of
            rows.
        secret: Where the method has the client add noise for privacy, what the noise also depends on, so that the
            server cannot take it off again; drawn once and kept in the folder unless given. b"" draws as `simulate`.
        limits: What the site allows, whatever the server asks.
        evaluate: Measures a model on data of the site's own: from the flat model to numbers by name.
        evaluation_weight: What these numbers count in the mean over all sites, such as the number of rows they are of.
        on_model: Called with the model of a run that is over.
        audit: Where to write down what is asked of the site.
        identity: Where the server is to learn sums of uploads alone, what the site signs its keys with, such as
            `fedlin.identities.SiteIdentity.generate` makes. The site then sends no upload without a mask.
        sites: With an identity, how many sites the federation has.
        quorum: The fewest of them in a secure sum that the site takes part in, more than two thirds; all unless given.
            Where sums may be over fewer than all, a server that asks twice at the same model learns what the site
            that is in one sum alone has sent.
        steps: The τ_i and η_i that were agreed for the site's uploads in secure sums; others are refused. A server that
            gives all sites but one steps of next to nothing would learn from the sum what that one has sent.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=3, dim=4, samples=5)
    >>> site = fedlin.Client(fedlin.fedlin(), problem.client(0))
    >>> site.handshake.dim
    4
    """

    def __init__(
        self,
        algorithm: Method,
        problem: Problem,
        *,
        folder: str | PathLike[str] | None = None,
        weight: float = 1.0,
        secret: bytes | None = None,
        limits: Limits | None = None,
        evaluate: Evaluate | None = None,
        evaluation_weight: float = 1.0,
        on_model: Callable[[Array], object] | None = None,
        audit: AuditTrail | None = None,
        identity: "Identity | None" = None,
        sites: int | None = None,
        quorum: int | None = None,
        steps: tuple[int, float] | None = None,
    ) -> None:
        if not isinstance(problem, Problem) or problem.clients != 1:
            raise ArgumentError(
                f"problem = {problem!r} is not allowed: a site gives a problem with one client, its own."
            )
        check_oracle(algorithm, problem)
        self.handshake = Handshake(algorithm, problem.dim, problem.dtype, identity is not None)
        self.problem = problem
        self.weight = positive("weight", weight)
        self.folder = None if folder is None else open_folder(folder, 0o700)
        self.limits = Limits() if limits is None else limits
        self.ledger = Ledger(self.folder)
        self.evaluate = evaluate
        self.evaluation_weight = positive("evaluation_weight", evaluation_weight)
        self.on_model = on_model
        self.audit = audit
        self._stores: dict[bytes, ClientStates] = {}
        self._secret = secret_words(secret, algorithm, self.folder, central=False)
        self._secure = None if identity is None else self._secure_answers(identity, sites, quorum, steps)
        with precision(problem.dtype):
            self._data = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), (problem.data, problem.noise))

    def handle(self, phase: str, payload: bytes) -> bytes:
        """The reply to any message; `phase` is the transport's route, and the message itself says the rest.

        No exception leaves a site, since its text may quote data: what is not acceptable about a message is told, and
        of everything else its type and a number under which the site's own log has the text.

        Args:
            phase: The transport's route; the message itself says everything else.
            payload: The message, as the server wrote it.

        Returns:
            The reply, or a refusal that says why.
        """
        header, request = Header(Kind.REFUSED, bytes(8)), wire.identify(payload)
        try:
            header, rest = wire.read_message(payload)
            secure = self._secure
            answer = {
                Kind.HELLO: self._greet,
                Kind.BEGIN: self._begin,
                Kind.TASK: self._work,
                Kind.EVALUATE: self._evaluate,
                Kind.FINAL: self._receive,
                **({} if secure is None else dict.fromkeys(secure.kinds, secure.answer)),
            }.get(header.kind)
            if secure is not None and header.kind == Kind.TASK:
                raise WireError("this site sends no upload without a mask, and was asked for one.")
            if answer is None:
                raise WireError(f"a {header.kind.name} message is a client's, and came to one.")
            with precision(self.handshake.dtype):
                reply = answer(request, header, rest)
        except (Exception, SystemExit) as error:  # an owner's code may end as a script does
            reply = refusal_reply(header, request, error)
        return record_request(self.audit, header, phase, request, reply)

    def _secure_answers(
        self, identity: "Identity", sites: int | None, quorum: int | None, steps: tuple[int, float] | None
    ) -> "SecureAnswers":
        from fedlin.engines.federation.secure_client import SecureAnswers  # needs cryptography

        return SecureAnswers(self.handshake, identity, self.weight, sites, quorum, steps, self.folder, self._work)

    def _greet(self, request: bytes, header: Header, rest: memoryview) -> bytes:
        given, own = wire.read_facts(rest), self.handshake.facts
        differing = [name for name in own if given.get(name) != own[name]]
        if differing:
            both = ", ".join(f"{name} {given.get(name)!r} on the server and {own[name]!r} here" for name in differing)
            raise WireError(f"server and client do not run the same: {both}. Start both with the same settings.")
        self._check_run(header.run)
        self.limits.check_plan(given)
        self.ledger.enter(header.run)
        facts: dict[str, Any] = {"weight": self.weight}
        if self.audit is not None:
            if isinstance(given.get("trail"), str):
                self.audit.record("trail", of="server", digest=given["trail"][:64])
            facts["trail"] = self.audit.head()
        greeting = wire.write_facts(facts)
        return wire.write_reply(header._replace(kind=Kind.GREETING), ReplyHeader(request, 0), greeting)

    def _begin(self, request: bytes, header: Header, rest: memoryview) -> bytes:
        store = self._store(header.run)
        known = store.get(request)
        if known is not None:
            return known.reply
        origin = np.zeros(self.handshake.dim, self.handshake.dtype)
        if len(rest):  # an empty body stands for a model of zeros
            origin = wire.unpack(rest, origin)
        reply = wire.write_reply(header._replace(kind=Kind.BEGUN), ReplyHeader(request, 0))
        state = self.handshake.algorithm.init_client(jnp.asarray(origin))
        store.put(request, SavedState(ROOT, header.round, False, -1, state, reply))
        return reply

    def _work(self, request: bytes, header: Header, rest: memoryview) -> bytes:
        store = self._store(header.run)
        known = store.get(request)
        if known is not None:  # redelivered: the same answer, and nothing is counted twice
            return known.reply
        shape = self.handshake.phase(header.opening, header.phase)
        task, body = wire.read_task(rest)
        self.limits.check("tau", task.tau)
        self.limits.check("eta", task.eta)
        self.limits.check("rounds", header.round + 1)
        message = wire.unpack(body, shape.down)
        base = store.get(task.base)
        if base is None:
            return wire.write_reply(header._replace(kind=Kind.LOST), ReplyHeader(request, 0))
        self.ledger.count(header.round, self.limits)
        self.ledger.spend(self.handshake.algorithm, header.phase, self.limits, self.handshake.secure)
        program = ClientProgram(self.problem.objective, self.problem.sampling)
        run = work(self.handshake.algorithm, header.opening, header.phase, program)
        data, noise = self._data
        tau, eta = np.int32(task.tau), np.asarray(task.eta, self.handshake.dtype)
        client = ClientArrays(np.uint32(task.client), data, noise, tau, eta, base.state, np.uint32(task.place))
        use = b""  # what the noise is for: the task, and the state it goes on from, which eight bytes alone name there
        if self._secret:
            use = wire.task_digest(header, task, wire.read_body_digest(rest, len(rest)))
            use += hashlib.sha256(wire.pack(base.state)).digest()
        answer = run(client, message, np.uint32(task.seed), np.int32(header.round), fresh(self._secret, use))
        reply_header = ReplyHeader(request, int(answer.calls))
        reply = wire.write_reply(header._replace(kind=Kind.UPLOAD), reply_header, wire.pack(answer.upload))
        store.put(request, SavedState(task.base, header.round, header.opening, header.phase, answer.state, reply))
        return reply

    def _evaluate(self, request: bytes, header: Header, rest: memoryview) -> bytes:
        x = self._model(header, rest)
        if self.evaluate is None:
            raise WireError("this site has nothing to evaluate a model with.")
        if self.limits.epsilon is not None:
            raise WireError("metrics are told without noise, and this site has a privacy budget.")
        self.limits.check("rounds", header.round)  # those that were played before
        self.ledger.count(header.round, self.limits)
        metrics = {str(name): float(value) for name, value in self.evaluate(x).items()}
        facts = wire.write_facts({"weight": self.evaluation_weight, "metrics": metrics})
        return wire.write_reply(header._replace(kind=Kind.METRICS), ReplyHeader(request, 0), facts)

    def _receive(self, request: bytes, header: Header, rest: memoryview) -> bytes:
        x = self._model(header, rest)
        if self.on_model is not None:
            self.on_model(x)
        return wire.write_reply(header._replace(kind=Kind.RECEIVED), ReplyHeader(request, 0))

    def _model(self, header: Header, rest: memoryview) -> Array:
        """The model in a message of the run this site takes part in."""
        self._check_run(header.run)
        self.ledger.check_run(header.run)
        like = np.zeros(self.handshake.dim, self.handshake.dtype)
        return np.array(wire.unpack(rest, like))  # its own, to be changed as its owner likes

    def _store(self, run: bytes) -> ClientStates:
        self._check_run(run)
        self.ledger.check_run(run)
        if run not in self._stores:
            if self.folder is not None:
                self._stores.clear()  # those of other runs are on disk, and there may be any number of runs
            self._stores[run] = ClientStates(self.handshake, None if self.folder is None else self.folder / run.hex())
        return self._stores[run]

    def _check_run(self, run: bytes) -> None:
        """Refuse a run of other settings, or that the site's owner does not allow; also where no hello came first."""
        if run[:4] != self.handshake.fingerprint:
            raise WireError(
                "the message belongs to a run of another algorithm, dimension or precision than "
                f"{self.handshake.facts}: start server and client with the same settings."
            )
        self.limits.check_run(run, self.handshake.algorithm, self.handshake.secure)


def record_request(audit: AuditTrail | None, header: Header, phase: str, request: bytes, reply: bytes) -> bytes:
    """Write down what was asked and what became of it, where there is a trail; the reply, which is else a refusal."""
    if audit is None:
        return reply
    answered, rest = wire.read_message(reply, own=True)
    place = {
        "run": header.run.hex(),
        "round": header.round,
        "phase": printable(phase, LONGEST),
        "request": request.hex(),
    }
    facts = wire.read_facts(wire.read_reply(rest)[1]) if answered.kind == Kind.REFUSED else {}
    try:
        audit.record("asked", kind=header.kind.name, **place, answer=answered.kind.name, **facts)
    except OSError as error:  # nothing leaves a site that its trail does not tell of
        return refusal_reply(header, request, error)
    return reply


def refusal_reply(header: Header, request: bytes, error: BaseException) -> bytes:
    """What others may hear of an exception: what a `WireError` says, since that is written for them.

    Of any other, its type, what the system calls it where it is the system's, such as a disk that is full, and the
    number under which this side's own log has the rest, which may quote data.
    """
    if isinstance(error, WireError):
        _log.warning("refused a message of round %d: %s", header.round, error)
        return wire.write_refusal(header, request, str(error))
    reference = token_hex(4)
    _log.error("reference %s: %s", reference, error, exc_info=error)
    system = f" ({os.strerror(error.errno)})" if isinstance(error, OSError) and error.errno else ""
    return wire.write_refusal(header, request, f"it failed with {type(error).__name__}{system}", reference)
