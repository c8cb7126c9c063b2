"""What a tracker wrote is what the run measured."""

import json
import math
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedlin
from fedlin import trackers
from fedlin.errors import ArgumentError

ROUNDS = 30
PROBLEM = fedlin.problems.least_squares(clients=3, dim=4, samples=10)


def run(tracker: trackers.Tracker, problem: fedlin.problems.Problem = PROBLEM) -> fedlin.Result:
    return fedlin.simulate(fedlin.fedlin(), problem, fedlin.Plan(2, 0.005), ROUNDS, callbacks=[tracker])


def scalars(folder: Path) -> Iterator[tuple[str, int, float]]:
    """Name, round and value of every scalar in a folder of event files: length, checksum, event, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for path in folder.iterdir():
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event = Event.FromString(content[12 : 12 + length])
            yield from ((value.tag, event.step, value.simple_value) for value in event.summary.value)
            content = content[16 + length :]


def test_tensorboard_holds_every_round(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    with trackers.tensorboard(tmp_path) as track:
        result = run(track)
    written: dict[str, dict[int, float]] = {}
    for name, step, value in scalars(tmp_path):
        written.setdefault(name, {})[step] = value
    curves = result.curves()
    assert set(written) == set(curves) - {"round"}
    for name, values in written.items():
        assert sorted(values) == list(range(1, ROUNDS + 1))
        np.testing.assert_allclose([values[t] for t in range(1, ROUNDS + 1)], curves[name][1:], rtol=1e-6)  # float32


def test_what_is_not_known_is_not_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    problem = fedlin.problems.from_loss(lambda x, batch: ((x - batch[0]) ** 2).sum(), np.ones(2), np.ones((2, 1, 2)))
    with trackers.tensorboard(tmp_path) as track:
        run(track, problem)
    found = list(scalars(tmp_path))
    assert {name for name, _, _ in found} >= {"loss", "grad_norm"}
    assert not {name for name, _, _ in found} & {"gap", "distance"}
    assert all(math.isfinite(value) for _, _, value in found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from the database layer below MLflow
def test_mlflow_holds_every_round(tmp_path: Path) -> None:
    client = pytest.importorskip("mlflow").MlflowClient(f"sqlite:///{tmp_path / 'runs.db'}")
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    with trackers.mlflow("tests", run="one", uri=uri, params={"tau": 2}) as track:
        result = run(track)
    kept = client.get_run(track.run_id)  # type: ignore[attr-defined]
    assert kept.info.status == "FINISHED"
    assert kept.info.run_name == "one"
    assert kept.data.params == {"tau": "2"}
    for name, curve in result.curves().items():
        if name != "round":
            history = sorted(client.get_metric_history(kept.info.run_id, name), key=lambda metric: metric.step)
            assert [metric.step for metric in history] == list(range(1, ROUNDS + 1))
            np.testing.assert_array_equal([metric.value for metric in history], curve[1:])
    second = trackers.mlflow("tests", uri=uri)
    second(1, {"loss": 1.0})
    with pytest.raises(RuntimeError), second:
        raise RuntimeError
    assert client.get_run(second.run_id).info.status == "FAILED"  # type: ignore[attr-defined]
    assert client.get_run(second.run_id).data.metrics == {"loss": 1.0}  # type: ignore[attr-defined]


class Dashboard(trackers.Tracker):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.ends: list[bool] = []
        super().__init__()

    def write(self, number: int, measures: Any) -> None:
        """Nothing to keep."""

    def end(self, failed: bool) -> None:
        self.ends.append(failed)


def test_a_tracker_ends_once_and_knows_whether_the_run_failed() -> None:
    with Dashboard() as good:
        run(good)
    good.close()
    assert good.ends == [False]
    bad = Dashboard()
    with pytest.raises(RuntimeError), bad:
        raise RuntimeError
    assert bad.ends == [True]


def test_a_tracker_left_open_ends_with_python() -> None:
    code = (
        "from fedlin.trackers import Tracker\n"
        "class Loud(Tracker):\n"
        "    def write(self, number, measures): pass\n"
        "    def end(self, failed): print('ended', failed)\n"
        "Loud()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ended False\n"


def test_importing_the_trackers_imports_no_dashboard() -> None:
    code = "import sys, fedlin.trackers; print(sorted({'tensorboardX', 'mlflow', 'wandb'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def wandb_records(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log after W&B's header: blocks of 32 KiB, a record in one or several pieces."""
    block, place, record = 2**15, 7, b""
    while place + 7 <= len(content):
        if block - place % block < 7:  # too little for another piece
            place += block - place % block
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last piece
            yield record
            record = b""


def wandb_rows(folder: Path) -> list[dict[str, float]]:
    """What a run that was offline has logged, from the file that `wandb sync` would upload."""
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    Record = wandb_internal_pb2.Record  # type: ignore[attr-defined]
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 30  # W&B writes in a process of its own
    records, kinds = list[Any](), list[str]()
    while "exit" not in kinds and time.monotonic() < deadline:
        with suppress(DecodeError):  # of a record that is half written
            records = [Record.FromString(record) for record in wandb_records(file.read_bytes())]
            kinds = [record.WhichOneof("record_type") for record in records]
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]


def test_wandb_holds_every_round_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    with trackers.wandb("tests", run="one", folder=tmp_path, mode="offline", params={"tau": 2}) as track:
        result = run(track)
    rows = wandb_rows(tmp_path)
    assert [row["_step"] for row in rows] == list(range(1, ROUNDS + 1))
    for name, curve in result.curves().items():
        if name != "round":
            np.testing.assert_array_equal([row[name] for row in rows], curve[1:])
    with pytest.raises(ArgumentError, match="mode = 'on'"):
        trackers.wandb("tests", mode="on")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="project = ''"):
        trackers.wandb("")
