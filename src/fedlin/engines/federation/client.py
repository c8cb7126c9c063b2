"""A client of a federation: answers every message from its own data, and remembers on its own disk."""

import logging
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.checks import positive
from fedlin.core import Algorithm
from fedlin.engines.checkpoint import open_folder
from fedlin.engines.federation import wire
from fedlin.engines.federation.client_state import ROOT, ClientStates, SavedState
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.phase_programs import work
from fedlin.engines.federation.secret import fresh, secret_words
from fedlin.engines.federation.wire import Kind, ReplyHeader, Stamp
from fedlin.engines.phase import ClientArrays, ClientProgram
from fedlin.engines.requirements import check_prox
from fedlin.errors import ArgumentError, FedLinError, WireError
from fedlin.precision import precision
from fedlin.problems.problem import Problem

_log = logging.getLogger(__name__)


class Client:
    """One site: a problem with one client, the algorithm it takes part in, and a folder that outlives the process.

    `weight` is what the site's loss counts before the server scales all weights to sum to one, such as its number
    of rows. Without a folder a restarted client has lost its memory, and the federation starts afresh from the present
    model. Where the method has the client add noise for privacy, what it draws also depends on a `secret`, drawn once
    and kept in the folder, so that the server cannot take the noise off again; secret=b"" draws as `simulate` does.

    >>> import fedlin
    >>> problem = fedlin.problems.least_squares(clients=3, dim=4, samples=5)
    >>> site = fedlin.Client(fedlin.fedlin(), problem.client(0))
    >>> site.handshake.dim
    4
    """

    def __init__(
        self,
        algorithm: Algorithm[Any, Any],
        problem: Problem,
        *,
        folder: str | PathLike[str] | None = None,
        weight: float = 1.0,
        secret: bytes | None = None,
    ) -> None:
        if not isinstance(problem, Problem) or problem.clients != 1:
            raise ArgumentError(
                f"problem = {problem!r} is not allowed: a site gives a problem with one client, its own."
            )
        check_prox(algorithm, problem)
        self.handshake = Handshake(algorithm, problem.dim, problem.dtype)
        self.problem = problem
        self.weight = positive("weight", weight)
        self.folder = None if folder is None else open_folder(folder)
        self._stores: dict[bytes, ClientStates] = {}
        self._secret = secret_words(secret, algorithm, self.folder, central=False)
        with precision(problem.dtype):
            self._data = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), (problem.data, problem.noise))

    def handle(self, phase: str, payload: bytes) -> bytes:
        """The reply to any message; `phase` is the transport's route, and the message itself says the rest."""
        stamp = Stamp(Kind.REFUSED, bytes(8))
        request = wire.identify(payload)
        try:
            stamp, rest = wire.unseal(payload)
            answer = {Kind.HELLO: self._greet, Kind.BEGIN: self._begin, Kind.TASK: self._work}.get(stamp.kind)
            if answer is None:
                raise WireError(f"a {stamp.kind.name} message is a client's, and came to one.")
            with precision(self.handshake.dtype):
                return answer(request, stamp, rest)
        except FedLinError as cause:
            _log.warning("refused a message of phase %s: %s", phase, cause)
            return wire.write_refusal(stamp, request, str(cause))

    def _greet(self, request: bytes, stamp: Stamp, rest: memoryview) -> bytes:
        given, own = wire.read_facts(rest), self.handshake.facts
        differing = [name for name in own if given.get(name) != own[name]]
        if differing:
            told = ", ".join(f"{name} {given.get(name)!r} on the server and {own[name]!r} here" for name in differing)
            raise WireError(f"server and client do not run the same: {told}. Start both with the same settings.")
        greeting = wire.write_facts({"weight": self.weight})
        return wire.write_reply(stamp._replace(kind=Kind.GREETING), ReplyHeader(request, 0), greeting)

    def _begin(self, request: bytes, stamp: Stamp, rest: memoryview) -> bytes:
        store = self._store(stamp.run)
        known = store.get(request)
        if known is not None:
            return known.reply
        origin = np.zeros(self.handshake.dim, self.handshake.dtype)
        if len(rest):  # an empty body stands for a model of zeros
            origin = wire.unpack(rest, origin)
        reply = wire.write_reply(stamp._replace(kind=Kind.BEGUN), ReplyHeader(request, 0))
        state = self.handshake.algorithm.init_client(jnp.asarray(origin))
        store.put(request, SavedState(ROOT, stamp.round, False, -1, state, reply))
        return reply

    def _work(self, request: bytes, stamp: Stamp, rest: memoryview) -> bytes:
        store = self._store(stamp.run)
        known = store.get(request)
        if known is not None:  # redelivered: the same answer, and nothing is counted twice
            return known.reply
        shape = self.handshake.phase(stamp.opening, stamp.phase)
        task, body = wire.read_task(rest)
        message = wire.unpack(body, shape.down)
        base = store.get(task.base)
        if base is None:
            return wire.write_reply(stamp._replace(kind=Kind.LOST), ReplyHeader(request, 0))
        program = ClientProgram(self.problem.objective, self.problem.sampling)
        run = work(self.handshake.algorithm, stamp.opening, stamp.phase, program)
        data, noise = self._data
        tau, eta = np.int32(task.tau), np.asarray(task.eta, self.handshake.dtype)
        client = ClientArrays(np.uint32(task.client), data, noise, tau, eta, base.state)
        answer = run(client, message, np.uint32(task.seed), np.int32(stamp.round), fresh(self._secret, request))
        header = ReplyHeader(request, int(answer.calls))
        reply = wire.write_reply(stamp._replace(kind=Kind.UPLOAD), header, wire.pack(answer.upload))
        store.put(request, SavedState(task.base, stamp.round, stamp.opening, stamp.phase, answer.state, reply))
        return reply

    def _store(self, run: bytes) -> ClientStates:
        if run[:4] != self.handshake.fingerprint:
            raise WireError(
                "the message belongs to a run of another algorithm, dimension or precision than "
                f"{self.handshake.facts}: start server and client with the same settings."
            )
        if run not in self._stores:
            self._stores[run] = ClientStates(self.handshake, None if self.folder is None else self.folder / run.hex())
        return self._stores[run]
