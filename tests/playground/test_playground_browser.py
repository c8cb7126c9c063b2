"""The playground in a real browser, started as a user would, its sliders moved by keys."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from browser import MARKS, errors, requests, resize, started
from fedlin.playground.sliders import Sliders
from fedlin.playground.study import study
from playground_page import DEEP, PATIENCE, curves, served, show

pytest.importorskip("marimo")
pytestmark = [*MARKS, pytest.mark.slow]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(str(tmp_path_factory.mktemp("home"))) as found:
        yield found


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory, address: str) -> Iterator[webdriver.Chrome]:
    with started(tmp_path_factory.mktemp("profile")) as driver:
        resize(driver, 1440)
        requests(driver)  # what the browser asked for before this page is not the page's
        show(driver, address)
        yield driver


def _wait(chrome: webdriver.Chrome, until: Callable[[], bool]) -> None:
    WebDriverWait(chrome, PATIENCE).until(lambda _: until())


def slider(chrome: webdriver.Chrome, label: str) -> WebElement:
    """What takes the keys of the slider with this label."""
    find = """const own = found(document, "marimo-slider").find((one) => one.dataset.label.includes(arguments[0]));
      return found(own.shadowRoot, "[role=slider]")[0]"""
    handle: WebElement = chrome.execute_script(DEEP + find, label)
    return handle


def text(chrome: webdriver.Chrome) -> str:
    """All that can be read on the page."""
    read = """return found(document, "marimo-callout-output").map((one) => one.shadowRoot.textContent)
      .concat(document.body.innerText).join(" ")"""
    shown: str = chrome.execute_script(DEEP + read)
    return shown


def test_the_page_needs_no_network_and_logs_no_error(chrome: webdriver.Chrome, address: str) -> None:
    asked = {urlsplit(url) for url in requests(chrome)}
    assert urlsplit(address) in asked
    assert {url.netloc for url in asked if url.scheme not in ("data", "blob")} == {urlsplit(address).netloc}
    assert errors(chrome, ("SEVERE",)) == []


def test_a_slider_moves_the_curves(chrome: webdriver.Chrome) -> None:
    before = curves(chrome)
    assert set(before) == {"FedLin", "FedAvg", "bound of Theorem 1"}
    assert (np.array(before["FedLin"]) <= np.array(before["bound of Theorem 1"]) * (1 + 1e-9)).all()
    assert study(Sliders()).summary in text(chrome)

    slider(chrome, "step size").send_keys(Keys.ARROW_RIGHT)
    moved = study(Sliders(step=2.0))
    _wait(chrome, lambda: "No bound is drawn" in text(chrome) and len(curves(chrome)) == 2)
    after = curves(chrome)
    for name, run in moved.runs.items():
        np.testing.assert_allclose(after[name], run.gap, rtol=1e-6, atol=1e-20)
    assert after["FedLin"] != before["FedLin"]
    assert moved.summary in text(chrome)

    slider(chrome, "step size").send_keys(Keys.ARROW_LEFT)
    _wait(chrome, lambda: curves(chrome) == before)
    assert errors(chrome, ("SEVERE",)) == []


def test_everything_fits_a_narrow_window(chrome: webdriver.Chrome) -> None:
    resize(chrome, 390)
    widths = "return found(document, '.js-plotly-plot').map((plot) => plot._fullLayout.width)"
    _wait(chrome, lambda: all(width < 390 for width in chrome.execute_script(DEEP + widths)))
    boxes = DEEP + "return found(document, 'marimo-slider, marimo-dropdown').map((one) => one.getBoundingClientRect())"
    assert all(box["left"] >= 0 and box["right"] <= 390 for box in chrome.execute_script(boxes))
    assert chrome.execute_script("const page = document.documentElement; return page.scrollWidth <= page.clientWidth")
