"""A federation's folder and settings, without starting anything."""

import hashlib
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedlin
from fedlin.aggregation import bucketing, coordinate_median
from fedlin.cli import app
from fedlin.deploy.flare.certificates import check_certificate
from fedlin.deploy.flare.driver import Driver, bounded
from fedlin.deploy.flare.kits import check_port
from fedlin.deploy.flare.programs import load_client, make_client, run_server
from fedlin.deploy.flare.remote import attend
from fedlin.deploy.project import Project
from fedlin.deploy.runs import STATE, conclude, outcome
from fedlin.deploy.screen import Screen
from fedlin.deploy.settings import NAME, parse_settings, read_settings
from fedlin.deploy.site_template import client_text, settings_text
from fedlin.deploy.starting_model import read_start
from fedlin.deploy.status import Progress, lines, read_awaiting, read_progress, read_status
from fedlin.engines.federation.round_log import LOG
from fedlin.errors import DeployError
from fedlin.transports.loopback import Loopback
from fedlin.transports.message_limit import READ_TIMEOUT
from fedlin.transports.transport import Handler
from template_data import drawn_problem

SITE = {"tau": 4, "eta": 0.1}
GOOD: dict[str, Any] = {
    "run": {"rounds": 9, "dim": 3},
    "algorithm": {"name": "fedlin", "uplink": "error_feedback(top_k(2))"},
    "sites": {"b": {"tau": 2, "eta": 0.2}, "a": SITE},
}


def test_the_plan_follows_the_names() -> None:
    settings = parse_settings(GOOD)
    assert settings.sites == ("a", "b")
    assert settings.plan.tau.tolist() == [4, 2]
    assert settings.algorithm is fedlin.fedlin(uplink=fedlin.error_feedback(fedlin.top_k(2)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"extra": {}}, "no table is called 'extra'. Known: algorithm, evaluation, policy, prepare, run, sites"),
        ({"run": {"rounds": 9, "dim": 3, "round": 1}}, "run: no key is called 'round': did you mean 'rounds'"),
        ({"run": {"dim": 3}}, "run.rounds is missing"),
        (
            {"run": {"rounds": 9}},
            "run: give dim, .* start, a file with the model .* after, .* or a table \\[prepare\\]",
        ),
        ({"run": {"rounds": 9, "start": "../start.npy"}}, r"run.start = '../start.npy' is not allowed: give the name"),
        ({"run": 3}, "run = 3 is not allowed: give a table"),
        ({"run": {"rounds": 9, "dim": 3, "dtype": "float16"}}, "run.dtype = 'float16' is not allowed"),
        ({"policy": {"timeout": 0.0}}, "policy.timeout = 0.0 is not allowed"),
        ({"policy": {"forget_after": 3}}, "policy.forget_after = 3 means nothing"),
        ({"sites": {}}, "give every site its tau and eta"),
        ({"policy": {"max_share": 1.5}}, r"policy.max_share = 1.5 is not allowed: give a number in \(0, 1\]"),
        ({"sites": {"a": {"tau": 3}}}, "sites.a.eta is missing: give a finite number above 0"),
        ({"sites": {"a": 3}}, "sites.a = 3 is not allowed: give a table"),
        ({"sites": {"a": {**SITE, "weight": 0.0}}}, "sites.a.weight = 0.0 is not allowed"),
        ({"sites": {"a": {"tau": 0, "eta": 0.1}}}, "tau"),
        ({"algorithm": {"name": "fedfast"}}, r"\[algorithm\]: no method is called 'fedfast': .*Known: .*fedlin"),
        ({"algorithm": {"name": 3}}, "algorithm.name = 3 is not allowed"),
        (
            {"run": {"rounds": 9, "dim": 3, "aggregate": "median"}},
            "no aggregator is called 'median'.*coordinate_median",
        ),
        (
            {"run": {"rounds": 9, "dim": 3, "aggregate": "krum(3)"}, "algorithm": {"name": "fedavg"}},
            "needs at least 7 uploads",
        ),
        (
            {"run": {"rounds": 9, "dim": 3, "aggregate": "coordinate_median"}, "algorithm": {"name": "scaffold"}},
            "scaffold needs the mean of the uploads",
        ),
        ({"algorithm": {"name": "fedlin", "speed": 2}}, "no argument of fedlin is called 'speed'. Known: .*uplink"),
        (
            {"algorithm": {"name": "fedlin", "uplink": "top_k(2) + 1"}},
            r"'top_k\(2\) \+ 1' is not a uplink: write a name",
        ),
        ({"algorithm": {"name": "fedlin", "uplink": "__import__('os').getcwd()"}}, "is not a uplink: write a name"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, Any], told: str) -> None:
    with pytest.raises(fedlin.FedLinError, match=told):
        parse_settings({**GOOD, **change})


