"""What FLARE's own process at a site does where it is asked to: what a job needs, and nothing else."""

import os
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from nvflare.private.admin_defs import Message as Request
from nvflare.private.defs import RequestHeader, SysCommandTopic, TrainingTopic, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent

from fedlin.audit import AuditTrail
from fedlin.transports.flare_requests import ANSWERED, limit_requests, remove_jobs, unanswered

JOB = "8b2c0b0e-54a1-4f21-9d50-3f0a7b0c6a11"


def packed(*lengths: int) -> bytes:
    """A job with files of so many bytes, as FLARE sends it."""
    made = BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as job:
        for number, length in enumerate(lengths):
            job.writestr(f"config/{number}.json", bytes(length))
    return made.getvalue()


def request(topic: Any, job: Any = JOB, body: Any = None) -> Request:
    body = packed(10) if body is None else body
    made = Request(topic=topic, body=body)
    if job is not None:
        made.set_header(RequestHeader.JOB_ID, job)
    return made


def test_what_a_job_needs_is_answered() -> None:
    assert [unanswered(request(topic)) for topic in ANSWERED] == [None] * len(ANSWERED)
    assert unanswered(request(TrainingTopic.CHECK_STATUS, None)) is None
    assert unanswered(request(TrainingTopic.CANCEL_RESOURCE, None)) is None


def test_nothing_else_is_answered() -> None:
    """Of all that FLARE's processes at sites know how to do."""
    topics = {
        value
        for kind in (TrainingTopic, SysCommandTopic)
        for name, value in vars(kind).items()
        if not name.startswith("_") and value not in ANSWERED
    }
    assert {"sys.shell", "train.delete_run", "train.restart", "train.shutdown"} <= topics
    for topic in [*topics, None, ["train.deploy"], "", "train.Deploy"]:
        assert "which no job needs" in str(unanswered(request(topic)))
    assert unanswered("no request") == "it is no request"
    assert unanswered(Request.__new__(Request)) == "it is no request"  # what every request has was not sent along


@pytest.mark.parametrize("job", ["state", "startup", "..", f"../{JOB}", JOB.upper(), "", None, 1, [JOB], f"{{{JOB}}}"])
def test_the_name_of_a_job_names_no_other_folder(job: Any) -> None:
    """FLARE makes a path of it, and deletes what is there."""
    for topic in (TrainingTopic.DEPLOY, TrainingTopic.START_JOB, TrainingTopic.ABORT):
        assert "of a job that is called" in str(unanswered(request(topic, job)))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (packed(1 << 27), "more than 1000 files or 64 MB"),
        (packed(*[0] * 1001), "more than 1000 files or 64 MB"),
        (b"no job", "cannot be read"),
        ("text", "cannot be read"),
        (b"", "cannot be read"),
    ],
    ids=["long", "many", "none", "text", "empty"],
)
def test_a_job_that_fills_a_disk_is_not_unpacked(body: Any, why: str) -> None:
    """As FLARE would before it looks who has signed it: 128 MB are sent in 130 kB."""
    assert why in str(unanswered(request(TrainingTopic.DEPLOY, body=body)))


def test_the_folders_of_former_jobs_are_removed(tmp_path: Path) -> None:
    """But for the latest, one of which may run; and nothing else."""
    jobs = [tmp_path / str(uuid4()) for _ in range(6)]
    for number, job in enumerate(jobs):
        (job / "app").mkdir(parents=True)
        os.utime(job, (number, number))
    (tmp_path / "state").mkdir()
    remove_jobs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"state", *(job.name for job in jobs[-3:])}
    remove_jobs(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_what_is_refused_does_not_reach_flare_and_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: list[str] = []

    def dispatch(agent: Any, message: Any) -> Any:
        reached.append(message.payload.topic)
        return new_cell_message({}, Request(topic="reply", body="done"))

    monkeypatch.setattr(FedAdminAgent, "_dispatch_request", dispatch)
    limit_requests(tmp_path, monkeypatch.setattr)
    answers = [
        FedAdminAgent._dispatch_request(None, new_cell_message({}, asked)).payload.body
        for asked in (
            request(SysCommandTopic.SHELL),
            request(TrainingTopic.DELETE_RUN, "state"),
            request(TrainingTopic.DEPLOY),
        )
    ]
    assert reached == [TrainingTopic.DEPLOY]
    assert answers[-1] == "done"
    assert all("this site does not answer that" in answer for answer in answers[:2])
    entries = [entry.facts for entry in AuditTrail(tmp_path).entries()]
    assert [entry["event"] for entry in entries] == ["request refused"] * 2
    assert [entry["why"].split(",")[0] for entry in entries] == [
        "it asks for sys.shell",
        "it asks for train.delete_run",
    ]
