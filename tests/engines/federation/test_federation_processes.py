"""Real processes, killed without warning: the run goes on and ends where it would have ended."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fedlin
import processes
from compilation import kept_in

SCRIPT = Path(processes.__file__)
LIMIT = 300.0  # seconds, on a machine that is busy with other things


class Cast:
    """The processes of a federation, each started again by its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        role = ["server"] if name == "server" else ["site", name[-1]]
        environment = {**os.environ, **kept_in(self.folder / "compiled")}
        self.running[name] = subprocess.Popen([sys.executable, SCRIPT, *role, self.folder], env=environment)

    def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].kill()
            self.running[name].wait()

    def played(self) -> int:
        path = self.folder / "server" / "log.jsonl"
        lines = [json.loads(text) for text in path.read_text().splitlines()[:-1]] if path.exists() else []
        return max((line["round"] for line in lines), default=0)

    def wait_for(self, rounds: int) -> None:
        deadline = time.monotonic() + LIMIT
        while self.played() < rounds:
            assert time.monotonic() < deadline, f"round {rounds} was not reached"
            assert self.running["server"].poll() is None, "the server ended early"
            time.sleep(0.01)


@pytest.fixture
def cast() -> Iterator[Cast]:
    with tempfile.TemporaryDirectory() as folder:  # a short path: those of sockets may not be long
        made = Cast(Path(folder))
        yield made
        made.kill(*made.running)


@pytest.mark.slow
def test_any_process_may_be_killed_at_any_moment(cast: Cast) -> None:
    for name in ("site-0", "site-1", "server"):
        cast.start(name)
    for rounds, victims in ((4, ["site-0"]), (9, ["server"]), (15, ["site-1", "server"]), (21, [*cast.running])):
        cast.wait_for(rounds)
        cast.kill(*victims)
        for name in victims:
            cast.start(name)
    assert cast.running["server"].wait(LIMIT) == 0
    simulated = fedlin.simulate(processes.ALGORITHM, processes.PROBLEM, processes.PLAN, processes.ROUNDS)
    np.testing.assert_array_equal(np.load(cast.folder / "x.npy"), simulated.x)
    log = (cast.folder / "server" / "log.jsonl").read_text()
    assert log.count('"resumed"') == 3
    assert "started afresh" not in log
