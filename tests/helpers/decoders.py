"""Everything that reads bytes which may be hostile: the wire, and every file of a server and of a site.

A target takes bytes, and answers or raises one of our own errors. The first byte of an input names its target. What
earlier searches found to lead to new lines is in `corpus.json` beside this file.
"""

import base64
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.sfm.constants import Types
from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, PREFIX_STRUCT
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.private.admin_defs import Message as Request
from nvflare.private.defs import RequestHeader, TrainingTopic

import fedlin
import secure_decoders
from fedlin.audit import AuditTrail
from fedlin.data import column_summary
from fedlin.data.fit_preparation import fit_preparation
from fedlin.data.preparation import Preparation, Recipe
from fedlin.data.prepare_table import summarise_table
from fedlin.deploy.flare.authority import Authority
from fedlin.deploy.kit_folders import site_name
from fedlin.deploy.run_history import RunHistory
from fedlin.deploy.runs import MODEL, OUTCOME, STATE, former_model, outcome
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.site_record import RECORD, read_record
from fedlin.deploy.site_settings import SITE, read_limits
from fedlin.engines import checkpoint
from fedlin.engines.federation import wire
from fedlin.engines.federation.client_state import ClientStates
from fedlin.engines.federation.evaluation import read_metrics
from fedlin.engines.federation.exchange import Reply
from fedlin.engines.federation.handshake import Handshake
from fedlin.engines.federation.limits import COUNTS, LEDGER, Ledger
from fedlin.engines.federation.membership import READMIT, ask_readmission
from fedlin.engines.federation.replies import refusal, sort_uploads
from fedlin.engines.federation.round_log import LOG, RoundLog
from fedlin.engines.federation.secret import secret_words
from fedlin.engines.federation.secure_records import SumRecords
from fedlin.engines.federation.server_state import ServerCheckpoints
from fedlin.engines.federation.site_preparation import _recipe
from fedlin.engines.federation.wire import Header, Kind, ReplyHeader, Task
from fedlin.precision import precision
from fedlin.transports import flare_gate
from fedlin.transports.flare_heads import read_head
from fedlin.transports.flare_messages import ANSWER, CHANNEL
from fedlin.transports.flare_rejoin import harmless, lacks, shown_end
from fedlin.transports.flare_requests import unanswered
from fedlin.transports.flare_server_gate import ServerGate
from fedlin.transports.flare_site_gate import SiteGate
from fedlin.transports.message_codes import Channel, JobKey
from fedlin.transports.message_limit import LIMIT, read_limit
from fedlin.transports.signatures import Sender, Signer

CORPUS = Path(__file__).with_name("corpus.json")
DIM = 3
HANDSHAKE = Handshake(fedlin.fedlin(uplink=fedlin.top_k(2), model_uplink=fedlin.quantize(4)), DIM, np.dtype("float64"))
RUN = HANDSHAKE.fingerprint + b"fuzz"
IDENTITY = {"contract": "fuzz"}


@cache
def folder() -> Path:
    """Where files are written to be read."""
    place = Path(tempfile.mkdtemp())
    (place / STATE).mkdir()
    (place / "startup").mkdir()
    return place


@cache
def client() -> fedlin.Client:
    """A site without a disk, which has answered a hello and begun."""
    problem = fedlin.problems.quadratic(np.eye(DIM)[None], np.ones((1, DIM)))
    site = fedlin.Client(HANDSHAKE.algorithm, problem, evaluate=lambda x: {"sum": float(x.sum())})
    hello = wire.write_message(Header(Kind.HELLO, RUN), wire.write_facts(HANDSHAKE.facts))
    site.handle("hello", hello)
    site.handle("begin", begin())
    return site


def begin() -> bytes:
    return wire.write_message(Header(Kind.BEGIN, RUN))


