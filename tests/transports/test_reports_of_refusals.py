"""Reports of what was refused."""

import logging
from pathlib import Path

import pytest

from fedlin.audit import AuditTrail
from fedlin.transports.refusals import Refusals


def test_a_refusal_stands_where_it_cannot_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(trail: AuditTrail, event: str, **facts: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AuditTrail, "record", full)
    with caplog.at_level(logging.WARNING):
        Refusals(tmp_path).report("south", "dropped a message of south: long", "message dropped", why="long")
    assert [record.message for record in caplog.records] == [
        "dropped a message of south: long",
        "the audit trail does not have it: [Errno 28] No space left on device",
    ]


def test_each_sender_is_reported_by_itself(tmp_path: Path) -> None:
    refusals = Refusals(tmp_path)
    for _ in range(3):
        for sender in ("south", "west"):
            refusals.report(sender, "dropped", "message dropped", sender=sender, why="long")
    assert [entry.facts["sender"] for entry in AuditTrail(tmp_path).entries()] == ["south", "west"]
