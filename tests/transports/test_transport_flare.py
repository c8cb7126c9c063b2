"""NVIDIA FLARE as a carrier of bytes; the tests of whole federations are in test_federation_flare.py."""

import threading
import time
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.collab.api.exceptions import RunAborted

from fedlin.transports.flare import FlareClient, FlareTransport

NAMES = ("a", "b", "c")


class Site:
    """What FLARE hands the server for each site, here without a wire."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, timeout: float) -> "Site":
        return self

    def answer(self, phase: str, payload: bytes) -> bytes:
        if phase == "late" and self.name == "a":
            time.sleep(0.6)
        if phase == "fail" and self.name == "b":
            raise ConnectionError("gone")
        if phase == "abort" and self.name == "c":
            raise RunAborted("over")
        return self.name.encode() + payload


@pytest.fixture
def transport() -> Any:
    carrier = FlareTransport([Site(name) for name in reversed(NAMES)])
    yield carrier
    carrier.close()


def test_messages_arrive(transport: FlareTransport) -> None:
    assert transport.clients() == ["a", "b", "c"]
    assert transport.exchange("x", b"1", NAMES, 5) == {"a": b"a1", "b": b"b1", "c": b"c1"}
    assert transport.exchange("x", {"a": b"1", "c": b"3"}, ["c", "a"], 5) == {"a": b"a1", "c": b"c3"}


def test_who_is_late_fails_or_is_unknown_is_absent(transport: FlareTransport) -> None:
    begun = time.monotonic()
    assert transport.exchange("late", b"", NAMES, 0.2) == {"b": b"b", "c": b"c"}
    assert transport.exchange("late", b"", NAMES, 5, lambda replies: len(replies) == 2).keys() == {"b", "c"}
    assert time.monotonic() - begun < 0.55
    assert transport.exchange("fail", b"", [*NAMES, "stranger"], 5) == {"a": b"a", "c": b"c"}


def test_an_aborted_job_is_over(transport: FlareTransport) -> None:
    with pytest.raises(RunAborted):
        transport.exchange("abort", b"", NAMES, 5)


def test_a_client_answers_one_message_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = 0, 0

    def make(name: str, folder: str) -> Any:
        def answer(phase: str, payload: bytes) -> bytes:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(0.05)
            inside -= 1
            return payload

        return answer

    monkeypatch.setattr("fedlin.transports.flare._program", lambda: make)
    monkeypatch.setattr("fedlin.transports.flare._whereabouts", lambda: ("site", "folder"))
    client = FlareClient()
    threads = [threading.Thread(target=client.answer, args=("x", b"")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
