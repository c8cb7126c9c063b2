"""The page of `fedlin federation watch`: what it shows, to whom, and what Prometheus reads."""

import json
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from browser import errors, in_browser, requests, resize, started
from fedlin.deploy import site_record
from fedlin.deploy.run_history import POINTS, RunHistory
from fedlin.deploy.runs import STATE
from fedlin.deploy.settings import NAME
from fedlin.deploy.site_record import read_record
from fedlin.deploy.watch_page import KEY, WatchServer
from fedlin.deploy.watch_snapshot import view_of
from fedlin.errors import DeployError
from loopback_federation import Federation

FAULT = {"event": "fault", "client": "south", "kind": "silent", "why": "<b>gone</b>", "doing": "it is asked again"}


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A run of six rounds, evaluated every second one, in folders that are known as the server's and a site's."""
    made = Federation(tmp_path_factory.mktemp("watched"))
    made.write(rounds=6, name="first")
    text = (made.job / NAME).read_text()
    (made.job / NAME).write_text(text.replace("[sites]", "[evaluation]\nevery = 2\n[sites]"))
    for kit, kind in ((made.server, "server"), (made.sites["north"], "client")):
        (kit / "startup").mkdir()
        (kit / "startup" / f"fed_{kind}.json").write_text(json.dumps({"client": {"fqsn": "north"}}))
    assert made.run() == {"status": "done", "rounds": 6}
    return made


@contextmanager
def watched(folder: Path) -> Iterator[WatchServer]:
    server = WatchServer(folder, view_of(folder, None), 0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def get(address: str, **headers: str) -> tuple[int, str, str]:
    """Status, type and content of what is at an address."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_the_operator_sees_curves_sites_and_events(federation: Federation) -> None:
    with watched(federation.server.parent) as server:  # the whole federation's folder
        _, kind, content = get(f"{server.address}data")
    shown = json.loads(content)
    assert kind == "application/json"
    assert shown["title"] == "Run first"
    assert "round 6 of 6" in shown["state"][0]
    assert shown["good"]
    curves = {curve["title"]: curve["lines"] for curve in shown["curves"]}
    assert [point[0] for point in curves["norm of the gradient"]["gradient"]] == [1, 2, 3, 4, 5, 6]
    assert curves["error at the sites"].keys() == {"mean", "north", "south"}
    assert [point[0] for point in curves["error at the sites"]["mean"]] == [2, 4, 6]
    assert curves["bytes so far"]["up"][-1][1] > curves["bytes so far"]["up"][0][1] > 0
    assert [row["cells"][:4] for row in shown["rows"]] == [
        ["north", "counted", "6 of 6", "round 6"],
        ["south", "counted", "6 of 6", "round 6"],
    ]
    assert "the model was delivered to north, south" in shown["events"][0]


