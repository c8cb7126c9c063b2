"""The operator's page in a real browser, of a federation over NVIDIA FLARE whose site is killed and comes back.

Run by `make test-long`.
"""

import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from browser import MARKS, resize, started
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.status import Progress
from fedlin.deploy.watch_page import WatchServer
from fedlin.deploy.watch_snapshot import view_of
from local_flare import importable, template

pytestmark = [pytest.mark.long, *MARKS]
ROUNDS, KILLED, LIMIT = 400, 20, 240.0
CELL = "(document.querySelector('tr[data-name=south] td:nth-child({})')?.textContent ?? '')"


def test_a_site_that_is_killed_and_comes_back_is_seen_on_the_page(tmp_path: Path) -> None:
    project = template(
        tmp_path / "federation",
        ["north", "south"],
        {"rounds = 200": f"rounds = {ROUNDS}", "timeout = 60.0": "timeout = 10.0"},
    )
    run, ended = LocalFederation(project), dict[str, Any]()
    killed: list[float] = []

    def kill(now: Progress | None) -> None:
        if now is not None and now.round >= KILLED and not killed:
            killed.append(time.time())
            for member in run.sites["south"].members():
                member.kill()

    def play() -> None:
        ended.update(run.run(kill))

    def seen(chrome: Any, condition: str) -> float:
        deadline = time.monotonic() + LIMIT
        while not chrome.execute_script(f"return {condition}"):
            assert time.monotonic() < deadline, condition
            time.sleep(0.1)
        return time.time()

    view = view_of(project.folder, None)
    server, player = WatchServer(project.folder, view, 0), threading.Thread(target=play)
    page = threading.Thread(target=server.serve)
    with importable(), started(tmp_path / "profile") as chrome:
        player.start()
        page.start()
        try:
            resize(chrome, 1200, 1000)
            chrome.get(server.address)
            seen(chrome, f"{CELL.format(2)} === 'counted'")
            told = seen(chrome, f"{CELL.format(7)} !== '0' && !{CELL.format(2)}.startsWith('counted')")
            chrome.save_screenshot(str(tmp_path / "killed.png"))
            assert chrome.execute_script("return document.getElementById('sign').textContent") == "needs attention"
            assert "south" in chrome.execute_script("return document.getElementById('events').textContent")
            back = seen(chrome, f"{CELL.format(2)} === 'counted' && {CELL.format(7)} !== '0'")
            seen(chrome, "document.getElementById('state').textContent.includes('done')")
            chrome.save_screenshot(str(tmp_path / "over.png"))
        finally:
            player.join(LIMIT)
            server.close()
            page.join()
    assert ended == {"status": "done", "rounds": ROUNDS}
    assert any("south" in event for event in view.snapshot()["events"])
    print(f"the fault was on the page after {told - killed[0]:.1f} s, and gone after {back - killed[0]:.1f} s")
    assert not psutil.Process().children(recursive=True)
