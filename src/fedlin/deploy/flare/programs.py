"""What FLARE's job runs: the server's rounds, and a site's answers from its own `client.py`."""

import errno
import hashlib
import logging
import runpy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedlin.audit import AuditTrail
from fedlin.data import Preparation
from fedlin.deploy.runs import BEST, MODEL, OUTCOME, STATE, Ending, begin_run, conclude, run_title, write_model
from fedlin.deploy.settings import NAME, FederationSettings, read_settings, read_tables
from fedlin.deploy.site_record import SiteRecorder
from fedlin.deploy.site_settings import read_limits
from fedlin.deploy.starting_model import starting_model
from fedlin.deploy.status import read_status
from fedlin.engines.checkpoint import write_whole
from fedlin.engines.federation import Client, serve, wire
from fedlin.engines.federation.client import refusal_reply
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.site_preparation import LARGEST, TableClient, prepare_sites
from fedlin.engines.federation.wire import Header, Kind
from fedlin.errors import DeployError, FedLinError, OtherRunError, WireError
from fedlin.problems.problem import Problem
from fedlin.transports.message_limit import write_limit
from fedlin.transports.transport import Handler, Transport

CLIENT = "client.py"
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM}  # full, or not to be written to
_GOES_ON = "it goes on from its last checkpoint"
_job: dict[str, str] = {}  # of this process: its run's name and folder, and the hash of its settings as sent
_log = logging.getLogger(__name__)


class _AnotherRunError(DeployError):
    """The folder has the state of a run with other settings, which stays as it was."""


def run_server(transport: Transport, folder: str, job: str) -> None:
    """Play the rounds that are left, then write the model and how the run ended; `job` holds the settings sent."""
    kit, sent = Path(folder), Path(job)
    place = kit
    try:
        settings = read_settings(sent)
        place = begin_run(kit, settings.name)
        digest = hashlib.sha256((sent / NAME).read_bytes()).hexdigest()
        _job.update(run=settings.name or "", folder=str(place), settings=digest)
        result = _serve(transport, kit, sent, place, settings)
    except FedLinError as error:
        _fail((sent,) if isinstance(error, _AnotherRunError) else (place, sent), str(error))
        raise
    except OSError as error:
        if error.errno in _DISK:
            _fail(
                (place, sent), f"the server cannot write to its disk: {error}. Mend that, and start again: {_GOES_ON}."
            )
        raise
    write_model(place / MODEL, result.x)
    end: Ending = {"status": result.status, "rounds": result.rounds}
    if result.best is not None:
        write_model(place / BEST, result.best.x)
        end["best"] = {"round": result.best.round, "value": result.best.value}
    if result.absent:
        end["without"] = dict(result.absent)
    if result.status == "diverged":
        why = next(event["why"] for event in reversed(result.events) if event["event"] in ("went back", "ruined"))
        end["error"] = f"{why}. The model is that of round {result.rounds}."
    for where in (place, sent):
        conclude(where, end)
    if result.status == "diverged":
        raise DeployError("the run diverged")  # a job that completes is taken for a run that was done


def _fail(places: tuple[Path, ...], why: str) -> None:
    """Tell why a run ended, as far as a disk that may be full lets that be told."""
    for place in places:  # whoever started the job has what is in its folder
        with suppress(OSError):
            conclude(place, {"status": "failed", "error": why})


def _serve(transport: Transport, kit: Path, sent: Path, place: Path, settings: FederationSettings) -> Any:
    text = (sent / NAME).read_bytes()
    former = {path: path.read_bytes() for path in (place / NAME, place / OUTCOME) if path.is_file()}
    (place / OUTCOME).unlink(missing_ok=True)
    for where in {kit, place}:  # the server hears the sites that these name, and no others
        write_whole(where / NAME, text, mode=0o600)
    trail = AuditTrail(kit)
    trail.record("settings", run=settings.name or "", sha256=_job["settings"], text=text.decode())
    start = starting_model(kit, sent, settings)
    dim = settings.dim
    if settings.prepare is not None:
        write_limit(kit, LARGEST)
        prepared = prepare_sites(
            transport, settings.prepare, expect=settings.sites, policy=settings.policy, folder=place / STATE
        )
        if dim not in (None, prepared.dim):
            raise DeployError(f"run.dim = {dim}, and the prepared tables make models of {prepared.dim}: leave dim out.")
        dim = prepared.dim
        _log.info("prepared %s", "; ".join(prepared.preparation.notes))
        _log.info("preparing took %d bytes up and %d down", prepared.bytes_up, prepared.bytes_down)
    dtype = np.dtype(settings.dtype or ("float64" if start is None else start.dtype))
    size = start.size if start is not None else dim
    handshake = Handshake(settings.algorithm, size or 0, dtype, settings.secure)
    write_limit(kit, max(wire.TEXT_LIMIT, handshake.largest_upload))
    try:
        return serve(
            settings.algorithm,
            transport,
            settings.plan,
            settings.rounds,
            dim=dim if start is None else None,
            x0=start,
            dtype=dtype,
            seed=settings.seed,
            stop=settings.stop,
            policy=settings.policy,
            folder=place / STATE,
            expect=settings.sites,
            weights=settings.weights,
            aggregate=settings.aggregate,
            name=settings.name or "",
            evaluation=settings.evaluation,
            audit=trail,
            secure=settings.secure,
        )
    except OtherRunError as error:
        for path, content in former.items():  # how it ended, and the settings with which it can go on
            write_whole(path, content, mode=0o600)
        raise _AnotherRunError(
            f"{run_title(settings.name)} was begun with another {', another '.join(error.differing)}: give this one a "
            "name of its own, fedlin federation run NAME, with --after to start from a former run's model."
        ) from error


