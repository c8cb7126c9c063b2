"""Several runs in one federation, and what server, sites and whoever looks are told of them; in one process."""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedlin
from fedlin.cli import app
from fedlin.deploy.event_lines import event_line
from fedlin.deploy.flare import programs
from fedlin.deploy.flare.programs import run_server, tell_status
from fedlin.deploy.folder_lock import locked
from fedlin.deploy.run_history import RunHistory
from fedlin.deploy.runs import BEST, MODEL, STATE, end_line, exit_status, named_run, outcome, present_run
from fedlin.deploy.screen import Screen, site_lines, status_lines
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.site_record import read_record, site_status
from fedlin.deploy.status import Awaiting, lines, read_status
from fedlin.deploy.watch_metrics import metrics_text
from fedlin.deploy.watch_snapshot import view_of
from fedlin.engines.federation.pending import process_start
from fedlin.errors import DeployError
from fedlin.transports.loopback import Loopback
from loopback_federation import SITES, Federation
from template_data import drawn_problem

HOLD = """
import sys
from pathlib import Path
from fedlin.deploy.folder_lock import locked

with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)


def simulated(federation: Federation, rounds: int, x0: Any = None) -> Any:
    settings = read_settings(federation.job)
    return fedlin.simulate(settings.algorithm, drawn_problem(2), settings.plan, rounds, x0=x0).x


def test_each_run_has_a_folder_and_keeps_its_model(federation: Federation) -> None:
    """A second run starts from the first one's model, or anew; the first stays as it was."""
    federation.write(name="first")
    assert federation.run() == {"status": "done", "rounds": 5}
    first = np.load(federation.server / "runs" / "first" / MODEL)
    np.testing.assert_allclose(first, simulated(federation, 5), rtol=1e-10)
    federation.write(name="second", after="first")
    assert federation.run()["status"] == "done"
    second = np.load(federation.server / "runs" / "second" / MODEL)
    np.testing.assert_allclose(second, simulated(federation, 5, x0=first), rtol=1e-10)
    federation.write(name="third")
    federation.run()
    np.testing.assert_array_equal(np.load(federation.server / "runs" / "third" / MODEL), first)
    np.testing.assert_array_equal(np.load(federation.server / "runs" / "first" / MODEL), first)
    assert present_run(federation.server) == federation.server / "runs" / "third"
    ids = {lines(federation.server / "runs" / name)[0]["run"] for name in ("first", "second", "third")}
    assert len(ids) == 3  # although the first and the third have the same settings
    federation.write()
    federation.run()
    np.testing.assert_array_equal(np.load(federation.server / MODEL), first)
    assert present_run(federation.server) == federation.server


def test_new_settings_reach_the_server_and_the_sites(federation: Federation) -> None:
    """More rounds go on where the run ended; another seed is another run, and that is said with what to do."""
    federation.write(rounds=3, name="first")
    federation.run()
    federation.write(rounds=6, name="first")
    assert federation.run() == {"status": "done", "rounds": 6}
    np.testing.assert_allclose(
        np.load(federation.server / "runs" / "first" / MODEL), simulated(federation, 6), rtol=1e-10
    )
    assert (federation.server / NAME).read_text() == (federation.job / NAME).read_text()
    text = (federation.job / NAME).read_text()
    (federation.job / NAME).write_text(text.replace("seed = 0", "seed = 1"))
    end = federation.run()
    assert end["status"] == "failed"
    assert end["error"].startswith("the run 'first' was begun with another seed: give this one a name of its own")
    assert exit_status(end) == 1


@pytest.mark.parametrize("name", ["first", None])
def test_settings_that_are_refused_do_not_replace_those_of_the_run(federation: Federation, name: str | None) -> None:
    """Else nobody could go on with it: what it was begun with would be in no file."""
    federation.write(rounds=3, **({} if name is None else {"name": name}))
    federation.run()
    own = named_run(federation.server, name) / NAME
    before = own.read_text()
    (federation.job / NAME).write_text(before.replace("seed = 0", "seed = 1"))
    assert "was begun with another seed" in federation.run()["error"]
    assert own.read_text() == before
    assert outcome(own.parent) == {"status": "done", "rounds": 3}
    (federation.job / NAME).write_text(before.replace("rounds = 3", "rounds = 4"))
    assert federation.run() == {"status": "done", "rounds": 4}
    assert "rounds = 4" in own.read_text()


