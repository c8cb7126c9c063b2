"""Slips of operators and owners, and moments of bad luck: what was there stays, and what is wrong is told."""

import errno
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from federation_command import invoke, two_sites
from fedlin.deploy.flare import local_federation, processes, remote
from fedlin.deploy.flare.driver import Driver
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.flare.processes import Process
from fedlin.deploy.folder_lock import locked
from fedlin.deploy.project import Project
from fedlin.deploy.run_history import METRICS, RunHistory
from fedlin.deploy.runs import STATE, conclude, outcome
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.site_settings import SITE, read_limits
from fedlin.deploy.watch_page import KEY, WatchServer
from fedlin.deploy.watch_snapshot import view_of
from fedlin.engines import checkpoint
from fedlin.engines.federation.limits import LEDGER
from fedlin.engines.federation.membership import READMIT
from fedlin.errors import DeployError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return two_sites(tmp_path)


def log(folder: Path, *events: dict[str, Any]) -> Path:
    """The server's log, as of a run that has begun; the folder of its state."""
    state = folder / "server" / STATE
    state.mkdir(exist_ok=True)
    began = {"event": "began", "round": 0, "clients": ["north", "south"], "weights": {"north": 1.0, "south": 1.0}}
    (state / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (began, *events)))
    return state


def kept_out(name: str) -> dict[str, Any]:
    return {"event": "fault", "round": 1, "client": name, "kind": "quarantined", "why": "NaN", "doing": "nothing"}


def test_two_sites_that_are_let_in_one_after_the_other_are_both_let_in(folder: Path) -> None:
    state = log(folder, kept_out("north"), kept_out("south"))
    for name in ("north", "south"):
        assert invoke("readmit", folder, name)[0] == 0
    assert json.loads((state / READMIT).read_text()) == ["north", "south"]


@pytest.mark.parametrize(("name", "others"), [("nroth", "north"), ("south", "north")])
def test_letting_in_whom_nobody_keeps_out_is_told(folder: Path, name: str, others: str) -> None:
    """A name that was misspelt would else be waited for in vain."""
    state = log(folder, kept_out("north"))
    code, said = invoke("readmit", folder, name)
    assert code == 2
    assert f"'{name}' is not kept out of this run, and {others} is" in said
    assert not (state / READMIT).exists()


def test_a_federation_that_is_joined_is_not_started_on_the_same_machine(folder: Path) -> None:
    """It would end the processes that `join` keeps, which would start them again, and so on."""
    with locked(folder / "server"):
        code, said = invoke("start", "--local", folder)
    assert code == 2
    assert f"server is in use by process {os.getpid()}" in said


def test_the_job_of_a_run_that_goes_on_stays_as_it_was_sent(folder: Path) -> None:
    """It is sent again when a site was away: with other settings that would be another run, or none."""
    project = Project.read(folder, run="second")
    sent, heard = project.job / "app" / "config" / NAME, project.server / NAME
    heard.write_bytes(sent.read_bytes())  # as the server does when the run begins
    before = sent.read_bytes()
    with locked(folder):
        assert invoke("add", "west", folder)[0] == 0
        assert invoke("remove", "south", folder)[0] == 0
        assert invoke("renew", folder)[0] == 0
        assert "is in use by process" in invoke("stop", folder)[1]
    assert sent.read_bytes() == before
    assert heard.read_bytes() == before  # a site that is removed is one until the next run
    assert read_settings(sent.parent).name == "second"
    Project.read(folder, run="third")
    assert read_settings(sent.parent).sites == ("north", "west")


def test_a_full_disk_leaves_the_settings_as_they_were(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / NAME).read_text()

    def full(path: Any, *rest: Any, **options: Any) -> Any:
        if Path(path).name.startswith(NAME):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return open(path, *rest, **options)

    monkeypatch.setattr(checkpoint, "open", full, raising=False)
    for words in (("remove", "south", folder), ("add", "west", folder)):
        code, said = invoke(*words)
        assert code == 2
        assert os.strerror(errno.ENOSPC) in said
        assert "Traceback" not in said
    assert (folder / NAME).read_text() == before
    assert read_settings(folder).sites == ("north", "south")


