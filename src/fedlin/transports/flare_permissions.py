"""What the processes of sites and of FLARE's users may send to the server's: a list of it, and nothing else.

FLARE's processes do what a message on one of their channels and topics asks, and ask for few of them who sends it: a
site could end the job for all, or tell that it has failed. The list has what NVIDIA FLARE 2.9 and fedlin send in a job
of fedlin's. It goes by the channel and the topic of a request; where a request is streamed, by those which stand in its
parts, since all parts have the same channel and topic for FLARE.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from nvflare.apis.fl_constant import ReservedTopic, ServerCommandNames
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL, OBJ_DOWNLOADER_TOPIC
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)
from nvflare.fuel.f3.streaming.stream_types import StreamCancelled, StreamError, StreamTargetUnreachable
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.private.stream_runner import TOPIC_STREAM_ABORT, TOPIC_STREAM_REQUEST

from fedlin.checks import printable
from fedlin.transports.flare_messages import ANSWER, CHANNEL, FETCH, READY, SERVER

_NAME = 80  # characters of a name that a sender chose


class Way(Enum):
    """Which process sends to which. A site and the server have one process of their own, and one for every job."""

    SITE_TO_SERVER = auto()
    SITE_TO_JOB = auto()  # from a site's own process to the server's process of a job
    JOB_TO_SERVER = auto()
    JOB_TO_JOB = auto()  # of the same job
    USER_TO_SERVER = auto()  # FLARE's users have a process for every session


_BYE = (CellChannel.CELLNET, CellChannelTopic.Bye)  # a process ends
_REGISTRATION = {
    (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Register),
}

# The channel and the topic of every request that is one message.
REQUESTS: Mapping[Way, set[tuple[str, str]]] = {
    Way.SITE_TO_SERVER: {
        *_REGISTRATION,
        (CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT),
        (CellChannel.SERVER_MAIN, CellChannelTopic.REPORT_JOB_FAILURE),
        (CellChannel.SERVER_MAIN, CellChannelTopic.Quit),
        _BYE,
    },
    Way.SITE_TO_JOB: set(),
    Way.JOB_TO_SERVER: {_BYE},
    Way.JOB_TO_JOB: {(CHANNEL, READY)},
    Way.USER_TO_SERVER: {*_REGISTRATION, _BYE},
}

# The channel and the topic of every request and reply that is streamed.
STREAMS: Mapping[Way, set[tuple[str, str]]] = {
    Way.SITE_TO_SERVER: set(),
    Way.SITE_TO_JOB: set(),
    Way.JOB_TO_SERVER: set(),
    Way.JOB_TO_JOB: {
        (CellChannel.SERVER_COMMAND, ServerCommandNames.GET_TASK),  # to which the answer is that there is none
        (CellChannel.AUX_COMMUNICATION, ReservedTopic.SYNC_RUNNER),
        (CellChannel.AUX_COMMUNICATION, ReservedTopic.JOB_HEART_BEAT),
        (CellChannel.RETURN_ONLY, f"{CHANNEL}:{ANSWER}"),  # long replies
        (CellChannel.RETURN_ONLY, f"{CHANNEL}:{FETCH}"),
    },
    Way.USER_TO_SERVER: {
        (CellChannel.HCI, "command"),
        (CellChannel.AUX_COMMUNICATION, TOPIC_STREAM_REQUEST),  # a job is sent
        (CellChannel.AUX_COMMUNICATION, TOPIC_STREAM_ABORT),
        (OBJ_DOWNLOADER_CHANNEL, OBJ_DOWNLOADER_TOPIC),  # what a job has left is fetched
    },
}

# What the receiver of a stream tells its sender: how much has come, or that it takes no more. A site's own process
# tells that it could not pass a part on.
_RECEIPTS: Mapping[Way, set[str]] = {
    Way.SITE_TO_SERVER: set(),
    Way.SITE_TO_JOB: {STREAM_ERROR_TOPIC},
    Way.JOB_TO_SERVER: set(),
    Way.JOB_TO_JOB: {STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC},
    Way.USER_TO_SERVER: {STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC},
}

# Why a stream ends, in FLARE's words. One more would end the server's process of the job.
_ERRORS = {None, *(error.__name__ for error in (StreamError, StreamTargetUnreachable, StreamCancelled))}


def refusal(sender: str, site: bool, message: Message) -> str | None:
    """Why a message may not go on; None where it may.

    Args:
        sender: The name in the certificate of the connection that it came on.
        site: Whether that is a site of the federation.
        message: The message, in which its sender can have written anything.
    """
    header = message.get_header
    user = "@" in sender
    if not site and not user:
        return "it is not a site of this federation"
    origin, destination = header(MessageHeaderKey.ORIGIN), header(MessageHeaderKey.DESTINATION)
    if not isinstance(origin, str) or not isinstance(destination, str):
        return "it does not say whom it is from and whom it is for"
    own = is_valid_admin_client_name(origin) if user else _family(origin) == sender
    forged = "" if own else f" in the name of {_shown(origin)}"
    if _family(destination) != SERVER:
        return f"it is for {_shown(destination)}{forged}, and {_kind(user)}s reach the server alone"
    if not own:
        return f"it is{forged}"
    way = _way(user, origin.split("."), destination.split("."))
    if way is None:
        return f"it is from {_shown(origin)} for {_shown(destination)}, between which nothing is sent"
    if header(MessageHeaderKey.CONN_URL):
        # A process of FLARE's would connect to that address, whatever it is, and what comes from there is not checked.
        return "it asks the server to connect to another address"
    return _unwanted(sender, way, message)


def _unwanted(sender: str, way: Way, message: Message) -> str | None:
    """Why nobody sends this on this way."""
    header = message.get_header
    kind = header(MessageHeaderKey.MSG_TYPE)
    if kind == MessageType.REPLY:  # which FLARE gives to whoever waits for it under a number that cannot be guessed
        return None
    if kind == MessageType.RETURN:
        request = header(MessageHeaderKey.ORIGINAL_HEADERS)
        target = request.get(MessageHeaderKey.DESTINATION) if isinstance(request, dict) else None
        return None if _family(target) == sender else "it says that a message to somebody else could not be delivered"
    channel, topic = header(MessageHeaderKey.CHANNEL), header(MessageHeaderKey.TOPIC)
    if kind == MessageType.REQ and channel == STREAM_CHANNEL:
        return _unwanted_stream(sender, way, message)
    if kind == MessageType.REQ and _listed(REQUESTS[way], channel, topic):
        return None
    return _not_sent(way, channel, topic, message)


def _unwanted_stream(sender: str, way: Way, message: Message) -> str | None:
    header = message.get_header
    topic = header(MessageHeaderKey.TOPIC)
    if topic == STREAM_DATA_TOPIC and STREAMS[way]:
        inner = header(StreamHeaderKey.CHANNEL), header(StreamHeaderKey.TOPIC)
        if header(StreamHeaderKey.ERROR_MSG) or _listed(STREAMS[way], *inner):  # or its sender gives it up
            return None
        return _not_sent(way, *inner, message)
    if not isinstance(topic, str) or topic not in _RECEIPTS[way]:
        return _not_sent(way, STREAM_CHANNEL, topic, message)
    error, failed = header(StreamHeaderKey.ERROR_TYPE), header(StreamHeaderKey.FAILED_DESTINATION)
    if not isinstance(error, str | None) or error not in _ERRORS:
        return f"it says that a stream ended with {_shown(error)}, at which the server's process ends too"
    if failed is not None and _family(failed) != sender:
        return "it says that a stream to somebody else has ended"
    return None


def _way(user: bool, origin: list[str], destination: list[str]) -> Way | None:
    """By the names of the two processes: a participant's, and after it that of a job."""
    if user:
        return Way.USER_TO_SERVER if len(destination) == 1 else None
    if len(origin) == len(destination) == 2 and origin[1] != destination[1]:
        return None
    ways = {
        (1, 1): Way.SITE_TO_SERVER,
        (1, 2): Way.SITE_TO_JOB,
        (2, 1): Way.JOB_TO_SERVER,
        (2, 2): Way.JOB_TO_JOB,
    }
    return ways.get((len(origin), len(destination)))


def _listed(pairs: set[tuple[str, str]], channel: Any, topic: Any) -> bool:
    return isinstance(channel, str) and isinstance(topic, str) and (channel, topic) in pairs


def _not_sent(way: Way, channel: Any, topic: Any, message: Message) -> str:
    destination = message.get_header(MessageHeaderKey.DESTINATION)
    what = f"{_shown(channel)}:{_shown(topic)}"
    return f"it is {what} for {_shown(destination)}, which no {_kind(way is Way.USER_TO_SERVER)} sends"


def _kind(user: bool) -> str:
    return "user" if user else "site"


def _family(name: object) -> str:
    """The participant whose process has this name."""
    return str(name).partition(".")[0]


def _shown(name: object) -> str:
    return printable(str(name), _NAME)
