"""Tables prepared before the rounds of a federation: two exchanges, after which every site has its problem.

The server asks every site for a summary of its columns, merges them and sends back what becomes of every
column; a site prepares its own rows and builds its problem from them. Rows stay where they are. Both sides keep the
preparation on disk, so that a run that is taken up again goes on with the same features.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from fedlin.audit import AuditTrail
from fedlin.checks import shown
from fedlin.data.column_summary import ColumnSummary, from_bytes, merge_summaries, to_bytes
from fedlin.data.fit_preparation import fit_preparation
from fedlin.data.preparation import Preparation, Recipe
from fedlin.data.prepare_table import summarise_table
from fedlin.data.raw_table import RawTable
from fedlin.engines.checkpoint import open_folder, write_whole
from fedlin.engines.federation import wire
from fedlin.engines.federation.client import Client, record_request, refusal_reply
from fedlin.engines.federation.exchange import Reply
from fedlin.engines.federation.limits import Limits
from fedlin.engines.federation.pending import Pending
from fedlin.engines.federation.policy import LONGEST_PAUSE, Policy
from fedlin.engines.federation.replies import refusal
from fedlin.engines.federation.table_agreement import TableAgreement
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader
from fedlin.errors import DataError, FederationError, WireError
from fedlin.transports.transport import Transport

FILE = "preparation.json"
LARGEST = 1 << 24  # bytes of one site's summary
_BEFORE = bytes(8)  # the run of messages that come before there is one
_log = logging.getLogger(__name__)


class SitesPrepared(NamedTuple):
    """What preparing came to: the features, the size of the model that every site has, and the bytes it took."""

    preparation: Preparation
    dim: int
    bytes_up: int
    bytes_down: int


def prepare_sites(
    transport: Transport,
    recipe: Recipe,
    *,
    expect: Sequence[str],
    policy: Policy | None = None,
    folder: str | PathLike[str] | None = None,
) -> SitesPrepared:
    """Prepare the tables of all sites alike, before `serve`.

    Args:
        transport: What reaches the sites.
        recipe: What is to be done with the columns.
        expect: The names of the sites; all of them are waited for.
        policy: How long an exchange may take, and for how long sites are asked again.
        folder: Where the preparation is kept; one that is there already is used again.

    Returns:
        The preparation, the number of entries of the model, and the bytes that went up and down.
    """
    with closing(Pending(None if folder is None else open_folder(folder, 0o700))) as pending:
        return _prepare_sites(
            transport, recipe, expect, Policy.everyone() if policy is None else policy, folder, pending
        )


def _prepare_sites(
    transport: Transport,
    recipe: Recipe,
    expect: Sequence[str],
    policy: Policy,
    folder: str | PathLike[str] | None,
    pending: Pending,
) -> SitesPrepared:
    place = None if folder is None else open_folder(folder, 0o700) / FILE
    up = down = 0
    if place is not None and place.is_file():
        preparation = Preparation.from_bytes(place.read_bytes())
    else:
        request = wire.write_message(Header(Kind.SUMMARISE, _BEFORE), json.dumps(asdict(recipe)).encode())
        summaries = _ask_all(transport, "summarise", request, Kind.SUMMARY, expect, policy, pending)
        up, down = sum(map(len, summaries.values())), len(request) * len(expect)
        merged = merge_summaries([_summary(name, summaries[name]) for name in sorted(expect)])
        preparation = fit_preparation(recipe, merged)
        if place is not None:
            write_whole(place, preparation.to_bytes(), mode=0o600)
    request = wire.write_message(Header(Kind.PREPARE, _BEFORE), preparation.to_bytes())
    replies = _ask_all(transport, "prepare", request, Kind.PREPARED, expect, policy, pending)
    dims = {name: _dim(name, reply) for name, reply in replies.items()}
    if len(set(dims.values())) != 1:
        each = ", ".join(f"{name} {dim}" for name, dim in sorted(dims.items()))
        raise FederationError(
            f"sites build models of different sizes from the same features ({each}): let problem() agree."
        )
    return SitesPrepared(
        preparation,
        next(iter(dims.values())),
        up + sum(map(len, replies.values())),
        down + len(request) * len(expect),
    )


def _summary(name: str, body: bytes) -> dict[str, ColumnSummary]:
    try:
        return from_bytes(body)
    except DataError as cause:
        raise FederationError(f"{name}: {cause}") from cause


def _dim(name: str, body: bytes) -> int:
    """How many entries a site says that its model has."""
    try:
        dim = wire.read_facts(body).get("dim")
    except WireError as cause:
        raise FederationError(f"{name}: {cause}") from cause
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        raise FederationError(f"{name} says that its model has {shown(dim)} entries: let it give a whole number.")
    return dim


def _ask_all(
    transport: Transport,
    phase: str,
    request: bytes,
    wanted: Kind,
    expect: Sequence[str],
    policy: Policy,
    pending: Pending,
) -> dict[str, bytes]:
    """The bodies of every site's answer; who has not answered is asked again until patience ends."""
    answers: dict[str, bytes] = {}
    damaged: dict[str, str] = {}  # why what came of a site is no answer: it may have been damaged on the way
    deadline, pause = time.monotonic() + policy.patience, policy.pause
    while True:
        missing = [name for name in expect if name not in answers]
        reachable = [name for name in missing if name in transport.clients()]
        pending.begin(0, phase, missing)
        for name, reply in transport.exchange(phase, request, reachable, policy.timeout).items():
            try:
                header, rest = wire.read_message(reply)
                answered, body = wire.read_reply(rest)
            except WireError as cause:
                damaged[name] = str(cause)
                continue
            if answered.request != wire.identify(request):  # late, to another request
                continue
            if header.kind == Kind.REFUSED:
                why = refusal(Reply(header.kind, answered, body))
                raise FederationError(f"{name} does not prepare its table: {why}")
            if header.kind != wanted or len(body) > LARGEST:
                raise FederationError(f"{name} answered with a {header.kind.name} of {len(body)} bytes.")
            answers[name] = bytes(body)
            pending.answered(name)
        missing = [name for name in expect if name not in answers]
        if not missing:
            return answers
        if time.monotonic() > deadline:
            told = "; ".join(f"{name} sent what is none: {damaged[name]}" for name in missing if name in damaged)
            raise FederationError(
                f"no answer from {', '.join(missing)} within {policy.patience:g} s: start these sites."
                + (f" {told}" if told else "")
            )
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class TableClient:
    """A site with a table: it summarises its columns, prepares its rows, and then is the `Client` of its problem.

    Args:
        table: The site's rows.
        build: Makes the site's client from the preparation: its problem, built of its rows.
        recipe: What the site's owner agrees to have summarised and prepared. Unless given, the recipe that is asked for
            first, and no other from then on: each further one tells more of the table.
        folder: Where the preparation and that recipe are kept, so that a restarted site has the same.
        limits: What the site allows, whatever the server asks.
        audit: Where to write down what is asked of the site.
    """

    def __init__(
        self,
        table: RawTable,
        build: Callable[[Preparation], Client],
        *,
        recipe: Recipe | None = None,
        folder: str | PathLike[str] | None = None,
        limits: Limits | None = None,
        audit: AuditTrail | None = None,
    ) -> None:
        self.table = table
        self.audit = audit
        self.client: Client | None = None
        self._limits = limits
        self._build = build
        place = None if folder is None else Path(open_folder(folder, 0o700))
        self._agreement = TableAgreement(recipe, place)
        self._file = None if place is None else place / FILE
        self._message = b""  # the preparation that the client is built from
        if self._file is not None and self._file.is_file():
            self._prepare(self._file.read_bytes())

    @property
    def limits(self) -> Limits | None:
        """What the site allows; its client has the same."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        if self.client is not None:
            self.client.limits = limits

    def handle(self, phase: str, payload: bytes) -> bytes:
        """The reply to any message: those of preparing here, all others by the client of the problem."""
        header, request = Header(Kind.REFUSED, _BEFORE), wire.identify(payload)
        try:
            header, rest = wire.read_message(payload)
            if self.client is not None and header.kind not in (Kind.SUMMARISE, Kind.PREPARE):
                return self.client.handle(phase, payload)
            reply = self._answer(header, request, bytes(rest))
        except (Exception, SystemExit) as error:  # an owner's code may end as a script does
            reply = refusal_reply(header, request, error)
        return record_request(self.audit, header, phase, request, reply)

    def _answer(self, header: Header, request: bytes, rest: bytes) -> bytes:
        limits = Limits() if self._limits is None else self._limits
        if header.kind == Kind.SUMMARISE:
            recipe = _recipe(rest)
            limits.check_summaries()
            self._agreement.check(recipe)
            self._agreement.count(request, limits)
            summary = to_bytes(summarise_table(self.table, recipe))
            self._agreement.keep(recipe)
            return wire.write_reply(header._replace(kind=Kind.SUMMARY), ReplyHeader(request, 0), summary)
        if header.kind == Kind.PREPARE:
            if rest != self._message:
                self._check_new(rest, limits)
                self._agreement.count(request, limits)
            facts = wire.write_facts({"dim": self._prepare(rest)})
            return wire.write_reply(header._replace(kind=Kind.PREPARED), ReplyHeader(request, 0), facts)
        raise WireError("the table of this site is not prepared yet: prepare the sites before the rounds.")

    def _check_new(self, message: bytes, limits: Limits) -> None:
        """Refuse a preparation that this site's recipe or its limits do not allow."""
        self._agreement.check_columns(Preparation.from_bytes(message), self.table.columns)
        if self._message and (limits.runs is not None or limits.epsilon is not None):
            raise WireError(
                "the preparation is another one than this site has, and its owner has approved single runs or set a "
                f"privacy budget, which are for that one: go on with it, or have the owner remove {FILE}."
            )

    def _prepare(self, message: bytes) -> int:
        """Build the client from a preparation unless it was; the number of entries of its model."""
        if self.client is None or message != self._message:
            client = self._build(Preparation.from_bytes(message))
            if self._limits is not None:
                client.limits = self._limits
            if self._file is not None:
                write_whole(self._file, message, mode=0o600)
            self.client, self._message = client, message  # which is tried again where the disk is full
        return self.client.problem.dim


def _recipe(message: bytes) -> Recipe:
    try:
        fields: Mapping[str, object] = json.loads(message)
        return Recipe(**fields)  # type: ignore[arg-type]
    except (ValueError, TypeError, RecursionError) as cause:
        raise DataError(f"the recipe cannot be read: {cause}.") from cause
