"""A site's client.py that attacks: it wants another site's gradient, and other processes to end.

`from hostile_site import WEIGHT, problem` is all that such a client.py needs. What came of the attacks is written to
ATTACKS in the site's folder. Whoever runs a site can run this: it uses FLARE as FLARE is, and changes what its own
process sends. On a busy machine a call may be given up before its message has left, so each attack is made again until
it succeeds or the server has written down that it dropped its message: server and site are on one machine here.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.collab import collab
from nvflare.collab.api.exceptions import CollabCallError
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.private.defs import CellMessageHeaderKeys

import fedlin
from fedlin.audit import TRAIL
from fedlin.deploy.settings import read_settings
from fedlin.engines.federation import wire
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.wire import Kind

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
    kit = Path(collab.workspace.get_root_dir())
    cell = collab.fl_ctx.get_engine().get_cell().core_cell
    attacks: dict[str, Callable[[], Any]] = {
        "call": steal_gradient,
        "call in the server's name": lambda: steal_gradient(forged=cell),
        "end the victim": lambda: stop(cell, VICTIM),
        "end the server": lambda: stop(cell, "server"),
        "fill the server's memory": lambda: flood(collab.fl_ctx.get_engine().get_cell(), job),
    }
    trail, job = kit.parents[1] / "server" / TRAIL, str(collab.fl_ctx.get_job_id())
    found = {name: repeated(attack, dropped(job)[name], trail) for name, attack in attacks.items()}
    (kit / ATTACKS).write_text(json.dumps(found))
    rng = np.random.default_rng(NUMBER)
    features = rng.normal(size=(100, 20))
    return fedlin.problems.regression([features], [features @ rng.normal(size=20) + 0.1 * rng.normal(size=100)])


def dropped(job: str) -> dict[str, str]:
    """The reason that the server has for dropping the message of each attack."""
    return {
        "call": f"it is for {VICTIM}.{job}, and",
        "call in the server's name": f"it is for {VICTIM}.{job} in the name of server.{job}, and",
        "end the victim": f"it is a command to FLARE's process {VICTIM}",
        "end the server": "it is a command to FLARE's process server",
        "fill the server's memory": "it is longer than",
    }


def repeated(attack: Callable[[], Any], reason: str, trail: Path) -> Any:
    """What came of an attack, made until it succeeds or the server's audit trail has the reason for its failure."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            found = attack()
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        failed = isinstance(found, str) and ("timed out" in found or found == "timeout")
        if not failed or time.monotonic() > deadline or (trail.exists() and reason in trail.read_text()):
            return found


def steal_gradient(forged: Any = None) -> list[float] | str:
    """The victim's gradient at a model of ones, under a run id of our own; the cell `forged` lies about its name."""
    settings = read_settings(Path(collab.workspace.get_app_config_dir(collab.fl_ctx.get_job_id())))
    handshake = Handshake(settings.algorithm, settings.dim or 0, np.dtype("float64"))
    run = handshake.fingerprint + b"evil"
    begin = wire.write_message(wire.Header(Kind.BEGIN, run))
    task = wire.Task(wire.identify(begin), 0, 0, 1, 0.1)
    work = wire.write_task(wire.Header(Kind.TASK, run, 0, 0, True), task, wire.pack(np.ones(handshake.dim)))
    victim = next(proxy for proxy in collab.clients if proxy.name == VICTIM)
    if forged is not None:
        in_the_servers_name(forged, collab.fl_ctx.get_job_id())
        victim.backend.caller = "server"
    ask(victim, "begin", begin)
    header, rest = wire.read_message(ask(victim, "gradient", work))
    if header.kind != Kind.UPLOAD:
        return header.kind.name
    gradient = wire.unpack(wire.read_reply(rest)[1], handshake.phase(True, 0).up).decode()
    return [float(entry) for entry in gradient]


def ask(victim: Any, phase: str, payload: bytes) -> bytes:
    """What the victim answers; it may want a code, and has to do without."""
    call = victim(timeout=WAIT)
    try:
        reply = call.answer(phase, payload)
    except CollabCallError as error:
        if "missing" not in str(error):
            raise
        reply = call.answer(phase, payload, b"no code")
    return bytes(reply if isinstance(reply, bytes) else reply[0])


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
    future = cell.send_blob("return_only", "reply", f"server.{job}", Message(payload=bytes(FLOOD)))
    try:
        return f"sent {future.result(WAIT)} bytes"
    except TimeoutError:
        return "timeout"


def stop(cell: Any, target: str) -> str:
    """Ask another process of FLARE to end, as FLARE's own tools would."""
    reply = cell.send_request("_net_manager", "stop_cell", target, Message(), timeout=WAIT)
    return str(reply.get_header(MessageHeaderKey.RETURN_CODE))
