"""Sites' processes on one machine are forked, and are what they would be had they been started from nothing."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedlin.deploy.flare.fork_server import MARK, ForkedProcess, ForkServer
from fedlin.deploy.flare.processes import Process, members_of
from fedlin.errors import DeployError

pytest.importorskip("nvflare")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
PROGRAM = """\
import json, os, random, sys, threading, time
import jax, numpy as np
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.streaming.stream_utils import gen_stream_id

print(json.dumps({
    "arguments": sys.argv[1:], "folder": os.getcwd(), "first": sys.path[0], "name": __name__,
    "environment": dict(os.environ), "session": os.getsid(0) == os.getpid(), "umask": os.umask(0o077),
    "draws": [np.random.rand(), random.random()], "stream": gen_stream_id(), "threads": threading.active_count(),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")), "settings": CommConfigurator().config,
}), flush=True)
jax.numpy.ones(3).sum().block_until_ready()  # JAX starts in a forked process as in any
if "wait" in sys.argv:
    time.sleep(60)
sys.exit(int(sys.argv[-1]))
"""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = ForkServer({}, tmp_path_factory.mktemp("server") / "process.log")
    yield server
    server.close()


def launch(forks: ForkServer, folder: Path, *arguments: str) -> ForkedProcess:
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    return forks.launch(["program", *arguments], {MARK: str(folder), "OWN": "x", "PATH": os.environ["PATH"]}, folder)


def said(folder: Path) -> dict[str, object]:
    deadline, log = time.monotonic() + 60, folder / "process.log"
    while not log.exists() or not (lines := log.read_text(encoding="utf-8").splitlines()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    answer: dict[str, object] = json.loads(lines[-1])
    return answer


def test_a_forked_process_is_as_one_that_was_started(forks: ForkServer, tmp_path: Path) -> None:
    folders = [tmp_path / "north", tmp_path / "it's south"]
    processes = [launch(forks, folder, "a b", "7") for folder in folders]
    assert [process.wait() for process in processes] == [7, 7]
    assert [process.poll() for process in processes] == [7, 7]
    north, south = map(said, folders)
    for folder, answer in zip(folders, (north, south), strict=True):
        assert (answer["arguments"], answer["name"]) == (["a b", "7"], "__main__")
        assert (answer["folder"], answer["first"]) == (str(folder), str(folder))
        assert answer["environment"] == {MARK: str(folder), "OWN": "x", "PATH": os.environ["PATH"]}
        assert answer["session"]
        assert answer["umask"] == 0o077
        assert answer["threads"] == 1
        assert oct((folder / "process.log").stat().st_mode & 0o777) == oct(0o600)
    assert not set(north["draws"]) & set(south["draws"])  # type: ignore[call-overload]
    assert north["stream"] != south["stream"]


def test_a_forked_process_is_found_by_its_mark_and_holds_no_descriptor_of_others(
    forks: ForkServer, tmp_path: Path
) -> None:
    kits = [tmp_path / name for name in ("north", "south")]
    processes = [launch(forks, kit, "wait", "0") for kit in kits]
    marked = [Process(kit, "client", kit.name, "") for kit in kits]
    try:
        descriptors = [said(kit)["descriptors"] for kit in kits]
        assert descriptors[0] == descriptors[1]  # the second has none of the first one's connection
        members = members_of(marked)
        assert [[member.pid for member in members[kit]] for kit in marked] == [[forked.pid] for forked in processes]
        assert [process.poll() for process in processes] == [None, None]
        os.kill(processes[0].pid, signal.SIGKILL)
        assert processes[0].wait() == -signal.SIGKILL
        assert processes[1].poll() is None
    finally:
        for kit in marked:
            kit.stop()
    assert processes[1].wait() == -signal.SIGTERM


def test_a_forked_process_has_its_mark_once_it_is_known(forks: ForkServer, tmp_path: Path) -> None:
    """Or whoever ends a federation that was only just started would leave it behind."""
    for number in range(30):
        kit = tmp_path / f"site-{number}"
        process = launch(forks, kit, "0")
        try:
            assert psutil.Process(process.pid).environ()[MARK] == str(kit)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def test_a_forked_process_reads_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which say that its port asks for certificates: not those that lie where the server was started."""
    (tmp_path / "else" / "where").mkdir(parents=True)
    (tmp_path / "else" / "where" / "comm_config.json").write_text('{"internal": "of another site"}', encoding="utf-8")
    monkeypatch.chdir(tmp_path / "else")
    forks, folder = ForkServer({}, tmp_path / "process.log"), tmp_path / "north"
    folder.mkdir()
    (folder / "comm_config.json").write_text('{"internal": "its own"}', encoding="utf-8")
    try:
        assert launch(forks, folder, "0").wait() == 0
    finally:
        forks.close()
    assert said(folder)["settings"] == {"internal": "its own"}


def test_what_was_forked_goes_on_without_the_server_and_a_new_one_is_started(tmp_path: Path) -> None:
    forks = ForkServer({}, tmp_path / "process.log")
    first = launch(forks, tmp_path / "north", "wait", "0")
    forks.close()
    try:
        assert psutil.Process(first.pid).is_running()
        assert first.wait() == -1  # nobody can tell how it will end
        second = launch(forks, tmp_path / "south", "3")
        assert second.wait() == 3
    finally:
        os.kill(first.pid, signal.SIGKILL)
        forks.close()


def test_a_server_that_cannot_import_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "nvflare.py").write_text("raise ImportError('damaged')", encoding="utf-8")
    forks = ForkServer({}, tmp_path / "process.log")
    monkeypatch.setenv("PYTHONPATH", str(broken))  # the environment is that of the time when it starts
    try:
        with pytest.raises(DeployError, match="are forked from has ended"):
            launch(forks, tmp_path / "north", "0")
        assert "damaged" in (tmp_path / "process.log").read_text(encoding="utf-8")
    finally:
        forks.close()