def test_what_is_made_of_the_uploads_can_be_written() -> None:
    run = {"rounds": 9, "dim": 3, "aggregate": "bucketing(coordinate_median(), s=2)"}
    made = parse_settings({**GOOD, "algorithm": {"name": "fedavg"}, "run": run})
    assert made.aggregate is bucketing(coordinate_median(), 2)
    assert parse_settings(GOOD).aggregate.is_mean


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("cast('float32')", fedlin.cast("float32")),
        ("innovation(natural())", fedlin.innovation(fedlin.natural())),
        ("gaussian(1.0, 0.1)", fedlin.privacy.gaussian(1.0, 0.1)),
    ],
)
def test_every_compressor_can_be_written(text: str, link: Any) -> None:
    made = parse_settings({**GOOD, "algorithm": {"name": "fedlin", "model_uplink": text}}).algorithm
    assert made is fedlin.fedlin(model_uplink=link)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "start.npy is not there: write it with numpy.save"),
        (b"no array", "start.npy is no array of numbers"),
        (np.ones((3, 1)), r"start.npy has shape \(3, 1\): give shape \(3,\), as run.dim says"),
        (np.ones(4), r"start.npy has shape \(4,\): give shape \(3,\), as run.dim says"),
        (np.array([1.0, np.nan, 0.0]), "start.npy has 1 entries that are NaN"),
    ],
    ids=["missing", "bytes", "matrix", "size", "nan"],
)
def test_a_start_that_cannot_be_one_is_named(tmp_path: Path, content: Any, told: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / "start.npy").write_bytes(content)
    elif content is not None:
        np.save(tmp_path / "start.npy", content)
    settings = parse_settings({**GOOD, "run": {"rounds": 9, "dim": 3, "start": "start.npy"}})
    with pytest.raises(DeployError, match=told):
        read_start(tmp_path, settings)


def test_a_run_starts_where_its_file_says(tmp_path: Path) -> None:
    start = np.arange(20.0)
    np.save(tmp_path / "start.npy", start)
    text = settings_text(["north"]).replace("dim = 20 ", 'start = "start.npy" ').replace("rounds = 200", "rounds = 3")
    (tmp_path / NAME).write_text(text)
    (tmp_path / "client.py").write_text(client_text("north", 0))
    run_server(Loopback({"north": make_client("north", str(tmp_path), str(tmp_path))}), str(tmp_path), str(tmp_path))
    told = read_settings(tmp_path)
    expected = fedlin.simulate(told.algorithm, drawn_problem(1), told.plan, 3, x0=start)
    np.testing.assert_allclose(np.load(tmp_path / "model.npy"), expected.x, rtol=1e-12)


def test_a_file_that_is_not_there_or_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="is not there"):
        read_settings(tmp_path)
    (tmp_path / NAME).write_text("rounds = ")
    with pytest.raises(DeployError, match="cannot be read"):
        read_settings(tmp_path)
    (tmp_path / NAME).write_text('[run]\nrounds = 1\ndim = 1\n[algorithm]\nname = "fedlin"\nspeed = 2\n[sites]\na = {}')
    with pytest.raises(DeployError, match=NAME):
        read_settings(tmp_path)


def test_the_templates_run_as_they_are(tmp_path: Path) -> None:
    """Two sites from the template, in one process, come to the minimiser of all their rows."""
    handlers = {}
    for number, name in enumerate(("north", "south")):
        kit = tmp_path / name
        kit.mkdir()
        (kit / "client.py").write_text(client_text(name, number))
        (kit / NAME).write_text(settings_text(["north", "south"]))
        handlers[name] = make_client(name, str(kit), str(kit))
    told = read_settings(tmp_path / "north")
    result = fedlin.serve(told.algorithm, Loopback(handlers), told.plan, 100, dim=told.dim)
    minimiser = drawn_problem(2).minimizer
    assert np.linalg.norm(result.x - minimiser) < 1e-6 * np.linalg.norm(minimiser)
    assert (tmp_path / "north" / STATE).is_dir()