def test_a_page_and_prometheus_that_look_at_once_read_a_line_once(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else events are counted twice, and lines that come later are left out."""
    view, update = view_of(federation.server.parent, None), RunHistory.update
    both = threading.Barrier(2, timeout=0.3)
    together = []

    def meet(history: RunHistory) -> None:
        with suppress(threading.BrokenBarrierError):
            together.append(both.wait())
        update(history)

    monkeypatch.setattr(RunHistory, "update", meet)
    threads = [threading.Thread(target=look) for look in (view.snapshot, view.samples)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == []


def test_a_site_s_owner_sees_what_was_asked_and_what_is_allowed(federation: Federation) -> None:
    with watched(federation.sites["north"]) as server:
        shown = json.loads(get(f"{server.address}data")[2])
    assert shown["title"] == "Site north"
    assert {tuple(row["cells"]) for row in shown["rows"]} >= {("tau", "10000"), ("rounds", "100000")}
    assert "final of round 7, final: received" in shown["events"][0]
    assert max(point[1] for point in shown["curves"][0]["lines"]["round"]) == 6


def test_a_site_needs_attention_while_its_job_is_gone_unless_the_run_is_over(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where its disk takes nothing, whatever else there is to say."""
    kit = federation.sites["north"]
    record, view = read_record(kit), view_of(kit, None)
    assert record is not None
    for process, phase, state in (
        (record.process, "gradient", "its job runs"),
        (-1, "final", "the run is over"),
        (-1, "gradient", "its job does not run"),
    ):
        changed = replace(record, process=process, phase=phase)
        monkeypatch.setattr(site_record, "read_record", lambda kit, changed=changed: changed)
        shown = view.snapshot()
        assert shown["good"] == (state != "its job does not run")
        assert state in shown["state"][0]
    monkeypatch.undo()
    assert view.snapshot()["good"]
    monkeypatch.setattr(site_record, "unwritable", lambda kit: "no room")
    assert not view.snapshot()["good"]


def test_prometheus_reads_the_metrics(federation: Federation) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    found: dict[tuple[Any, ...], float] = {}
    for folder in (federation.server, federation.sites["north"]):
        with watched(folder) as server:
            status, kind, content = get(f"{server.address}metrics")
        assert status == 200
        assert kind.startswith("text/plain; version=0.0.4")
        for family in parser.text_string_to_metric_families(content):
            found |= {(one.name, *sorted(one.labels.items())): one.value for one in family.samples}
    assert found["fedlin_round",] == 6
    assert found["fedlin_server_up",] == 1  # the process that ran it is this one
    assert found["fedlin_run_ended", ("status", "done")] == 1
    assert found["fedlin_site_up", ("site", "south")] == 1
    assert found["fedlin_site_weight", ("site", "north")] == 0.5
    assert found["fedlin_bytes_total", ("direction", "up")] > 0
    assert found["fedlin_site_answered_total", ("site", "north")] >= 1  # written once a second
    assert ("fedlin_metric", ("metric", "error")) in found


def test_the_page_is_for_who_may_read_the_folder(federation: Federation) -> None:
    """Neither another user of the machine nor a page from elsewhere, which a browser lets ask by another name."""
    with watched(federation.server) as server:
        assert get(server.address)[0] == 200
        base = server.address.rsplit("/", 2)[0]
        assert [get(f"{base}/{path}")[0] for path in ("", "data", "metrics", "wrong/data")] == [404] * 4
        assert get(f"{server.address}../../{NAME}")[0] == 404
        assert get(server.address, Host="attacker.example:80")[0] == 404
        with pytest.raises(DeployError, match=r"port \d+ cannot be used"):
            WatchServer(federation.server, view_of(federation.server, None), int(base.rpartition(":")[2]))
    assert stat.S_IMODE((federation.server / KEY).stat().st_mode) == 0o600


def test_a_history_is_read_on_as_it_grows(tmp_path: Path) -> None:
    """Whole lines alone; what was played again counts once; a run of any length is a few hundred points."""

    def line(number: int, move: float) -> str:
        sums = {"bytes_up": number, "bytes_down": number, "seconds": 1.0, "attempts": 1}
        return json.dumps({"round": number, "move": move, "gradient": None, "answered": [], "late": [], **sums}) + "\n"

    (tmp_path / STATE).mkdir()
    history, log = RunHistory(tmp_path), tmp_path / STATE / "log.jsonl"
    history.update()
    assert history.curves() == []
    log.write_text(line(1, 0.5) + line(2, 0.4)[:20])
    history.update()
    assert list(history.rounds) == [1]
    log.write_text(line(1, 0.5) + line(2, 0.4) + "garbled\n" + line(3, 9.0))
    history.update()
    assert history.rounds[3]["move"] == 9.0
    with log.open("a") as file:
        file.write(json.dumps({"event": "went back", "round": 2}) + "\n" + line(3, 0.3))
        file.write("".join(line(number, 0.1) for number in range(4, 5000)))
    history.update()
    assert history.rounds[3]["move"] == 0.3
    (moves,) = (curve["lines"]["move"] for curve in history.curves() if "move" in curve["title"])
    assert len(moves) <= POINTS
    assert moves[-1][0] == 4999
    log.write_text(line(1, 0.7))
    history.update()
    assert list(history.rounds) == [1]


@in_browser
def test_the_page_draws_and_keeps_up(federation: Federation, tmp_path: Path) -> None:
    """Nothing is fetched from elsewhere, text is text, and what is written shows within seconds."""
    log = federation.server / "runs" / "first" / STATE / "log.jsonl"
    before = log.read_text()
    with watched(federation.server) as server, started(tmp_path / "profile") as chrome:
        resize(chrome, 1200, 1000)
        requests(chrome)  # what the browser asked for before this page is not the page's
        chrome.get(server.address)
        wait_for(chrome, "document.querySelectorAll('figure').length === 4")
        assert chrome.execute_script("return document.getElementById('sign').textContent") == "in order"
        paths = "return [...document.querySelectorAll('path')].map(path => path.getAttribute('d').length)"
        assert min(chrome.execute_script(paths)) > 20
        try:
            with log.open("a") as file:
                file.write(json.dumps({**FAULT, "round": 6}) + "\n")
            wait_for(
                chrome, "document.querySelector('tr[data-name=south] td:nth-child(2)').textContent.includes('gone')"
            )
            assert not chrome.execute_script("return document.querySelectorAll('b').length")
        finally:
            log.write_text(before)
        chrome.save_screenshot(str(tmp_path / "page.png"))
        resize(chrome, 360, 800)
        assert chrome.execute_script("return document.documentElement.scrollWidth") <= 360
        assert {urlsplit(address).hostname for address in requests(chrome)} == {"127.0.0.1"}
        assert not errors(chrome)


def wait_for(chrome: Any, condition: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(chrome, 30).until(lambda one: one.execute_script(f"return {condition}"))
