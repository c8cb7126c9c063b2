"""Flower as a carrier of bytes: both sides without a network, then its simulation, then SuperLink and SuperNodes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower, in an environment of its own: make test-flower")

import psutil
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

import fedlin
import flower_sites
from fedlin.errors import ArgumentError
from fedlin.transports.flower import FlowerTransport, client_app
from quadratics import X0

TESTS = Path(__file__).resolve().parents[1]
EXAMPLE = TESTS.parent / "examples" / "flower"
sys.path += [str(EXAMPLE), str(EXAMPLE / "local")]
example_client, local, task = (import_module(name) for name in ("client_app", "run", "task"))

NAMES = ("a", "b", "c")
Answer = Callable[[Message, Any], Message]


def echo(name: str, config: Any) -> Any:
    def answer(phase: str, payload: bytes) -> bytes:
        return f"{name} {phase} {config['colour']} ".encode() + payload

    return answer


class Grid:
    """Flower's grid without a network: nodes 1, 2, 3, ..., each an app with settings of its own."""

    def __init__(self, *names: str, registered: Iterable[str] = ()) -> None:
        self.nodes = dict(enumerate(names, 1))
        self.registered = set(registered)
        self.silent: set[int] = set()
        self.app: Answer = client_app(echo)
        self.sent: dict[str, Message] = {}
        self.routes: list[tuple[str, int]] = []  # of every message: its type, and to which node

    def get_nodes(self) -> list[Any]:
        return [SimpleNamespace(node_id=n, name=s if s in self.registered else "") for n, s in self.nodes.items()]

    def push_messages(self, messages: list[Message]) -> list[str]:
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(len(self.routes))
            self.routes.append((message.metadata.message_type, message.metadata.dst_node_id))
            self.sent[message.metadata.message_id] = message
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, numbers: list[str]) -> list[Message]:
        ready = [n for n in numbers if n in self.sent and self.sent[n].metadata.dst_node_id not in self.silent]
        return [self.answer(self.sent.pop(n)) for n in ready]

    def answer(self, message: Message) -> Message:
        name = self.nodes[message.metadata.dst_node_id]
        own = {"name": name, "colour": "red"} if name != "b" else {"name": name}
        context = SimpleNamespace(node_config=own, run_config={"colour": "blue"})
        return self.app(message, context)


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def ready(grid: Grid) -> FlowerTransport:
    transport = FlowerTransport(grid)
    transport.clients()  # asks for names, and does not wait
    return transport


def test_messages_arrive_and_a_nodes_own_settings_win() -> None:
    transport = ready(Grid("c", "a", "b"))
    assert transport.clients() == ["a", "b", "c"]
    got = transport.exchange("x", b"1", [*NAMES, "stranger"], 5)
    assert got == {"a": b"a x red 1", "b": b"b x blue 1", "c": b"c x red 1"}
    assert transport.exchange("y", {"a": b"1", "c": b"\0"}, ["c", "a"], 5) == {"a": b"a y red 1", "c": b"c y red \0"}


def test_who_is_late_fails_or_sends_something_else_is_absent() -> None:
    grid = Grid(*NAMES)
    transport = ready(grid)
    assert transport.clients() == ["a", "b", "c"]
    honest = grid.app

    def awkward(message: Message, context: Any) -> Message:
        if context.node_config["name"] == "a":
            return Message(Error(code=0, reason="no answer"), reply_to=message)
        if context.node_config["name"] == "b":
            return Message(RecordDict({"fedlin": ConfigRecord({"payload": "text"})}), reply_to=message)
        return honest(message, context)

    grid.app = awkward
    assert transport.exchange("x", b"", NAMES, 5) == {"c": b"c x red "}
    grid.app, grid.silent = honest, {1}
    begun = time.monotonic()
    assert transport.exchange("x", b"", NAMES, 0.3).keys() == {"b", "c"}
    assert time.monotonic() - begun < 2.0
    assert transport.exchange("x", b"", NAMES, 60, lambda replies: len(replies) == 2).keys() == {"b", "c"}
    del grid.nodes[3]
    assert transport.clients() == ["a", "b"]