def test_a_name_that_was_a_site_s_is_not_given_to_another(folder: Path, tmp_path: Path) -> None:
    """Its former certificate is good for most of a year, and would be heard under that name."""
    assert invoke("remove", "south", folder)[0] == 0
    (folder / "sites" / "south").rename(tmp_path / "away")
    code, said = invoke("add", "south", folder)
    assert code == 2
    assert "whoever has its former key would take part again" in said
    assert invoke("add", "south-2", folder)[0] == 0


def test_what_a_command_writes_is_its_owner_s_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the shell of who gives the command allows others."""
    monkeypatch.setattr(processes, "_LOG_SIZE", 10)

    def attend(project: Project, say: object) -> dict[str, str]:
        (project.job / ".signature").touch()  # as FLARE does
        return {"status": "done"}

    monkeypatch.setattr(remote, "attend", attend)
    before = os.umask(0o022)
    try:
        assert invoke("remove", "south", folder)[0] == 0
        assert invoke("start", folder)[0] == 0
        process = Process(folder / "server", "server", "server", "")
        (folder / "server" / "process.log").write_text("long enough")
        process.rotate_logs()
    finally:
        os.umask(before)
    assert (folder / "server" / "process.log.1").read_text() == "long enough"
    written = [folder / "server" / "process.log.1", folder / NAME, *(folder / "job").rglob("*")]
    assert folder / "job" / ".signature" in written
    written += (folder / "admin").rglob("*")
    assert [path for path in written if path.stat().st_mode & 0o077] == []


def test_limits_that_are_moved_away_are_not_lifted(folder: Path) -> None:
    """A site that never had a file has fedlin's own; one whose file is gone refuses until it is back."""
    kit = folder / "sites" / "north"
    assert read_limits(kit).tau == 10_000
    text = (kit / SITE).read_text()
    (kit / SITE).unlink()
    with pytest.raises(DeployError, match=r"site\.toml is gone, and with it this site's limits"):
        read_limits(kit)
    (kit / SITE).write_text(text)
    assert read_limits(kit).tau == 10_000
    assert read_limits(folder).tau == 10_000


def test_the_status_of_a_site_whose_ledger_is_damaged_says_so(folder: Path) -> None:
    kit = folder / "sites" / "north"
    (kit / STATE).mkdir()
    (kit / STATE / LEDGER).write_text('{"run": "00')
    code, said = invoke("status", kit)
    assert code == 2
    assert "ledger.json cannot be read" in said


@pytest.mark.parametrize("key", ["", "a", "\u00e9" * 30, "short-key"])
def test_a_page_s_key_that_was_cut_off_is_made_anew(folder: Path, key: str) -> None:
    (folder / "server" / KEY).write_text(key)
    server = WatchServer(folder / "server", view_of(folder / "server", None), 0)
    server._server.server_close()
    whole = (folder / "server" / KEY).read_text()
    assert whole != key
    assert len(whole) >= 22
    assert server.address.endswith(f"/{whole}/")


def test_a_site_that_names_ever_new_metrics_does_not_fill_the_page(tmp_path: Path) -> None:
    (tmp_path / STATE).mkdir()
    lines = []
    for number in range(1, 50):
        mean = {f"{number:02d}-{metric:02d}": 1.0 for metric in range(64)}
        lines.append(json.dumps({"event": "evaluation", "round": number, "mean": mean, "sites": {"north": mean}}))
    (tmp_path / STATE / "log.jsonl").write_text("\n".join(lines) + "\n")
    history = RunHistory(tmp_path)
    history.update()
    titles = [curve["title"] for curve in history.curves()]
    assert len(titles) == METRICS
    assert all(title.startswith("49-") for title in titles)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_settings_that_were_saved_on_windows_are_read(folder: Path, ending: str) -> None:
    """With a byte order mark, also by the commands that change them and by a site that keeps a copy."""
    text = (folder / NAME).read_text()
    for path in (folder / NAME, folder / "sites" / "north" / SITE):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_text().replace("\n", ending).encode())
    assert invoke("add", "west", folder)[0] == 0
    assert read_settings(folder).sites == ("north", "south", "west")
    assert read_limits(folder / "sites" / "north").tau == 10_000
    (folder / NAME).write_text(text, encoding="utf-16")
    status, told = invoke("remove", "west", folder)
    assert status == 2
    assert "Save it as UTF-8" in told


