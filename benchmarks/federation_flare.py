"""The part of `federation.py` over NVIDIA FLARE: FLARE's own calls of a function and fedlin's rounds in one job.

The calls are those of FLARE's Collab API, with bytes as arguments. FLARE writes two lines into its log for each, and
formats every request for a line of its debug log that nobody reads; quiet calls are without either.
"""

import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import which
from typing import Any

import psutil
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ServerCommandNames
from nvflare.collab import collab
from nvflare.collab.runtime.controller import CollabController
from nvflare.collab.runtime.defs import MSG_CHANNEL, MSG_TOPIC
from nvflare.collab.runtime.executor import CollabExecutor
from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.fuel.utils.buffer_list import ConsumableBufferList

from benchmarks.federation import CLIENTS, Deployment, make, measure
from fedlin.audit import AuditTrail
from fedlin.deploy.flare import job, kits
from fedlin.deploy.flare.fork_server import MARK
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.project import create
from fedlin.deploy.runs import conclude
from fedlin.deploy.site_record import SiteRecorder
from fedlin.transports import flare_permissions
from fedlin.transports.flare import FlareServer
from fedlin.transports.flare_gate import NeedsGate
from fedlin.transports.flare_permissions import STREAMS, Way
from fedlin.transports.flare_site import FlareSite
from fedlin.transports.transport import Handler, Transport

FOUND = "found.json"
_NAME = "benchmarks.federation_flare"
_PROXIES = "nvflare.collab.runtime.cell_dispatcher"  # FLARE's log of calls, two lines each
_QUIET = "quiet calls"


def network_bytes(port: str) -> float:
    """What the kernel has carried over the connections to a port, both ways: TLS, HTTP/2 and heartbeats included."""
    if which("ss") is None:
        return float("nan")
    listed = subprocess.run(["ss", "-tinH", f"sport = :{port}"], capture_output=True, text=True, check=True)
    return float(sum(map(int, re.findall(r"bytes_(?:sent|received):(\d+)", listed.stdout))))


def cpu_seconds(federation: Path) -> float:
    """What all processes of a federation on this machine have used so far."""
    used = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK, "").startswith(str(federation)):
                used += sum(process.cpu_times()[:2])
    return used


class Calls:
    """What a benchmark's job does at the server besides fedlin: FLARE's own calls of a function at every site."""

    def __init__(self, own: FlareServer) -> None:
        self.own = own

    @collab.main  # type: ignore[untyped-decorator] # FLARE has no types
    def run(self) -> None:
        """The job's main function."""
        logging.getLogger(_PROXIES).setLevel(logging.INFO)  # the level that FLARE sets
        self.own.control_flow(None, collab.fl_ctx)


class Echo:
    """The function that FLARE calls at a site."""

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, phase: str, payload: bytes, code: bytes) -> tuple[bytes, bytes]:
        """What came, after the call: the first call of another kind still has the lines of those before."""
        print_requests(whole=phase != _QUIET)
        return payload, b""


class LetCalls(NeedsGate):
    """A component of the server's and the sites' processes, whose gates let FLARE's calls and what they need pass."""

    def __init__(self) -> None:
        super().__init__()
        let_calls()


def let_calls() -> None:
    """Add to what passes a gate what FLARE sends for its calls, which it decodes however long it is."""
    calls, results = (MSG_CHANNEL, MSG_TOPIC), (CellChannel.SERVER_COMMAND, ServerCommandNames.SUBMIT_UPDATE)
    for way, sent, answered in ((Way.JOB_TO_JOB, results, calls), (Way.SERVER_JOB_TO_SITE_JOB, calls, results)):
        STREAMS[way].update({sent, (CellChannel.RETURN_ONLY, ":".join(answered))})
    flare_permissions._too_much = lambda message: None


class CallingServer(CollabController):  # type: ignore[misc] # FLARE has no types
    """A job's component that makes FLARE's calls and runs a federation of fedlin in the same process."""

    def __init__(self) -> None:
        super().__init__("_server", sync_task_timeout=60, max_outbound_call_threads=len(CLIENTS) + 8)

    def start_controller(self, fl_ctx: Any) -> None:
        """FLARE's hook before the run."""
        own = FlareServer()
        own.start_controller(fl_ctx)
        fl_ctx.get_engine().add_component("_server", Calls(own))
        super().start_controller(fl_ctx)


class CalledSite(CollabExecutor):  # type: ignore[misc] # FLARE has no types
    """The same at a site."""

    def __init__(self) -> None:
        super().__init__("_client")
        let_calls()
        self.own = FlareSite()
        self.register_event_handler(EventType.ABOUT_TO_START_RUN, self._add_echo)
        self.register_event_handler([EventType.START_RUN, EventType.END_RUN], self.own.handle_event)

    def _add_echo(self, event_type: str, fl_ctx: Any) -> None:
        fl_ctx.get_engine().get_all_components()["_client"] = Echo()


def print_requests(*, whole: bool) -> None:
    """Let FLARE print a call's arguments in full with every one that arrives, as it does, or by the number of parts."""
    if not whole:
        ConsumableBufferList.__repr__ = lambda parts: f"<{len(parts)} parts>"
    elif "__repr__" in vars(ConsumableBufferList):
        del ConsumableBufferList.__repr__


def make_recorded(name: str, folder: str, job: str) -> Handler:
    """A site over FLARE."""
    own, recorder = make(name, kit=Path(folder)), SiteRecorder(Path(folder))

    def recorded(phase: str, payload: bytes) -> bytes:
        reply = own(phase, payload)
        recorder.enter(phase, payload, reply)
        return reply

    return recorded


def run_server(transport: Transport, folder: str, job: str) -> None:
    """FLARE's job: the bare calls are FLARE's own, to the whole group of sites."""
    service = json.loads((Path(folder) / "startup" / "fed_server.json").read_text(encoding="utf-8"))
    port = service["servers"][0]["service"]["target"].rpartition(":")[2]

    def call(level: int, phase: str, payload: bytes) -> object:
        for name in (_PROXIES, "nvflare.collab.api.group"):
            logging.getLogger(name).setLevel(level)
        return collab.clients(timeout=600.0).answer(phase, payload, b"")

    found = measure(
        transport,
        partial(call, logging.INFO, "calls"),  # the level that FLARE sets
        Deployment(
            Path(folder) / "runs",
            AuditTrail(Path(folder)),
            lambda: network_bytes(port),
            lambda: cpu_seconds(Path(folder).parent),
            partial(call, logging.WARNING, _QUIET),
        ),
    )
    (Path(folder) / FOUND).write_text(json.dumps(found), encoding="utf-8")
    conclude(Path(folder), {"status": "done"})


def run() -> dict[str, float]:
    """A process for the server and for each site, mutual TLS."""
    job.SERVER, job.SITE = f"{_NAME}.CallingServer", f"{_NAME}.CalledSite"
    kits._COMPONENTS[:] = job.SERVER, job.SITE
    kits._GATE["gate"] = kits.OWN["gate"] = f"{_NAME}.LetCalls"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with tempfile.TemporaryDirectory() as folder:
        project = create(Path(folder) / "federation", CLIENTS, "localhost", port)
        end = LocalFederation(project, {"server": f"{_NAME}:run_server", "client": f"{_NAME}:make_recorded"}).run()
        if end["status"] != "done":
            raise RuntimeError(end["error"])
        found: dict[str, float] = json.loads((project.server / FOUND).read_text(encoding="utf-8"))
    return found