def test_a_site_with_settings_of_its_own_refuses_others_by_name(federation: Federation) -> None:
    own = federation.sites["north"] / NAME
    own.write_text((federation.job / NAME).read_text())
    assert federation.run()["status"] == "done"
    federation.write(rounds=9)
    end = federation.run()
    assert end["status"] == "failed"
    assert "north refused to take part: " in end["error"]
    assert "run.rounds is 9 in the job and 5 here" in end["error"]
    own.unlink()
    assert federation.run() == {"status": "done", "rounds": 9}


def test_a_site_s_limits_are_in_its_own_file(federation: Federation) -> None:
    """Read anew for every message; what cannot be read refuses."""
    path = federation.sites["north"] / "site.toml"
    for text, told in (
        ("[limits]\nrounds = 4", "rounds = 5 is beyond this site's limit of 4"),
        ('[limits]\nmethods = ["scaffold"]', "the method fedlin is not one of this site's: scaffold"),
    ):
        path.write_text(text)
        assert told in federation.run()["error"]
    path.write_text("[limits]\nrounds = 5")
    assert federation.run()["status"] == "done"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[limit]", "no table is called 'limit': did you mean 'limits'"),
        ("[limits]\ntau = 0", "limits.tau = 0 is not allowed"),
        ("limits = 3", "limits = 3 is not allowed: give a table"),
        ("[limits]\nround = 3", "no key is called 'round': did you mean 'rounds'"),
        ("[limits", "cannot be read"),
    ],
)
def test_limits_that_cannot_be_read_are_named_to_the_owner(federation: Federation, text: str, told: str) -> None:
    kit = federation.sites["north"]
    (kit / "startup").mkdir()
    (kit / "startup" / "fed_client.json").touch()
    (kit / "site.toml").write_text(text)
    done = CliRunner().invoke(app, ["federation", "status", str(kit)])
    assert done.exit_code == 2
    assert told in done.output


def test_a_site_s_owner_sees_what_is_asked(federation: Federation) -> None:
    kit = federation.sites["north"]
    assert site_lines(site_status(kit)) == ["Nothing was asked of this site yet."]
    federation.run()
    record = read_record(kit)
    assert record is not None
    assert record.run == lines(federation.server)[0]["run"]
    assert record.process == os.getpid()
    (kit / "client.py").write_text("raise ValueError('a patient')")
    federation.write(rounds=6)
    text = (federation.job / NAME).read_text()
    (federation.job / NAME).write_text(text.replace("patience = 3600.0", "patience = 0.0"))
    federation.run()
    shown = "\n".join(site_lines(site_status(kit)))
    assert "refused 0 s ago: it failed with ValueError [reference " in shown
    assert "its job runs" in shown
    assert "limits: tau 10000, rounds 100000, requests 1000" in shown
    (kit / "site.toml").write_text("[limits]\nepsilon = 2.0")
    assert "privacy spent in all runs: epsilon = 0" in site_lines(site_status(kit))[-1]


def test_whoever_sent_the_job_may_ask_where_it_stands(federation: Federation) -> None:
    federation.write(name="first")
    federation.run()
    told = json.loads(json.dumps(tell_status({"events": 0})))
    assert told["progress"]["round"] == 5
    assert told["settings"] == hashlib.sha256((federation.job / NAME).read_bytes()).hexdigest()
    (federation.server / NAME).write_text("# changed since")
    assert tell_status({})["settings"] == told["settings"]
    assert [event["event"] for event in told["events"]] == ["began", "delivered"]
    assert tell_status({"events": 2})["events"] == []


