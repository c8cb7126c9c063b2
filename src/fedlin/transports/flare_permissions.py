"""What FLARE's processes of a federation may send to each other: a list of it, and nothing else.

FLARE's processes do what a message on one of their channels and topics asks, and ask for few of them who sends it: a
site could end the job for all, and a server have a site's files read to it. The lists have what NVIDIA FLARE 2.9 and
fedlin send in a job of fedlin's. They go by the channel and the topic of a request and of a reply; where a request is
streamed, by those which stand in its parts, since all parts have the same channel and topic for FLARE.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from nvflare.apis.fl_constant import ReservedTopic, ServerCommandNames
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, Encoding, MessageHeaderKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL, OBJ_DOWNLOADER_TOPIC
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamDataType,
    StreamHeaderKey,
)
from nvflare.fuel.f3.streaming.stream_types import StreamCancelled, StreamError, StreamTargetUnreachable
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.stream_runner import TOPIC_STREAM_ABORT, TOPIC_STREAM_REQUEST

from fedlin.checks import printable
from fedlin.transports.flare_messages import ANSWER, CHANNEL, FETCH, INTRODUCE, READY, SERVER

_NAME = 80  # characters of a name that a sender chose
_WORD = 1024  # bytes of a site's word that it is there
_PLAIN = (None, Encoding.BYTES, Encoding.NONE)  # what FLARE takes as it is
_DECODED = 64 << 10  # bytes of what FLARE decodes of a site's: what is short may take far more memory decoded


class Way(Enum):
    """Which process sends to which. A site and the server have one process of their own, and one for every job."""

    SITE_TO_SERVER = auto()
    SITE_TO_JOB = auto()  # from a site's own process to the server's process of a job
    JOB_TO_SERVER = auto()
    JOB_TO_JOB = auto()  # of the same job
    USER_TO_SERVER = auto()  # FLARE's users have a process for every session
    SERVER_TO_SITE = auto()
    SERVER_TO_SITE_JOB = auto()  # from the server's own process to a site's of a job
    SERVER_JOB_TO_SITE_JOB = auto()


_BYE = (CellChannel.CELLNET, CellChannelTopic.Bye)  # a process ends
_ASK_SITE = (CellChannel.CLIENT_MAIN, "admin")  # what is asked: `flare_requests.py`
_REGISTRATION = {
    (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Register),
}
_OF_SITES = {
    *_REGISTRATION,
    (CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT),
    (CellChannel.SERVER_MAIN, CellChannelTopic.REPORT_JOB_FAILURE),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Quit),
    _BYE,
}
_OF_JOBS = {(CHANNEL, INTRODUCE), (CHANNEL, ANSWER), (CHANNEL, FETCH)}
_TASKS = (CellChannel.SERVER_COMMAND, ServerCommandNames.GET_TASK)  # to which the answer is that there is none
_SYNC = (CellChannel.AUX_COMMUNICATION, ReservedTopic.SYNC_RUNNER)
_BEAT = (CellChannel.AUX_COMMUNICATION, ReservedTopic.JOB_HEART_BEAT)
_END = (CellChannel.AUX_COMMUNICATION, ReservedTopic.END_RUN)


def _answers(*pairs: tuple[str, str]) -> set[tuple[str, str]]:
    """The channel and the topic of streamed replies to requests of these."""
    return {(CellChannel.RETURN_ONLY, f"{channel}:{topic}") for channel, topic in pairs}


# The channel and the topic of every request that is one message.
REQUESTS: Mapping[Way, set[tuple[str, str]]] = {
    Way.SITE_TO_SERVER: _OF_SITES,
    Way.SITE_TO_JOB: set(),
    Way.JOB_TO_SERVER: {_BYE},
    Way.JOB_TO_JOB: {(CHANNEL, READY)},
    Way.USER_TO_SERVER: {*_REGISTRATION, _BYE},
    Way.SERVER_TO_SITE: {_ASK_SITE, _BYE},
    Way.SERVER_TO_SITE_JOB: {_BYE},
    Way.SERVER_JOB_TO_SITE_JOB: {*_OF_JOBS, _BYE},
}

# The same of every reply that is one.
REPLIES: Mapping[Way, set[tuple[str, str]]] = {
    Way.SITE_TO_SERVER: {_ASK_SITE, _BYE},
    Way.SITE_TO_JOB: set(),
    Way.JOB_TO_SERVER: {_BYE},
    Way.JOB_TO_JOB: {*_OF_JOBS, _BYE},
    Way.USER_TO_SERVER: {_BYE},
    Way.SERVER_TO_SITE: _OF_SITES,
    Way.SERVER_TO_SITE_JOB: {_BYE},
    Way.SERVER_JOB_TO_SITE_JOB: {(CHANNEL, READY), _BYE},
}

# The channel and the topic of every request and reply that is streamed.
STREAMS: Mapping[Way, set[tuple[str, str]]] = {
    Way.SITE_TO_SERVER: set(),
    Way.SITE_TO_JOB: set(),
    Way.JOB_TO_SERVER: set(),
    Way.JOB_TO_JOB: {_TASKS, _SYNC, _BEAT, *_answers(*_OF_JOBS, _END)},
    Way.USER_TO_SERVER: {
        (CellChannel.HCI, "command"),
        (CellChannel.AUX_COMMUNICATION, TOPIC_STREAM_REQUEST),  # a job is sent
        (CellChannel.AUX_COMMUNICATION, TOPIC_STREAM_ABORT),
        (OBJ_DOWNLOADER_CHANNEL, OBJ_DOWNLOADER_TOPIC),  # what a job has left is fetched
    },
    Way.SERVER_TO_SITE: set(),
    Way.SERVER_TO_SITE_JOB: set(),
    Way.SERVER_JOB_TO_SITE_JOB: {*_OF_JOBS, _END, *_answers(_TASKS, _SYNC, _BEAT, (CHANNEL, READY))},
}

# What the receiver of a stream tells its sender: how much has come, or that it takes no more. A participant's own
# process tells that it could not pass a part on.
_RECEIPTS: Mapping[Way, set[str]] = {
    Way.SITE_TO_SERVER: set(),
    Way.SITE_TO_JOB: {STREAM_ERROR_TOPIC},
    Way.JOB_TO_SERVER: set(),
    Way.JOB_TO_JOB: {STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC},
    Way.USER_TO_SERVER: {STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC},
    Way.SERVER_TO_SITE: set(),
    Way.SERVER_TO_SITE_JOB: {STREAM_ERROR_TOPIC},
    Way.SERVER_JOB_TO_SITE_JOB: {STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC},
}

_FROM_SERVER = (Way.SERVER_TO_SITE, Way.SERVER_TO_SITE_JOB, Way.SERVER_JOB_TO_SITE_JOB)

# Why a stream ends, in FLARE's words. One more would end the server's process of the job.
_ERRORS = {None, *(error.__name__ for error in (StreamError, StreamTargetUnreachable, StreamCancelled))}


def refusal_at_server(sender: str, message: Message) -> str | None:
    """Why a message of a site's or a user's may not go on; None where it may.

    Args:
        sender: The name in the certificate of the connection that it came on.
        message: The message, in which its sender can have written anything.
    """
    user = "@" in sender
    origin, destination = _ends(message)
    own = is_valid_admin_client_name(origin) if user else _family(origin) == sender
    forged = "" if own else f" in the name of {_shown(origin)}"
    if _family(destination) != SERVER:
        return f"it is for {_shown(destination)}{forged}, and {_kind(user)}s reach the server alone"
    if not own:
        return f"it is{forged}"
    if not user and message.get_header(CellMessageHeaderKeys.CLIENT_NAME, sender) != sender:
        return f"it says that its sender is {_shown(message.get_header(CellMessageHeaderKeys.CLIENT_NAME))}"
    way = _way_to_server(user, origin.split("."), destination.split("."))
    if way is None:
        return _no_way(origin, destination)
    return _unwanted(sender, way, message) or (None if user else _too_much(message))


def refusal_at_site(site: str, message: Message) -> str | None:
    """Why a message that came on a site's connection to the server may not go on; None where it may.

    Args:
        site: The site's name.
        message: The message, in which the server can have written anything.
    """
    origin, destination = _ends(message)
    if _family(origin) != SERVER:
        return f"it is in the name of {_shown(origin)}"
    if _family(destination) != site:
        return f"it is for {_shown(destination)}, which is not here"
    way = _way_to_site(origin.split("."), destination.split("."))
    if way is None:
        return _no_way(origin, destination)
    return _unwanted(SERVER, way, message)


def _unwanted(sender: str, way: Way, message: Message) -> str | None:
    """Why nobody sends this on this way."""
    header = message.get_header
    kind = header(MessageHeaderKey.MSG_TYPE)
    channel, topic = header(MessageHeaderKey.CHANNEL), header(MessageHeaderKey.TOPIC)
    carries_parts = kind == MessageType.RETURN or channel == STREAM_CHANNEL
    if carries_parts and header(MessageHeaderKey.PAYLOAD_ENCODING) not in _PLAIN:
        return "it is to be decoded, as no part of a message is"
    if kind == MessageType.RETURN:
        if len(message.payload or b"") > _WORD:
            return "it says with more than a line that a message could not be delivered"
        request = header(MessageHeaderKey.ORIGINAL_HEADERS)
        target = request.get(MessageHeaderKey.DESTINATION) if isinstance(request, dict) else None
        return None if _family(target) == sender else "it says that a message to somebody else could not be delivered"
    if kind == MessageType.REQ and channel == STREAM_CHANNEL:
        return _unwanted_stream(sender, way, message)
    listed = {MessageType.REQ: REQUESTS, MessageType.REPLY: REPLIES}.get(kind, {})
    return None if (channel, topic) in listed.get(way, ()) else _not_sent(way, channel, topic, message)


def _unwanted_stream(sender: str, way: Way, message: Message) -> str | None:
    header = message.get_header
    topic = header(MessageHeaderKey.TOPIC)
    if topic == STREAM_DATA_TOPIC and STREAMS[way]:
        inner = header(StreamHeaderKey.CHANNEL), header(StreamHeaderKey.TOPIC)
        if header(StreamHeaderKey.ERROR_MSG) or inner in STREAMS[way]:  # or its sender gives it up
            return None
        return _not_sent(way, *inner, message)
    if topic not in _RECEIPTS[way]:
        return _not_sent(way, STREAM_CHANNEL, topic, message)
    error, failed = header(StreamHeaderKey.ERROR_TYPE), header(StreamHeaderKey.FAILED_DESTINATION)
    if error not in _ERRORS:
        return f"it says that a stream ended with {_shown(error)}, at which the server's process ends too"
    if failed is not None and _family(failed) != sender:
        return "it says that a stream to somebody else has ended"
    return None


def _too_much(message: Message) -> str | None:
    """Why a site's message may take more memory than it should: fedlin's are bytes, and FLARE's own are short."""
    header, length = message.get_header, len(message.payload or b"")
    streamed = header(MessageHeaderKey.CHANNEL) == STREAM_CHANNEL
    if streamed and (header(MessageHeaderKey.TOPIC) != STREAM_DATA_TOPIC or header(StreamHeaderKey.ERROR_MSG)):
        return None if length <= _WORD else f"it is a receipt of {length:,} bytes"
    keys = StreamHeaderKey if streamed else MessageHeaderKey
    channel, topic, encoding = (header(key) for key in (keys.CHANNEL, keys.TOPIC, keys.PAYLOAD_ENCODING))
    if CHANNEL in (channel, str(topic).partition(":")[0]):
        if encoding not in _PLAIN:
            return f"it is {_shown(channel)}:{_shown(topic)}, and not in bytes"
        return "it is word of more than a line" if topic == READY and length > _WORD else None
    whole = not streamed or (
        header(StreamHeaderKey.SEQUENCE) == 0 and header(StreamHeaderKey.DATA_TYPE) == StreamDataType.FINAL
    )
    return None if whole and length <= _DECODED else f"it is {_shown(channel)}:{_shown(topic)}, and long"


