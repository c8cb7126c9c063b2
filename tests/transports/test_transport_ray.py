"""Ray as a carrier of bytes."""

import os
import time
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

# Looked for, not imported: Ray reads where to listen when it is imported, and the transport tells it.
if find_spec("ray") is None:
    pytest.skip("needs Ray: pip install 'fedlin[ray]'", allow_module_level=True)

import psutil

from fedlin.errors import FedLinError
from fedlin.transports.ray import RayTransport
from fedlin.transports.transport import Handler

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # Ray starts its processes so
]
NAMES = ("a", "b", "c")


def echo(name: str) -> Handler:
    def answer(phase: str, payload: bytes) -> bytes:
        if phase == "late" and name == "a":
            time.sleep(2.0)
        if phase == "fail" and name == "b":
            raise ValueError("no answer")
        if phase == "die" and name == "c":
            os._exit(1)
        return name.encode() + payload

    return answer


@pytest.fixture(scope="module")
def transport() -> Iterator[RayTransport]:
    carrier = RayTransport(echo, NAMES, workers=3)
    yield carrier
    carrier.close()
    assert not descendants()


def descendants() -> list[psutil.Process]:
    return [process for process in psutil.Process().children(recursive=True) if "ray" in process.name()]


def test_messages_arrive(transport: RayTransport) -> None:
    assert transport.clients() == ["a", "b", "c"]
    assert transport.exchange("x", b"1", NAMES, 60) == {"a": b"a1", "b": b"b1", "c": b"c1"}
    assert transport.exchange("x", {"a": b"1", "c": b"3"}, ["c", "a"], 60) == {"a": b"a1", "c": b"c3"}
    large = bytes(range(256)) * 40_000
    assert transport.exchange("x", large, ["b"], 60) == {"b": b"b" + large}


def test_who_is_late_or_fails_is_absent(transport: RayTransport) -> None:
    begun = time.monotonic()
    assert transport.exchange("late", b"", NAMES, 0.5) == {"b": b"b", "c": b"c"}
    assert time.monotonic() - begun < 1.5
    assert transport.exchange("fail", b"", ["b", "c"], 60) == {"c": b"c"}
    assert transport.exchange("late", b"", NAMES, 60, lambda replies: len(replies) == 2).keys() == {"b", "c"}


def test_a_client_that_dies_comes_back(transport: RayTransport) -> None:
    assert transport.exchange("die", b"", ["b", "c"], 20) == {"b": b"b"}
    deadline = time.monotonic() + 30
    while not (reply := transport.exchange("x", b"", ["c"], 10)):
        assert time.monotonic() < deadline
    assert reply == {"c": b"c"}


def test_everything_listens_on_and_talks_to_this_machine_only(transport: RayTransport) -> None:
    assert descendants()
    for process in [psutil.Process(), *descendants()]:
        for connection in process.net_connections(kind="inet"):
            place = connection.laddr if connection.status == psutil.CONN_LISTEN else connection.raddr
            assert not place or place.ip.removeprefix("::ffff:") == "127.0.0.1"


def test_names_and_workers_are_checked() -> None:
    with pytest.raises(FedLinError, match="a name of its own"):
        RayTransport(echo, ["a", "a"])
    with pytest.raises(FedLinError, match="workers = 0 is not allowed"):
        RayTransport(echo, ["a"], workers=0)