def file_target(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """What reads a file of this name in a folder, on these bytes."""

    def target(data: bytes) -> object:
        (folder() / name).parent.mkdir(parents=True, exist_ok=True)
        (folder() / name).write_bytes(data)
        return read(folder())

    return target


def site_handles(data: bytes) -> object:
    """As they are, and as the body of a message whose header and checksum are right."""
    client().handle("gradient", data)
    if len(data) < 3:
        return None
    kind, phase, rest = data[0] % 30, data[1] % 3, data[2:]
    header = Header(Kind(kind) if kind in set(Kind) else Kind.HELLO, RUN, data[2] % 4, phase, bool(data[1] & 4))
    reply = client().handle("gradient", wire.write_message(header, rest))
    return wire.read_message(reply)  # whatever it is, it is a message


def task(data: bytes) -> object:
    """The body of a task that goes on from a state the site has."""
    fields = Task(wire.identify(begin()), 0, 0, 1, 0.1)
    reply = client().handle("gradient", wire.write_task(Header(Kind.TASK, RUN, 0, 0, True), fields, data))
    return wire.read_message(reply)


def server_opens(data: bytes) -> object:
    """A reply, by all that the server does with one."""
    body = memoryview(data)
    reply = Reply(Kind(1 + len(data) % 16), ReplyHeader(bytes(8), 1), body)
    with precision(HANDSHAKE.dtype):
        for shape in (*HANDSHAKE.shapes.opening, *HANDSHAKE.shapes.later):
            sort_uploads({"south": reply._replace(kind=Kind.UPLOAD)}, shape.up, 1e3)
    refusal(reply)
    with suppress(fedlin.FedLinError):
        read_metrics(reply)
    header, rest = wire.read_message(data)
    return header, wire.read_reply(rest)


def summary(data: bytes) -> object:
    """A site's summary, merged with a good one, and what becomes of the columns."""
    found = column_summary.from_bytes(data)
    return fit_preparation(Recipe(), column_summary.merge_summaries([found, found]))


def prepared(data: bytes) -> object:
    return Preparation.from_bytes(data)


def certificate(data: bytes) -> object:
    Sender(data, "server").introduce(data)
    return None


class _NoOne(Signer):
    """Has no certificate."""

    def __init__(self) -> None:
        self.certificate = b""

    def sign(self, statement: bytes) -> bytes:
        return b""


_OWN_KEY = JobKey(_NoOne(), "job", "site")


def introduction(data: bytes) -> object:
    Channel(b"", "server", _OWN_KEY).introduce(data)
    return None


def request(data: bytes) -> object:
    return Authority.sign(Authority.__new__(Authority), data, {"north"})


def checkpoints(place: Path) -> object:
    checkpoint.read(place / "server-0000000001.ckpt", IDENTITY)
    return ServerCheckpoints(place, HANDSHAKE, IDENTITY).read()


def states(place: Path) -> object:
    return ClientStates(HANDSHAKE, place / "states").get(bytes(8))


def history(place: Path) -> object:
    log = RoundLog(place / STATE)
    log.resume(10)
    log.columns(3)
    found = RunHistory(place)
    found.update()
    return found.status(), found.curves()


def sums(place: Path) -> object:
    return SumRecords(place).sums


def requests(place: Path) -> object:
    (place / LEDGER).write_text(json.dumps({"run": RUN.hex(), "spent": 0.0}), encoding="utf-8")
    return Ledger(place)


def site_status(data: bytes) -> object:
    """What a site says of the jobs that run there."""
    return lacks(data.decode(errors="replace"), "job")


def job_report(data: bytes) -> object:
    """What a site says of how its process of a job ended."""
    report = Message({MessageHeaderKey.ORIGIN: "south"}, _json(data))
    return harmless(report), shown_end(report)


def message_head(data: bytes) -> object:
    """The head of any message, as the gates of the server and of a site have it."""
    message = Message(read_head(data), data)
    server, site = _gates()
    if not server.passes("south", message) and not site.passes(None, message):
        raise fedlin.errors.WireError("the message was dropped")
    return None


def frame(data: bytes) -> object:
    """What comes on a connection before it is known to be a message, and by which a process introduces itself."""
    flare_gate._prefix(data)
    flare_gate._check_introduction(data[PREFIX_LEN:])
    return None


def site_request(data: bytes) -> object:
    """What the server asks of FLARE's process at a site."""
    request = Request(topic=data[:20].decode(errors="replace"), body="")
    request.set_header(RequestHeader.JOB_ID, _json(data[20:]))
    return unanswered(request)


@cache
def _gates() -> tuple[ServerGate, SiteGate]:
    place = Path(tempfile.mkdtemp())
    (place / NAME).write_text("[sites]\nsouth = {}\n", encoding="utf-8")
    return ServerGate(place, "server"), SiteGate(place, "south")


def _json(data: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(data)
    return data


PUBLIC = "09" + "00" * 31  # the base point of X25519
TARGETS: dict[str, Callable[[bytes], object]] = {
    "site": site_handles,
    "task": task,
    "reply": server_opens,
    "summary": summary,
    "preparation": prepared,
    "recipe": _recipe,
    "certificate": certificate,
    "request": request,
    "checkpoint": file_target("server-0000000001.ckpt", checkpoints),
    "state": file_target(f"states/0000000001-{bytes(8).hex()}.state", states),
    "ledger": file_target(LEDGER, Ledger),
    "log": file_target(f"{STATE}/{LOG}", history),
    "waiting": file_target(f"{STATE}/waiting.jsonl", lambda place: RunHistory(place).status()),
    "outcome": file_target(OUTCOME, outcome),
    "record": file_target(f"{STATE}/{RECORD}", read_record),
    "settings": file_target(NAME, read_settings),
    "limits": file_target(SITE, read_limits),
    "trail": file_target("audit.jsonl", lambda place: (AuditTrail(place).record("next"), AuditTrail(place).head())),
    "model": file_target(f"runs/a/{MODEL}", lambda place: former_model(place, "a")),
    "name": file_target("startup/fed_client.json", site_name),
    "secret": file_target("secret", lambda place: secret_words(None, fedlin.fedavg(), place, central=False)),
    "message limit": file_target(LIMIT, read_limit),
    "introduction": introduction,
    "sums": file_target("sums.json", sums),
    "requests": file_target(f"{RUN.hex()}/{COUNTS}", requests),
    "readmission": file_target(READMIT, lambda place: ask_readmission(place, "south")),
    "site status": site_status,
    "job report": job_report,
    "message head": message_head,
    **secure_decoders.TARGETS,
    "frame": frame,
    "site request": site_request,
}
NAMES = list(TARGETS)


def check(data: bytes) -> None:
    """Give an input to the target that its first byte names; raises whatever is not one of our own errors."""
    if not data:
        return
    with suppress(fedlin.FedLinError):
        TARGETS[NAMES[data[0] % len(NAMES)]](data[1:])


def seeds() -> Iterator[bytes]:
    """What is right, for every target: what others are made from."""
    hello = wire.write_message(Header(Kind.HELLO, RUN), wire.write_facts(HANDSHAKE.facts))
    upload = wire.write_reply(Header(Kind.UPLOAD, RUN), ReplyHeader(bytes(8), 1), bytes(24))
    table = fedlin.data.RawTable(
        {"age": np.array(["3", "4", "", "5"], object)}, np.array(["a", "b", "a", "b"], object), None
    )
    told = summarise_table(table, Recipe())
    made = fit_preparation(Recipe(), column_summary.merge_summaries([told]))
    site = "[limits]\ntau = 5\nepsilon = 1.0\n"
    settings = '[run]\nrounds = 9\ndim = 3\n[algorithm]\nname = "fedlin"\nuplink = "top_k(2)"\n[policy]\nquorum = 1\n'
    played = {"round": 1, "move": 0.1, "gradient": 1.0, "answered": ["a"], "late": [], "seconds": 1.0, "attempts": 1}
    sums = {"bytes_up": 8, "bytes_down": 8, "wire_up": 9, "wire_down": 9, "gradients": 2, "took": {"a": 0.1}}
    fault = {"event": "fault", "round": 1, "client": "a", "kind": "silent", "why": "b", "doing": "c", "time": 1.0}
    place = folder()
    checkpoint.write(place / "seed.ckpt", IDENTITY, {"leaf0": np.ones(3)}, 0o600)
    np.save(place / "seed.npy", np.ones(3))
    asked = {"round": 0, "phase": "hello", "asked": ["a"], "process": 1, "time": 1.0}
    heartbeat = {
        MessageHeaderKey.ORIGIN: "south",
        MessageHeaderKey.DESTINATION: "server",
        MessageHeaderKey.MSG_TYPE: MessageType.REQ,
        MessageHeaderKey.CHANNEL: CellChannel.SERVER_MAIN,
        MessageHeaderKey.TOPIC: CellChannelTopic.HEART_BEAT,
    }
    part = {
        MessageHeaderKey.ORIGIN: "south.job",
        MessageHeaderKey.DESTINATION: "server.job",
        MessageHeaderKey.CHANNEL: STREAM_CHANNEL,
        MessageHeaderKey.TOPIC: STREAM_DATA_TOPIC,
        StreamHeaderKey.CHANNEL: CellChannel.RETURN_ONLY,
        StreamHeaderKey.TOPIC: f"{CHANNEL}:{ANSWER}",
        StreamHeaderKey.STREAM_ID: 1,
        StreamHeaderKey.SEQUENCE: 0,
        StreamHeaderKey.DATA_TYPE: StreamDataType.FINAL,
        StreamHeaderKey.SIZE: 9,
    }
    hello_frame = msgpack.packb({"endpoint_name": "south", "timestamp": 1.0, "fqcn": "south"})
    prefix = PREFIX_STRUCT.pack(PREFIX_LEN + len(hello_frame), 0, Types.HELLO, 0, 0, 0, 1, 0)
    right: dict[str, list[Any]] = {
        "site": [hello, begin(), b"\x03\x04\x00" + bytes(40)],
        "task": [np.ones(DIM).tobytes()],
        "reply": [upload, wire.write_facts({"weight": 1.0, "metrics": {"a": 1.0}}), bytes(24)],
        "summary": [column_summary.to_bytes(told)],
        "preparation": [made.to_bytes()],
        "recipe": [{"drop": ["a"], "scale": "robust"}],
        "certificate": [b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"],
        "request": [b"-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n"],
        "checkpoint": [(place / "seed.ckpt").read_bytes()],
        "state": [(place / "seed.ckpt").read_bytes()],
        "ledger": [{"run": "ab", "spent": 1.0}],
        "log": ["\n".join(json.dumps(line) for line in ({**played, **sums}, fault)) + "\n"],
        "waiting": [json.dumps(asked) + '\n{"answered": "a"}\n'],
        "outcome": [{"status": "done", "rounds": 3}],
        "record": [{"run": "ab", "round": 3}],
        "settings": [settings + "[sites]\na = { tau = 2, eta = 0.1 }\n"],
        "limits": [site],
        "trail": ['{"number": 1, "event": "asked", "before": "0"}\n'],
        "model": [(place / "seed.npy").read_bytes()],
        "name": [{"client": {"fqsn": "north"}}],
        "secret": [bytes(32)],
        "message limit": [b"100"],
        "sums": [{"bound": 1.0, "sums": [["ab", "cd", ["a", "b"]]]}],
        "requests": [b"0\n0\n1\n"],
        "readmission": [json.dumps(["south"])],
        "site status": [{"running_jobs": [{"job_id": "job"}]}],
        "job report": [{"job_id": "job", "code": 101, "reason": "it failed"}],
        "message head": [msgpack.packb(heartbeat), msgpack.packb({**heartbeat, **part})],
        "frame": [prefix + hello_frame],
        "site request": [TrainingTopic.CHECK_STATUS.encode().ljust(20)],
        **secure_decoders.right(),
        "introduction": [json.dumps(["-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", PUBLIC, "ab"])],
    }
    for number, name in enumerate(NAMES):
        for content in right[name]:
            data = json.dumps(content) if isinstance(content, dict) else content
            yield bytes([number]) + (data.encode() if isinstance(data, str) else data)


def corpus() -> list[bytes]:
    """What is right, and what earlier runs found to lead elsewhere."""
    found: dict[str, list[str]] = json.loads(CORPUS.read_text(encoding="utf-8")) if CORPUS.exists() else {}
    kept = [bytes([NAMES.index(name)]) + base64.b85decode(one) for name in found for one in found[name]]
    return [*seeds(), *kept]