def tell_status(request: dict[str, Any]) -> dict[str, Any]:
    """What whoever sent the job is told: where the run stands, and its events after so many; nothing before it begins.

    Until then the kit's latest run is a former one.
    """
    if not _job:
        return {"run": "", "settings": "", "progress": None, "awaiting": None, "events": []}
    status = read_status(Path(_job["folder"]))
    return {
        "run": _job["run"],
        "settings": _job["settings"],
        "progress": None if status.progress is None else asdict(status.progress),
        "awaiting": None if status.awaiting is None else asdict(status.awaiting),
        "events": status.events[int(request.get("events", 0)) :],
    }


def make_client(name: str, folder: str, job: str) -> Handler:
    """A site's handler. Where its settings or its client.py fail it refuses, and tries again with the next message.

    What an exception says may quote data, so it stays in the site's log, under a number that the server is told.
    """
    kit, sent = Path(folder), Path(job)
    recorder = SiteRecorder(kit)
    client: Client | TableClient | None = None

    def answer(phase: str, payload: bytes) -> bytes:
        nonlocal client
        request = wire.identify(payload)
        try:
            if client is None:
                check_settings(kit, sent)
                settings = read_settings(sent)
                load = load_client if settings.prepare is None else load_table_client
                client = load(name, kit, settings)
            client.limits = read_limits(kit)
        except (Exception, SystemExit) as error:  # an owner's code may end as a script does
            return refusal_reply(_header(payload), request, error)
        return client.handle(phase, payload)

    def recorded(phase: str, payload: bytes) -> bytes:
        with _unless_full():
            recorder.begin(phase, payload)
        reply = answer(phase, payload)
        with _unless_full():
            recorder.enter(phase, payload, reply)
        return reply

    return recorded


def _header(payload: bytes) -> Header:
    """A message's header, so that its run hears of a refusal; where there is none to be read, one of no run."""
    try:
        return wire.read_message(payload)[0]
    except WireError:
        return Header(Kind.REFUSED, bytes(8))


@contextmanager
def _unless_full() -> Iterator[None]:
    """What is written for `status` alone: the owner's view stays of an earlier time; more that fails is told."""
    try:
        yield
    except OSError as error:
        _log.warning("what was asked could not be written for status: %s", error)


def check_settings(kit: Path, sent: Path) -> None:
    """Refuse, by name, settings that differ from those a site's owner keeps in a file of its own, if there is one."""
    if not (kit / NAME).is_file():
        return
    own, theirs = (_flat(read_tables(folder / NAME, "")) for folder in (kit, sent))
    differing = sorted(key for key in own.keys() | theirs.keys() if own.get(key) != theirs.get(key))
    if differing:
        both = ", ".join(f"{key} is {theirs.get(key)!r} in the job and {own.get(key)!r} here" for key in differing)
        raise WireError(f"this site keeps a {NAME} of its own, and {both}: its owner changes or removes the file.")


def _flat(table: Mapping[str, object], above: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return flat


def load_client(name: str, kit: Path, settings: FederationSettings) -> Client:
    """The client of a site: `problem()` in its client.py gives its data and its loss."""
    own = _run_file(name, kit, "problem")
    return _client(name, own, own["problem"](), kit, settings, 1.0)


def load_table_client(name: str, kit: Path, settings: FederationSettings) -> TableClient:
    """The client of a site whose table is prepared first: `table()` in its client.py gives the site's rows, and
    `problem(preparation)` its problem; it counts by its rows, unless the file has a WEIGHT.
    """
    own = _run_file(name, kit, "problem", "table")
    table = own["table"]()

    def build(preparation: Preparation) -> Client:
        return _client(name, own, own["problem"](preparation), kit, settings, float(table.rows))

    # The settings that came with the job are the server's choice; those in the owner's file are the owner's.
    recipe = settings.prepare if (kit / NAME).is_file() else None
    return TableClient(table, build, recipe=recipe, folder=kit / STATE, audit=AuditTrail(kit))


def _run_file(name: str, kit: Path, *functions: str) -> dict[str, Any]:
    path = kit / CLIENT
    if not path.is_file():
        raise DeployError(f"{CLIENT} is not there: write it, with a function problem() that returns {name}'s problem.")
    own: dict[str, Any] = runpy.run_path(str(path))
    for function in functions:
        if function not in own:
            content = "rows, as read_table does" if function == "table" else "problem"
            raise DeployError(f"{CLIENT} has no function {function}(): give one that returns {name}'s {content}.")
    return own


def _client(
    name: str, own: dict[str, Any], problem: Problem, kit: Path, settings: FederationSettings, weight: float
) -> Client:
    secure: dict[str, Any] = {}
    if settings.secure:
        from fedlin.transports.signatures import KitIdentity  # needs cryptography

        identity, number = KitIdentity(kit / "startup", name, settings.sites), settings.sites.index(name)
        steps = int(settings.plan.tau[number]), float(settings.plan.eta[number])
        quorum = settings.policy.quorum
        secure = {"identity": identity, "sites": len(settings.sites), "quorum": quorum, "steps": steps}
    return Client(
        settings.algorithm,
        problem,
        folder=kit / STATE,
        weight=own.get("WEIGHT", weight),
        evaluate=own.get("evaluate"),
        evaluation_weight=own.get("TEST_ROWS", 1.0),
        on_model=lambda x: write_model(kit / MODEL, x),
        audit=AuditTrail(kit),
        **secure,
    )