def test_a_run_that_has_not_begun_is_not_told_by_the_former_one(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the number of the former run's events is where the new one's are read from."""
    federation.write(name="first")
    federation.run()
    monkeypatch.setattr(programs, "_job", {})  # as in the process of another job
    nothing: dict[str, Any] = {"run": "", "settings": "", "progress": None, "awaiting": None, "events": []}
    assert tell_status({"events": 0}) == nothing
    federation.write(name="second", rounds=3)
    federation.run()
    told = tell_status({"events": 0})
    assert (told["run"], told["progress"]["round"]) == ("second", 3)
    assert [event["event"] for event in told["events"]] == ["began", "delivered"]


def test_the_sites_evaluate_and_are_given_the_best_model(federation: Federation) -> None:
    """In the log, on the screen and as files: the best at the server, and at every site."""
    table = '[evaluation]\nevery = 2\nbest = "error"\nlargest = false\n'
    (federation.job / NAME).write_text((federation.job / NAME).read_text().replace("[sites]", f"{table}[sites]"))
    end = federation.run()
    evaluations = [line for line in lines(federation.server) if line.get("event") == "evaluation"]
    assert [line["round"] for line in evaluations] == [2, 4]
    values = [line["mean"]["error"] for line in evaluations]
    assert end["best"] == {"round": (2, 4)[int(np.argmin(values))], "value": min(values)}
    for line in evaluations:
        assert line["mean"]["error"] == pytest.approx(np.mean([one["error"] for one in line["sites"].values()]))
    best = np.load(federation.server / BEST)
    for kit in federation.sites.values():
        np.testing.assert_array_equal(np.load(kit / MODEL), best)
    assert "best.npy beside it" in end_line(end, "model.npy")
    shown = event_line(evaluations[0])
    assert f"evaluated: error {values[0]:.4g} (north: error " in shown
    assert "the model was delivered to north, south" in event_line(lines(federation.server)[-1])


# What the server's status says.


def write_log(run: Path, *written: dict[str, Any]) -> None:
    (run / STATE).mkdir(parents=True, exist_ok=True)
    with open(run / STATE / "log.jsonl", "a") as log:
        for line in written:
            log.write(json.dumps(line) + "\n")


def played(number: int, answered: list[str], late: list[str]) -> dict[str, Any]:
    sums = {"bytes_up": 8, "bytes_down": 8, "seconds": 1.0, "attempts": 1}
    return {"round": number, "move": 0.1, "gradient": None, "answered": answered, "late": late, **sums}


def waiting(run: Path, process: int, when: float, *rest: dict[str, Any]) -> None:
    whose = {"process": process, "started": process_start(process)}
    first = {"round": 2, "phase": "gradient", "asked": list(SITES), **whose, "time": when}
    text = "\n".join(json.dumps(line) for line in (first, *rest))
    (run / STATE / "waiting.jsonl").write_text(text + "\n")


def test_a_dead_server_is_not_said_to_wait(tmp_path: Path) -> None:
    """Nor is one that was stopped; one that runs is, and for how long."""
    write_log(tmp_path, {"event": "began", "round": 0, "rounds": 9}, played(1, ["north"], ["south"]))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    waiting(tmp_path, dead.pid, time.time() - 37)
    shown = "\n".join(status_lines(read_status(tmp_path), "model.npy"))
    assert "round 1 of 9" in shown
    assert "The server's process does not run, last heard of 37 s ago" in shown
    assert "waits for" not in shown
    waiting(tmp_path, os.getpid(), time.time())
    shown = "\n".join(status_lines(read_status(tmp_path), "model.npy"))
    assert re.search(r"gradient of round 3: waits for north, south; \d s so far", shown)
    waiting(tmp_path, os.getpid(), time.time(), {"over": True})
    assert "waits" not in "\n".join(status_lines(read_status(tmp_path), "model.npy"))


def test_every_site_has_a_row(tmp_path: Path) -> None:
    """Who is counted how often, with what weight, and what is wrong since when."""
    fault = {"event": "fault", "client": "south", "kind": "silent", "why": "no answer within 60 s", "doing": "it waits"}
    write_log(
        tmp_path,
        {"event": "began", "round": 0, "clients": ["north", "south"], "weights": {"north": 1.0, "south": 3.0}},
        played(1, ["north", "south"], []),
        {**fault, "round": 1, "time": 1000.0},
        played(2, ["north"], ["south"]),
    )
    north, south = read_status(tmp_path).sites
    assert (north.state, north.counted, north.rounds, north.last, north.weight) == ("counted", 2, 2, 2, 0.25)
    assert (south.state, south.counted, south.last, south.since) == ("silent: no answer within 60 s", 1, 1, 1000.0)
    write_log(tmp_path, {"event": "resumed", "round": 2})
    assert read_status(tmp_path).sites[1].state == "late"
    write_log(tmp_path, {**fault, "round": 2, "kind": "quarantined"}, {"event": "resumed", "round": 2})
    assert read_status(tmp_path).sites[1].state.startswith("quarantined")
    write_log(tmp_path, {"event": "recovered", "round": 2, "client": "south", "why": ""}, played(3, ["south"], []))
    assert read_status(tmp_path).sites[1].state == "counted"


def test_a_round_that_is_played_again_counts_once(tmp_path: Path) -> None:
    """As after a crash between its line and its checkpoint, or where the server's folder is restored."""
    write_log(
        tmp_path,
        {"event": "began", "round": 0, "rounds": 2},
        *(played(number, ["north"], []) for number in (1, 2, 3, 4, 2, 3)),
    )
    history = RunHistory(tmp_path)
    history.update()
    for status in (read_status(tmp_path), history.status()):
        (north,) = status.sites
        assert (north.counted, north.rounds, north.last) == (3, 3, 3)
        assert status_lines(status, "model.npy")[0].startswith("round 3: ")  # and not of the two that it is to have


def test_a_run_that_waits_for_its_first_round_is_shown_as_it_is(federation: Federation) -> None:
    """The server's process runs, the site that is away has a row, and nobody reads that all is well."""
    (federation.server / "startup").mkdir()
    (federation.server / "startup" / "fed_server.json").touch()
    looks: list[tuple[list[str], Any, str]] = []

    class NorthAlone(Loopback):
        def clients(self) -> list[str]:
            view = view_of(federation.server, None)
            shown = status_lines(read_status(federation.server), "model.npy")
            looks.append((shown, view.snapshot(), metrics_text(view.samples())))
            if len(looks) == 2:
                raise fedlin.FedLinError("enough was seen")
            return ["north"]

    with pytest.raises(fedlin.FedLinError, match="enough was seen"):
        run_server(NorthAlone({}), str(federation.server), str(federation.job))
    (before, _, _), (shown, page, metrics) = looks
    assert before == ["No round yet."]
    assert shown[1].partition(" (")[0] == "  south  counted in 0 of the latest 0 rounds  silent: it is not connected"
    assert not page["good"]
    assert page["rows"][0]["cells"][1].startswith("silent: it is not connected")
    assert 'fedlin_site_up{site="south"} 0' in metrics
    assert "fedlin_server_up 1" in metrics


def test_faults_that_are_still_open_at_the_first_look_are_shown() -> None:
    """As to who comes back to a run; what is over, or was of a process before, is not."""
    fault = {"event": "fault", "round": 1, "kind": "silent", "why": "no answer within 60 s", "doing": "it waits"}
    events = [
        {**fault, "client": "east"},
        {"event": "resumed", "round": 1},
        {**fault, "client": "north"},
        {**fault, "client": "south"},
        {"event": "recovered", "round": 1, "client": "north", "why": "no answer within 60 s"},
    ]
    said: list[str] = []
    screen = Screen(said.append)
    for _ in range(2):
        screen.show(None, None, events)
    assert [line.partition(";")[0] for line in said] == ["after round 1: south: no answer within 60 s"]


def test_a_long_wait_is_told_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    screen, now = Screen(said.append), 1000.0
    monkeypatch.setattr("time.time", lambda: now)
    asked = Awaiting(4, "model", ["north", "south"], ["south"], False, 1000.0)
    while now < 1200.0:
        now += 0.5
        screen.show(None, asked, [])
    assert [line.split("; ")[1] for line in said] == [
        "10 s so far",
        "20 s so far",
        "40 s so far",
        "80 s so far",
        "160 s so far",
    ]
    assert said[0].strip().startswith("model of round 5: waits for north")


def test_how_a_run_ended_is_said_and_left_with() -> None:
    without = {"status": "done", "rounds": 9, "without": {"north": "quarantined"}}
    assert end_line(without, "m") == "done without north (quarantined): the model is in m"
    assert [
        exit_status(end) for end in ({"status": "done"}, without, {"status": "diverged"}, {"status": "failed"})
    ] == [
        0,
        3,
        1,
        1,
    ]


def test_a_run_nobody_knows_is_refused(federation: Federation) -> None:
    federation.write(name="first")
    federation.run()
    assert named_run(federation.server, None).name == "first"
    with pytest.raises(DeployError, match=r"no run is called 'other' .* there are first"):
        named_run(federation.server, "other")
    federation.write(name="second", after="other")
    assert "run.after = 'other'" in federation.run()["error"]


def test_one_command_at_a_time_in_a_folder(tmp_path: Path) -> None:
    """The second is refused and names the first; once that has ended, however it did, the folder is free."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DeployError, match=f"is in use by process {holder.pid}"), locked(tmp_path):
            pass
        holder.kill()
    with locked(tmp_path):
        pass