def test_a_registered_name_is_not_asked_for_and_cannot_be_taken() -> None:
    grid = Grid("a", "b", registered="ab")
    transport = ready(grid)
    assert transport.clients() == ["a", "b"]
    assert grid.routes == []
    grid.nodes |= {3: "silent", 4: "liar"}
    grid.silent = {3}
    grid.app = lambda message, context: Message(
        RecordDict({"fedlin": ConfigRecord({"name": "a", "payload": b"lie"})}), reply_to=message
    )
    transport.clients()
    assert sorted(grid.routes) == [("query.name", 3), ("query.name", 4)]
    assert transport.clients() == ["a", "b"]
    transport.exchange("x", b"", ["a"], 5)
    assert grid.routes[2:] == [("query", 1)]


def told(**own: Any) -> str:
    """The name a node with these settings gives."""
    message = Message(RecordDict({"fedlin": ConfigRecord()}), dst_node_id=1, message_type="query.name")
    reply = client_app(echo)(message, SimpleNamespace(node_config=own, run_config={}))
    return str(reply.content["fedlin"]["name"])


def test_names_in_a_simulation_sort_as_numbers_do() -> None:
    assert [told(**{"partition-id": place, "num-partitions": 11}) for place in (2, 10)] == ["site-02", "site-10"]
    with pytest.raises(ArgumentError, match="no name"):
        told()


@pytest.mark.slow
def test_a_simulation_gives_the_simulated_models(tmp_path: Path) -> None:
    environment = {**os.environ, **local.QUIET, "FEDLIN_FOLDER": str(tmp_path), "FLWR_HOME": str(tmp_path / "flwr")}
    paths = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", "import flower_sites; flower_sites.simulate()"],
        env={**environment, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(tmp_path / flower_sites.MODELS) as models:
        for run, algorithm in flower_sites.RUNS.items():
            options: dict[str, Any] = {"seed": flower_sites.SEED, "x0": X0}
            expected = fedlin.simulate(
                algorithm, flower_sites.PROBLEM, flower_sites.PLAN, flower_sites.ROUNDS, **options
            )
            np.testing.assert_allclose(models[run], expected.iterates[1:], rtol=1e-10, atol=1e-10, err_msg=run)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = set(psutil.pids())
    yield
    begun = time.monotonic()
    while left := [p for p in psutil.process_iter(["name"]) if p.pid not in before and flower_process(p)]:
        assert time.monotonic() - begun < 60, left
        time.sleep(0.5)


def flower_process(process: psutil.Process) -> bool:
    """Alive, and Flower's or its Ray's."""
    words = ("flower-", "flwr-", "ray::", "raylet", "gcs_server")
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(w in " ".join(process.cmdline()) for w in words)
    except psutil.NoSuchProcess:
        return False


def simulated(config: dict[str, Any]) -> Any:
    """The example's model as `simulate` finds it."""
    parts = [example_client.problem(name, "", config["dim"]) for name in local.SITES]
    X, y = (np.stack([getattr(part.data, leaf)[0] for part in parts]) for leaf in ("X", "y"))
    problem = fedlin.problems.logistic(X, y, l2=0.1)
    return fedlin.simulate(task.algorithm(config), problem, task.plan(config), config["rounds"]).x


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("simulation", [True, False], ids=["simulation", "deployment"])
def test_the_example_gives_the_simulated_model(tmp_path: Path, simulation: bool) -> None:
    config = {"method": "fedlin", "rounds": 3, "tau": "2 5 10", "eta": 0.5, "dim": 20, "top": 5}
    with local.Federation(tmp_path / "run", simulation) as federation:
        if not simulation:
            stranger = federation.join("stranger", register=False)
            for name in local.SITES:
                federation.join(name)
            assert stranger.wait(120) != 0  # its key is not registered, and it is refused
            federation.processes.remove(stranger)
        else:  # a run that ended early, and the next one, which goes on with what both sides have on disk
            assert federation.run(["rounds=1"]) == "finished:completed"
        assert federation.run([f"rounds={config['rounds']}"]) == "finished:completed"
    model = np.load(tmp_path / "run" / "federation" / "server" / "model.npy")
    np.testing.assert_allclose(model, simulated(config), rtol=1e-10, atol=1e-10)