def test_the_torch_template_is_a_model_to_start_from(tmp_path: Path) -> None:
    """Two sites hold one model and different rows; the loss falls over a few rounds."""
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'fedlin[torch]'")
    clients = {}
    for number, name in enumerate(("north", "south")):
        kit = tmp_path / name
        kit.mkdir()
        (kit / "client.py").write_text(client_text(name, number, torch=True))
        (kit / NAME).write_text(settings_text(["north", "south"], torch=True))
        clients[name] = load_client(name, kit, read_settings(kit))
    told = read_settings(tmp_path / "north")
    problems = [client.problem for client in clients.values()]
    np.testing.assert_array_equal(problems[0].start, problems[1].start)
    carrier = Loopback({name: client.handle for name, client in clients.items()})
    result = fedlin.serve(told.algorithm, carrier, told.plan, 20, x0=problems[0].start)

    def loss(x: Any) -> float:
        return float(np.mean([problem.loss(x) for problem in problems]))

    assert problems[0].loss(result.x) != problems[1].loss(result.x)
    assert loss(result.x) < 0.9 * loss(problems[0].start)


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        (None, "DeployError", "client.py is not there"),
        ("WEIGHT = 2.0", "DeployError", "has no function problem()"),
        ("def problem():\n    return ['a patient']", "ArgumentError", "problem = ['a patient'] is not allowed"),
        ("secret = {}['a patient']", "KeyError", "'a patient'"),
        ("import sys\nsys.exit('no rows of a patient')", "SystemExit", "no rows of a patient"),
    ],
)
def test_what_fails_at_a_site_is_told_by_its_type_and_can_be_mended(
    tmp_path: Path, text: str | None, kind: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it says stays in the site's log, under the number that the server has; then the owner mends the file."""
    (tmp_path / NAME).write_text(settings_text(["north"]).replace("rounds = 200", "rounds = 2"))
    if text is not None:
        (tmp_path / "client.py").write_text(text)
    site, asked = make_client("north", str(tmp_path), str(tmp_path)), 0

    def mended(phase: str, payload: bytes) -> bytes:
        nonlocal asked
        asked += 1
        if asked == 3:
            (tmp_path / "client.py").write_text(client_text("north", 0))
        return site(phase, payload)

    run_server(Loopback({"north": mended}), str(tmp_path), str(tmp_path))
    written = (tmp_path / STATE / LOG).read_text()
    (fault, recovered) = (line for line in lines(tmp_path) if line.get("event") in ("fault", "recovered"))
    reference = re.fullmatch(rf"it failed with {kind} \[reference (\w+) in its log\]", fault["why"])
    assert reference is not None
    assert f"reference {reference[1]}: " in caplog.text
    assert why in caplog.text
    assert "patient" not in written
    assert (recovered["client"], recovered["event"]) == ("north", "recovered")
    assert outcome(tmp_path) == {"status": "done", "rounds": 2}


def test_a_run_that_diverges_is_not_done(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(settings_text(["north"]).replace("eta = ", "eta = 9"))
    (tmp_path / "client.py").write_text(client_text("north", 0))
    with pytest.raises(DeployError, match="diverged"):
        run_server(
            Loopback({"north": make_client("north", str(tmp_path), str(tmp_path))}), str(tmp_path), str(tmp_path)
        )
    end = outcome(tmp_path)
    assert end is not None
    assert end["status"] == "diverged"
    assert "smaller steps" in end["error"]


def test_a_port_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "startup").mkdir()
        service = {"servers": [{"service": {"target": f"localhost:{port}"}}]}
        (tmp_path / "startup" / "fed_server.json").write_text(json.dumps(service))
        with pytest.raises(DeployError, match=f"port {port} is in use"):
            check_port(tmp_path)
    check_port(tmp_path)


def test_the_log_survives_a_crash_in_mid_line(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    line = {
        "round": 3,
        "move": 0.5,
        "gradient": 0.1,
        "bytes_up": 1,
        "bytes_down": 2,
        "seconds": 1.0,
        "late": ["a"],
        "answered": [],
        "attempts": 2,
    }
    (tmp_path / STATE).mkdir()
    text = json.dumps({"event": "began", "round": 0}) + "\n" + json.dumps(line) + "\n" + json.dumps(line)[:20]
    (tmp_path / STATE / LOG).write_text(text)
    now = read_status(tmp_path)
    assert now.progress is not None
    assert (now.progress.round, now.progress.late, [e["event"] for e in now.events]) == (3, ["a"], ["began"])
    recent = read_status(tmp_path, len(json.dumps(line)) + 30)
    assert (recent.progress, recent.events) == (now.progress, [])


def test_a_round_is_shown_once_and_events_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is looked at; the next round once a second has passed, an event at once, an old one never."""
    seconds = iter([5.0, 5.0, 5.2, 6.1, 6.1, 9.0, 9.0])
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    said: list[str] = []
    screen, events = Screen(said.append), [{"event": "resumed", "round": 0}]
    for number in (None, 1, 1, 2, 3, 3):
        if number == 2:
            events.append({"event": "recovered", "round": 1, "client": "north", "why": "no answer"})
            events.pop(0)  # the log is read from its end, and old lines drop out
        screen.show(None if number is None else Progress(number, 0.5, None, 8, 8, 1.0, [], 1), None, events)
    assert [line.split(":")[0] for line in said] == ["round 1", "after round 1", "round 3"]


def test_the_server_tells_whom_it_waits_for(tmp_path: Path) -> None:
    """Read by the sites while each is asked, one after the other, and by the command that shows it."""
    algorithm, names, seen = fedlin.fedlin(), ["a", "b"], []
    problem = fedlin.problems.least_squares(clients=2, dim=3, samples=9)

    def site(number: int) -> Handler:
        own = fedlin.Client(algorithm, problem.client(number)).handle

        def answer(phase: str, payload: bytes) -> bytes:
            seen.append(
                (phase, read_awaiting(tmp_path), CliRunner().invoke(app, ["federation", "status", str(tmp_path)]))
            )
            return own(phase, payload)

        return answer

    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "fed_server.json").touch()
    assert read_awaiting(tmp_path) is None
    carrier = Loopback({name: site(number) for number, name in enumerate(names)})
    fedlin.serve(algorithm, carrier, fedlin.Plan(1, 0.1), 2, dim=3, folder=tmp_path / STATE)
    for (phase, now, shown), awaited in zip(seen, [["a", "b"], ["b"]] * 7, strict=True):
        assert now is not None
        assert (now.phase, now.asked, now.awaited) == (phase, names, awaited)
        assert f"{phase} of round {now.round + 1}: waits for {', '.join(awaited)}; " in shown.output
    last = read_awaiting(tmp_path)
    assert last is not None
    assert (last.phase, last.round, last.awaited, last.over) == ("final", 2, [], True)


def test_a_certificate_nobody_would_accept_is_told_before_anything_starts(tmp_path: Path) -> None:
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
    from bad_certificates import expired_certificate
    from fedlin.deploy.project import create

    own, other = (create(tmp_path / name, ["north"], "localhost", 8002) for name in ("own", "other"))
    kit = own.site("north")
    for place in (kit, own.server, own.admin):
        check_certificate(place)
    certificate = kit / "startup" / "client.crt"
    certificate.write_bytes((other.site("north") / "startup" / "client.crt").read_bytes())
    with pytest.raises(DeployError, match="not signed by this federation's authority"):
        check_certificate(kit)
    certificate.write_bytes(expired_certificate(own, "north")[0].read_bytes())
    done = CliRunner().invoke(app, ["federation", "join", str(kit)])
    assert done.exit_code == 2
    assert "and not today: make new certificates" in done.output
    certificate.unlink()
    done = CliRunner().invoke(app, ["federation", "start", "--local", str(own.folder)])
    assert done.exit_code == 2
    assert "cannot be read" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ["init", "North"],
        ["init", "a", "a"],
        ["init", "server"],
        ["init", "no"],
        ["start", "nowhere"],
        ["status", "nowhere"],
        ["logs", "nowhere"],
        ["join", "nowhere"],
    ],
)
def test_a_command_that_cannot_be_met_leaves_with_two(words: list[str], tmp_path: Path) -> None:
    place = ["--out", str(tmp_path / "new")] if words[0] == "init" else []
    words = [str(tmp_path / word) if word == "nowhere" else word for word in words]
    done = CliRunner().invoke(app, ["federation", *words, *place])
    assert done.exit_code == 2
    assert done.output.startswith("fedlin: ")
    assert not (tmp_path / "new").exists()


def test_who_sends_the_job_hears_whom_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that comes late, then a site that comes late, then a job that runs to its end."""

    class Session:
        """What the driver asks FLARE's session."""

        def __init__(self) -> None:
            self.present = [["north"], ["north"], ["north", "south"]]
            self.statuses = ["RUNNING", "RUNNING", "FINISHED:COMPLETED"]

        def get_system_info(self) -> SimpleNamespace:
            return SimpleNamespace(client_info=[SimpleNamespace(name=name) for name in self.present.pop(0)])

        def list_jobs(self) -> list[dict[str, str]]:
            return [{"job_id": "zero", "status": "FINISHED:ABORTED"}]

        def submit_job(self, job: str) -> str:
            return "one"

        def get_job_meta(self, job: str) -> dict[str, str]:
            return {"status": self.statuses.pop(0)}

        def download_job_result(self, job: str, folder: str) -> str:
            conclude(Path(folder), {"status": "done", "rounds": 7})
            return folder

        def close(self) -> None:
            pass

    attempts: list[object] = [ConnectionError(), ConnectionError(), Session()]

    server = Project(tmp_path, ("north", "south"), 2).server
    for place in (server, config := tmp_path / "job" / "app" / "config"):
        place.mkdir(parents=True)
    (server / NAME).write_text("# of the run before")
    (config / NAME).write_text("# of this run")

    def session(driver: Driver) -> object:
        if len(attempts) > 1:
            assert (server / NAME).read_text() == "# of the run before"  # another run may go on
        found = attempts.pop(0) if len(attempts) > 1 else attempts[0]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(Driver, "session", session)
    monkeypatch.setattr("fedlin.deploy.flare.remote.check_certificate", lambda kit: None)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    said: list[str] = []
    assert attend(Project(tmp_path, ("north", "south"), 2), said.append) == {"status": "done", "rounds": 7}
    assert said == ["waiting for the server", "waiting for south", "the job starts"]
    assert (server / NAME).read_text() == "# of this run"  # so that the server hears the sites that are waited for


def running_job(settings: str) -> object:
    """A session with a server at which a job runs already, sent with these settings, and with one that crashed."""

    class Session:
        def __init__(self) -> None:
            self.submitted = 0
            self.aborted: list[str] = []

        def get_system_info(self) -> SimpleNamespace:
            return SimpleNamespace(client_info=[SimpleNamespace(name="north")])

        def list_jobs(self) -> list[dict[str, str]]:
            return [{"job_id": name, "status": "RUNNING"} for name in ("crashed", "running")]

        def do_app_command(self, job: str, topic: str, data: object) -> dict[str, Any]:
            if job == "crashed":
                raise ConnectionError
            return {"run": "first", "settings": settings, "events": []}

        def get_job_meta(self, job: str) -> dict[str, str]:
            return {"status": "RUNNING"}

        def submit_job(self, job: str) -> str:
            self.submitted += 1
            return "new"

        def abort_job(self, job: str) -> None:
            if job == "crashed":
                raise ConnectionError
            self.aborted.append(job)

        def close(self) -> None:
            pass

    return Session()


def test_a_job_that_runs_already_is_attended_to_or_told_of(tmp_path: Path) -> None:
    """Whoever sent it went away: the same settings go on with it, others change nothing, and it can be ended.

    Whether or not all sites are there.
    """
    config = tmp_path / "app" / "config"
    config.mkdir(parents=True)
    (config / NAME).write_text("settings")
    same, other = hashlib.sha256(b"settings").hexdigest(), "other"
    for settings in (same, other):
        driver = Driver(tmp_path, tmp_path, ["north", "south"], settle=lambda: pytest.fail("another run goes on"))
        session: Any = running_job(settings)
        driver._session = session
        assert driver.advance()
        assert session.submitted == 0
        assert driver.other == (None if settings == same else "first")
        assert driver.stop() == ["running"] == session.aborted


def test_a_server_that_cannot_take_the_job_is_not_said_to_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose disk is full; one that died since the look before is."""

    class Full:
        def list_jobs(self) -> list[dict[str, str]]:
            return []

        def get_system_info(self) -> SimpleNamespace:
            return SimpleNamespace(client_info=[SimpleNamespace(name="north")])

        def submit_job(self, job: str) -> str:
            raise OSError

        def close(self) -> None:
            pass

    def session(driver: Driver) -> object:
        driver._session = driver._session or Full()
        return driver._session

    monkeypatch.setattr(Driver, "session", session)
    driver = Driver(tmp_path, tmp_path, ["north"])
    assert not driver.advance()
    assert driver.awaited == "the server, which answers, but cannot take the job: see process.log there"
    driver._session = Full()
    assert not driver.advance()
    assert driver.awaited == "the server"


def test_a_job_whose_run_has_not_begun_is_asked_again(tmp_path: Path) -> None:
    """It is not yet known whether its settings are these, and there is nothing of it to show."""
    driver = Driver(tmp_path, tmp_path, ["north"])
    session: Any = running_job("")
    driver._session = session
    assert driver.advance()
    assert (session.submitted, driver.other, driver.ask({"events": 0})) == (0, None, None)


def test_a_call_that_never_ends_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        bounded(lambda: time.sleep(5), 0.1)
    nothing: dict[str, int] = {}
    with pytest.raises(KeyError):
        bounded(lambda: nothing["missing"])


@pytest.mark.slow
def test_one_request_ends_the_wait_for_a_server(tmp_path: Path) -> None:
    """Also in the middle of an attempt to reach it."""
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
    folder = tmp_path / "federation"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = str(unused.getsockname()[1])
    done = CliRunner().invoke(app, ["federation", "init", "north", "--out", str(folder), "--port", port])
    assert done.exit_code == 0, done.output
    command = [sys.executable, "-u", "-m", "fedlin", "federation", "start", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waiting for the server\n"
        time.sleep(3.0)  # the next attempt takes five seconds from the first
        waiting.send_signal(signal.SIGTERM)  # as Ctrl-C, which a process in the background may ignore
        try:
            assert waiting.wait(timeout=30) == 130
        finally:
            waiting.kill()


def test_what_init_writes(tmp_path: Path) -> None:
    """The root key is its owner's alone, a site runs no code that is sent, and a job sends none."""
    pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")
    folder = tmp_path / "federation"
    done = CliRunner().invoke(app, ["federation", "init", "north", "south", "--out", str(folder)])
    assert done.exit_code == 0, done.output
    assert stat.S_IMODE((folder / "authority" / "root.key").stat().st_mode) == 0o600
    assert [path.name for path in (folder / "authority").rglob("*.key")] == ["root.key"]  # and no one else's
    for site in ("north", "south"):
        local = folder / "sites" / site / "local"
        (rights,) = json.loads((local / "authorization.json").read_text())["permissions"].values()
        assert {name for name, who in rights.items() if who != "none"} == {"submit_job", "manage_job"}
        resources = json.loads((local / "resources.json").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert {"id": "gate", "path": "fedlin.transports.flare_gate.NeedsGate", "args": {}} in resources["components"]
        assert not resources["allow_log_streaming"]
    resources = json.loads((folder / "server" / "local" / "resources.json").read_text())
    assert {"gate", "rejoin"} <= {part["id"] for part in resources["components"]}
    connections = json.loads((folder / "server" / "local" / "comm_config.json").read_text())
    assert connections["grpc"]["max_workers"] >= 1000  # a connection has a thread, and a site two connections
    assert ["grpc.server_handshake_timeout_ms", 10_000] in connections["grpc"]["options"]
    assert connections["streaming_read_timeout"] == READ_TIMEOUT
    (startup,) = json.loads((folder / "server" / "startup" / "fed_server.json").read_text())["servers"]
    assert startup["max_num_clients"] >= 1000
    sent = sorted(path.relative_to(folder / "job").as_posix() for path in (folder / "job").rglob("*") if path.is_file())
    configs = ["config_fed_client.json", "config_fed_server.json", NAME]
    assert sent == [*(f"app/config/{name}" for name in configs), "meta.json"]
    client = json.loads((folder / "job" / "app" / "config" / "config_fed_client.json").read_text())
    assert [part["executor"]["args"] for part in client["executors"]] == [{}]
    assert not client["components"]
    again = CliRunner().invoke(app, ["federation", "init", "north", "--out", str(folder)])
    assert again.exit_code == 2
    assert "is not empty" in again.output
    within = CliRunner().invoke(app, ["federation", "init", "north", "--out", str(folder / NAME)])
    assert within.exit_code == 2
    assert "is a file" in within.output
    np.testing.assert_equal(read_settings(folder).plan.tau, read_settings(folder / "job" / "app" / "config").plan.tau)