def test_a_name_that_is_too_long_is_told(tmp_path: Path) -> None:
    status, told = invoke("init", "a" * 33, "--out", tmp_path / "federation")
    assert status == 2
    assert "at most 32 small letters" in " ".join(told.split())


def test_an_owner_reads_the_site_s_own_log(folder: Path) -> None:
    site = folder / "sites" / "north"
    (site / "fedlin.log").write_text("reference 1a2b3c4d: no such column\n")
    assert invoke("logs", site) == (0, "reference 1a2b3c4d: no such column\n")
    assert invoke("logs", folder, "--site", "north") == invoke("logs", site)
    (site / "fedlin.log").write_text("refused: \x1b[2J\x1b[Hall is well\n")  # as a server might write
    assert invoke("logs", site) == (0, "refused: \\x1b[2J\\x1b[Hall is well\n")
    status, told = invoke("logs", folder / "sites" / "south")
    assert status == 2
    assert "nothing has run yet" in " ".join(told.split())


def test_a_terminal_that_is_closed_ends_nothing(tmp_path: Path) -> None:
    """What `start` and `join` say afterwards goes nowhere, whether by a terminal or by a pipe."""
    program = (
        "import pathlib, sys, time\n"
        "from fedlin.deploy.deploy_cli import say\n"
        "say('begun')\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "for _ in range(3): say('later')\n"
    )
    for number, (reader, writer) in enumerate((pty.openpty(), os.pipe())):
        closed = tmp_path / f"closed-{number}"
        with subprocess.Popen([sys.executable, "-c", program, closed], stdout=writer, stderr=writer) as running:
            os.close(writer)
            assert os.read(reader, 5) == b"begun"
            os.close(reader)
            closed.touch()
            assert running.wait(60) == 0


def test_a_quorum_of_more_sites_than_there_are_is_told_before_anything_starts(folder: Path) -> None:
    """Also where it is a site's removal that would leave too few: nothing is changed then."""
    text = (folder / NAME).read_text().replace("# quorum = 2 ", "quorum = 2 ")
    (folder / NAME).write_text(text)
    status, told = invoke("remove", "south", folder)
    assert status == 2
    assert "policy.quorum = 2 is more than the 1 sites" in " ".join(told.split())
    assert (folder / NAME).read_text() == text
    (folder / NAME).write_text(text.replace("quorum = 2 ", "quorum = 3 "))
    assert "policy.quorum = 3 is more than the 2 sites" in " ".join(invoke("start", folder)[1].split())


def test_a_site_that_was_written_into_the_settings_by_hand_is_told(folder: Path) -> None:
    """A name that no certificate may have, and a site without a folder."""
    text = (folder / NAME).read_text()
    for name, told in (("East Wing", "site 'East Wing' is not allowed"), ("east", "east is not there")):
        (folder / NAME).write_text(f'{text}\n"{name}" = {{ tau = 1, eta = 0.1 }}\n')
        status, said = invoke("start", folder, "--local")
        assert status == 2
        assert told in " ".join(said.split())


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Requests to end raise an interrupt, whatever commands that were run here have set."""
    requests = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.default_int_handler) for number in requests]
    yield
    for number, handler in zip(requests, before, strict=True):
        signal.signal(number, handler)


def test_what_ends_a_run_that_goes_on_is_told_with_its_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And by the name of the run: neither the folder nor a job's number is to be guessed."""

    def adopt(driver: Driver) -> bool:
        driver.other = "first"
        return True

    monkeypatch.setattr(Driver, "advance", adopt)
    status, said = invoke("start", folder)
    assert status == 2
    assert "the run 'first' goes on with other settings" in " ".join(said.split())
    assert f"fedlinfederationstop{folder};" in "".join(said.split())


