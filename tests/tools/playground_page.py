"""`fedlin playground` as a user starts it, in a real browser.

`python tests/tools/playground_page.py` takes the documentation's picture of it, docs/pictures/playground.png.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from browser import resize, started
from pages import ROOT

PICTURE = ROOT / "docs" / "pictures" / "playground.png"
PATIENCE = 120  # seconds, of which a machine with nothing else to do needs few
DEEP = """const found = (root, part) => [...root.querySelectorAll("*")].flatMap(
  (one) => [...(one.matches(part) ? [one] : []), ...(one.shadowRoot ? found(one.shadowRoot, part) : [])]);
"""  # marimo draws in shadow trees


@contextmanager
def served(home: str) -> Iterator[str]:
    """The page's address while the command runs; Ctrl-C ends it without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedlin", "playground", "--no-browser", "--port", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=home,
        env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, "FEDLIN_CACHE": home},
    )
    try:
        _wait_for_answer(process, port)
        yield f"http://127.0.0.1:{port}/"
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, "Traceback" in said) == (0, False), said
    finally:
        process.kill()


def _wait_for_answer(process: subprocess.Popen[str], port: int) -> None:
    last = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < last:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.1)
    process.kill()
    raise AssertionError(process.communicate()[0])


def curves(chrome: webdriver.Chrome) -> dict[str, list[float]]:
    """The heights of every curve that is drawn, by its name in the legend."""
    read = """return Object.fromEntries(found(document, ".js-plotly-plot").flatMap((plot) => plot._fullData ?? [])
      .map((trace) => [trace.name, [...trace.y]]))"""
    drawn: dict[str, list[float]] = chrome.execute_script(DEEP + read)
    return drawn


def show(chrome: webdriver.Chrome, address: str) -> None:
    """Open the page and wait for its curves: the method, FedAvg and the bound."""
    chrome.get(address)
    WebDriverWait(chrome, PATIENCE).until(lambda driver: len(curves(driver)) == 3)


def main() -> None:
    """The page as it opens."""
    with tempfile.TemporaryDirectory() as home, served(home) as address, started(Path(home) / "profile") as chrome:
        resize(chrome, 1280, 1040)
        show(chrome, address)
        time.sleep(1.0)  # the plot settles at its width
        chrome.save_screenshot(str(PICTURE))


if __name__ == "__main__":
    main()