def _ends(message: Message) -> tuple[str, str]:
    """Whom it says that it is from and for."""
    return str(message.get_header(MessageHeaderKey.ORIGIN)), str(message.get_header(MessageHeaderKey.DESTINATION))


def _way_to_server(user: bool, origin: list[str], destination: list[str]) -> Way | None:
    """By the names of the two processes: a participant's, and after it that of a job."""
    if user:
        return Way.USER_TO_SERVER if len(destination) == 1 else None
    ways = {
        (1, 1): Way.SITE_TO_SERVER,
        (1, 2): Way.SITE_TO_JOB,
        (2, 1): Way.JOB_TO_SERVER,
        (2, 2): Way.JOB_TO_JOB,
    }
    return _of_one_job(ways, origin, destination)


def _way_to_site(origin: list[str], destination: list[str]) -> Way | None:
    ways = {
        (1, 1): Way.SERVER_TO_SITE,
        (1, 2): Way.SERVER_TO_SITE_JOB,
        (2, 2): Way.SERVER_JOB_TO_SITE_JOB,
    }
    return _of_one_job(ways, origin, destination)


def _of_one_job(ways: Mapping[tuple[int, int], Way], origin: list[str], destination: list[str]) -> Way | None:
    if len(origin) == len(destination) == 2 and origin[1] != destination[1]:
        return None
    return ways.get((len(origin), len(destination)))


def _no_way(origin: str, destination: str) -> str:
    return f"it is from {_shown(origin)} for {_shown(destination)}, between which nothing is sent"


def _not_sent(way: Way, channel: Any, topic: Any, message: Message) -> str:
    destination = message.get_header(MessageHeaderKey.DESTINATION)
    senders = {Way.USER_TO_SERVER: "no user"} | dict.fromkeys(_FROM_SERVER, "no server")
    return (
        f"it is {_shown(channel)}:{_shown(topic)} for {_shown(destination)}, which {senders.get(way, 'no site')} sends"
    )


def _kind(user: bool) -> str:
    return "user" if user else "site"


def _family(name: object) -> str:
    """The participant whose process has this name."""
    return str(name).partition(".")[0]


def _shown(name: object) -> str:
    return printable(str(name), _NAME)