@pytest.mark.parametrize(("jobs", "told"), [(["job"], "ended 1 jobs: what was done is saved"), ([], "no run goes on")])
def test_who_ends_a_run_hears_whether_there_was_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[str], told: str
) -> None:
    monkeypatch.setattr(Driver, "stop", lambda driver: jobs)
    status, said = invoke("stop", folder)
    assert status == 0
    assert said.startswith(told)


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFederation:
    """A federation on one machine that starts nothing."""
    monkeypatch.setattr(local_federation, "fork_server", lambda server: None)
    for name in ("check_port", "check_same_authority", "check_certificate", "stop_all"):
        monkeypatch.setattr(local_federation, name, lambda _: None)
    monkeypatch.setattr(Process, "launch", lambda process: None)
    monkeypatch.setattr(LocalFederation, "_revive", lambda federation: [])
    made = LocalFederation(Project(tmp_path, ("north", "south"), 2))
    for process in (made.server, *made.sites.values()):
        process.kit.mkdir(parents=True)
    return made


def test_a_run_that_is_refused_keeps_how_it_had_ended_and_the_refusal_is_told(
    local: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all runs on one machine: what the run's folder said before is not how the job ended."""
    done, refused = {"status": "done", "rounds": 3}, {"status": "failed", "error": "begun with another seed"}
    conclude(local.project.server, done)

    def advance(driver: Driver) -> bool:
        driver.outcome = refused
        return False

    monkeypatch.setattr(Driver, "advance", advance)
    assert local.run() == refused
    assert outcome(local.project.server) == done


def test_logs_are_begun_anew_while_a_federation_on_one_machine_runs(
    local: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of weeks would fill the disk: its processes are started once."""
    monkeypatch.setattr(processes, "_LOG_SIZE", 5)
    monkeypatch.setattr(local_federation, "ROTATE", 0.0)
    logs = [process.kit / "process.log" for process in (local.server, *local.sites.values())]

    def advance(driver: Driver) -> bool:
        for log in logs:
            log.write_text("long enough")
        return True

    def watch(progress: object) -> None:
        conclude(local.project.server, {"status": "done", "rounds": 1})

    monkeypatch.setattr(Driver, "advance", advance)
    local.run(watch)
    assert [log.read_text() for log in logs] == [""] * 3
    assert [log.with_suffix(".log.1").read_text() for log in logs] == ["long enough"] * 3


@pytest.mark.usefixtures("_interruptible")
def test_a_second_request_to_end_leaves_nothing_running(
    local: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the first one is met: all processes are ended all the same, and the screen says so."""
    stopped: list[str] = []

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # where an interrupt would be raised

    def ended(processes: list[Process]) -> None:
        stopped.extend(process.name for process in processes)

    monkeypatch.setattr(Process, "launch", interrupt)
    monkeypatch.setattr(local_federation, "stop_all", ended)
    monkeypatch.setattr(Driver, "forget", interrupt)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        local.run(say=said.append)
    assert stopped == 2 * ["server", "north", "south"]  # what a crash left behind, and those of this run
    assert said[-1] == "ending the server and the sites"


@pytest.mark.usefixtures("_interruptible")
def test_a_second_request_to_end_leaves_no_process_of_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Process):
        stops = 0

        def alive(self) -> bool:
            raise KeyboardInterrupt

        def stop(self) -> None:
            if self.stops:
                os.kill(os.getpid(), signal.SIGTERM)
            self.stops += 1

    process = Ended(tmp_path, "client", "north", "")
    monkeypatch.setattr(remote, "_process", lambda kit: process)
    monkeypatch.setattr(remote, "check_certificate", lambda kit: None)
    said: list[str] = []
    remote.take_part(tmp_path, said.append)
    assert process.stops == 2
    assert said[-1] == "north: ends"
