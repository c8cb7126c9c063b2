"""Whole federations over NVIDIA FLARE: processes of their own, mutual TLS, one machine."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import psutil

import federated_rows
import fedlin
from bad_certificates import expired_certificate
from compilation import kept_in
from federated_rows import MODELS, NAMES
from fedlin.deploy.flare.driver import Driver
from fedlin.deploy.flare.kits import Kind
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.flare.processes import Process
from fedlin.deploy.flare.programs import load_client
from fedlin.deploy.project import Project, create
from fedlin.deploy.runs import outcome
from fedlin.deploy.settings import read_settings
from fedlin.deploy.status import lines
from fedlin.transports.loopback import Loopback
from local_flare import free_port, importable
from template_data import drawn_problem

pytestmark = pytest.mark.slow
PROGRAMS: dict[Kind, str] = {"server": "federated_rows:serve_rows", "client": "federated_rows:make_rows"}
LIMIT = 300.0  # seconds for one thing, on a machine that is busy with others
TRACE = "trace"  # what must not be there
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)  # how gRPC begins to speak


@pytest.fixture(scope="module", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """FLARE's processes import what the tests do, and share what they compile."""
    with importable() as patch:
        for name, value in kept_in(tmp_path_factory.mktemp("compiled")).items():
            patch.setenv(name, value)
        yield


class Seen:
    """What was seen of a federation while it ran."""

    def __init__(self, project: Project, port: int, stranger: Project) -> None:
        self.project = project
        self.port = port
        self.stranger = stranger
        self.addresses: set[str] = set()
        self.greeted: dict[str, bool] = {}
        self.end: dict[str, Any] = {}
        self.in_one_process = project.folder.parent / "loopback"  # the same runs, without a carrier
        self.left: list[psutil.Process] = []
        self.jobs: dict[str, str | None] = {}  # how each job ended that was not to run

    def look(self, federation: LocalFederation) -> None:
        """Who listens where and talks to whom, and whom the server speaks to; once, while the job runs."""
        processes = [federation.server, *federation.sites.values()]
        if self.greeted or len(federation.server.members()) < 2:
            return
        self.addresses = {address for process in processes for address in addresses(process)}
        own, other = (project.site(NAMES[0]) / "startup" for project in (self.project, self.stranger))
        expired = expired_certificate(self.project, NAMES[0])
        for name, certificate in {
            "its own": (own / "client.crt", own / "client.key"),
            "another authority's": (other / "client.crt", other / "client.key"),
            "an expired one": expired,
            "none": None,
        }.items():
            self.greeted[name] = speaks(self.port, own / "rootCA.pem", certificate)


def addresses(process: Process) -> Iterator[str]:
    """Where it listens, and whom it is connected to."""
    for member in process.members():
        for connection in member.net_connections(kind="inet"):
            place = connection.laddr if connection.status == psutil.CONN_LISTEN else connection.raddr
            if place:
                yield place.ip.removeprefix("::ffff:")


def speaks(port: int, authority: Path, certificate: tuple[Path, Path] | None) -> bool:
    """Whether the server answers somebody with this certificate."""
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        context.load_cert_chain(*certificate)
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            tls.sendall(PREFACE)
            return bool(tls.recv(1))
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """One federation for everything that can be asked of one: first jobs that it must not run, then its own."""
    folder, port = tmp_path_factory.mktemp("flare"), free_port()
    project = create(folder / "own", NAMES, "localhost", port)
    found = Seen(project, port, create(folder / "stranger", NAMES, "localhost", port))
    federation = LocalFederation(project, PROGRAMS)
    processes = [federation.server, *federation.sites.values()]
    found.in_one_process.mkdir()
    alone = subprocess.Popen([sys.executable, federated_rows.__file__, found.in_one_process])
    try:
        for process in processes:
            process.start()
        for name, job in unwelcome(project, folder / TRACE).items():
            found.jobs[name] = send(federation.driver, job)
        federation.driver.job = project.job.resolve()
        assert alone.wait(LIMIT) == 0  # what it compiled, no site has to compile again
        with pytest.raises(Exception, match="not authorized"):  # nor a command
            federation.driver.session().ls_target(NAMES[0])
        deadline = time.monotonic() + LIMIT
        while (end := outcome(project.server)) is None:
            assert time.monotonic() < deadline
            federation.driver.advance()
            found.look(federation)
            time.sleep(0.2)
        found.end = end
    finally:
        alone.kill()
        federation.close()
    found.left = [member for process in processes for member in process.members()]
    return found


def unwelcome(project: Project, trace: Path) -> dict[str, Path]:
    """Jobs of an admin's with code in them, or with a component of somebody else's; either would leave a file."""
    code, component = (copytree(project.job, trace.parent / name) for name in ("code", "component"))
    (code / "app" / "custom").mkdir()
    (code / "app" / "custom" / "sent.py").write_text(f"open({str(trace)!r}, 'w').close()")
    settings = component / "app" / "config" / "config_fed_client.json"
    content = json.loads(settings.read_text())
    content["components"].append({"id": "x", "path": "subprocess.Popen", "args": {"args": ["touch", str(trace)]}})
    settings.write_text(json.dumps(content))
    return {"code": code, "component": component}


