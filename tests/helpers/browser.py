"""A real Chromium for tests, without a sandbox, a screen or calls to its maker."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

Test = TypeVar("Test", bound=Callable[..., Any])
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed"),
]


def in_browser(test: Test) -> Test:
    """For a file in which other tests need none."""
    for mark in MARKS:
        test = mark(test)
    return test


@contextmanager
def started(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with a fresh profile, which writes down its requests and messages."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def resize(chrome: webdriver.Chrome, width: int, height: int = 900) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def log(chrome: webdriver.Chrome, kind: str) -> list[dict[str, Any]]:
    """What the browser wrote down since the last call."""
    entries: list[dict[str, Any]] = chrome.get_log(kind)  # type: ignore[no-untyped-call]
    return entries


def requests(chrome: webdriver.Chrome) -> set[str]:
    """The addresses that pages asked for since the last call; the browser's own page, with which it starts, is none."""
    messages = [json.loads(entry["message"])["message"] for entry in log(chrome, "performance")]
    sent = (message["params"] for message in messages if message["method"] == "Network.requestWillBeSent")
    return {params["request"]["url"] for params in sent if not params["documentURL"].startswith("chrome")}


def errors(chrome: webdriver.Chrome, levels: tuple[str, ...] = ("SEVERE", "WARNING")) -> list[str]:
    return [entry["message"] for entry in log(chrome, "browser") if entry["level"] in levels]