def send(driver: Driver, job: Path) -> str | None:
    """How a job ended."""
    driver.job, driver.ended = job, None
    deadline = time.monotonic() + LIMIT
    while driver.ended is None and time.monotonic() < deadline:
        driver.advance()
        time.sleep(0.2)
    return driver.ended


def test_every_method_gives_the_simulated_models(seen: Seen) -> None:
    """To the bit those of one process, which has held them to the simulator's before it ended."""
    assert seen.end == {"status": "done"}
    with np.load(seen.project.server / MODELS) as models, np.load(seen.in_one_process / MODELS) as expected:
        assert models.keys() == expected.keys()
        for name in expected:
            np.testing.assert_array_equal(models[name], expected[name], err_msg=name)


def test_everything_stays_on_this_machine_and_nothing_stays_behind(seen: Seen) -> None:
    assert seen.addresses == {"127.0.0.1"}
    assert seen.left == []


def test_only_a_certificate_of_this_federation_is_let_in(seen: Seen) -> None:
    assert seen.greeted == {"its own": True, "another authority's": False, "an expired one": False, "none": False}


def test_a_site_runs_nothing_that_is_sent(seen: Seen) -> None:
    """Neither code nor a component of somebody else's."""
    refused = {"FINISHED:FAILED_TO_RUN", "FINISHED:ABNORMAL", "FINISHED:EXECUTION_EXCEPTION"}
    assert set(seen.jobs) == {"code", "component"}
    assert set(seen.jobs.values()) <= refused
    assert not (seen.project.folder.parent / TRACE).exists()


README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.split("#")[0].split()[1:] for line in README.splitlines() if line.startswith("fedlin federation")]


@pytest.mark.long
def test_the_readmes_commands_run_a_federation_that_survives_a_crash(tmp_path: Path) -> None:
    """A site is killed on the way, and the model is the simulator's."""
    # The last one serves a page until it is ended: `test_watch_flare.py` drives it.
    init, start, status, logs, _watch = ([sys.executable, "-m", "fedlin", *words] for words in COMMANDS)
    subprocess.run([*init, "--port", str(free_port())], cwd=tmp_path, check=True)
    folder = tmp_path / "federation"
    settings = folder / "federation.toml"
    settings.write_text(settings.read_text().replace("rounds = 200", "rounds = 30"))
    with subprocess.Popen(start, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        try:
            wait_for_round(folder, 5, run)
            for member in Process(folder / "sites" / "south", "client", "south", "").members():
                os.kill(member.pid, signal.SIGKILL)
            said, _ = run.communicate(timeout=300)
        finally:
            if run.poll() is None:
                run.send_signal(signal.SIGINT)
    assert run.returncode == 0
    assert said.splitlines()[-1].startswith("done")
    events = [(line["event"], line.get("client")) for line in lines(folder / "server") if "event" in line]
    assert ("recovered", "south") in events
    assert ("resumed", None) not in events  # the job went on without it
    shown, logged = (subprocess.run(words, cwd=tmp_path, check=True, capture_output=True) for words in (status, logs))
    assert shown.stdout.startswith(b"round 30 of 30:")
    assert json.loads(logged.stdout.splitlines()[-1])["round"] == 30

    told = read_settings(folder)
    problem = drawn_problem(2)
    expected = fedlin.simulate(told.algorithm, problem, told.plan, told.rounds, seed=told.seed)
    np.testing.assert_allclose(np.load(folder / "server" / "model.npy"), expected.x, rtol=1e-10, atol=1e-10)


@pytest.mark.long
def test_a_federation_in_pytorch_runs_as_it_was_written(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'fedlin[torch]'")
    folder = tmp_path / "federation"
    federation = [sys.executable, "-m", "fedlin", "federation"]
    subprocess.run([*federation, "init", "--torch", *NAMES[:2], "--port", str(free_port())], cwd=tmp_path, check=True)
    settings = folder / "federation.toml"
    settings.write_text(settings.read_text().replace("rounds = 200", "rounds = 10"))
    subprocess.run([*federation, "start", "--local", "federation"], cwd=tmp_path, check=True, timeout=300)
    told = read_settings(folder)
    clients = [load_client(name, folder / "sites" / name, told) for name in NAMES[:2]]
    start, x = np.load(folder / "start.npy"), np.load(folder / "server" / "model.npy")
    carrier = Loopback({name: client.handle for name, client in zip(NAMES, clients, strict=False)})
    expected = fedlin.serve(told.algorithm, carrier, told.plan, told.rounds, x0=start, seed=told.seed)
    np.testing.assert_allclose(x, expected.x, atol=1e-6)
    assert sum(client.problem.loss(x) for client in clients) < sum(client.problem.loss(start) for client in clients)


def wait_for_round(folder: Path, number: int, run: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 240
    while not any(line.get("round", 0) >= number for line in lines(folder / "server")):
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
