"""The site that MkDocs builds, opened from disk as a reader would: whole, on a phone too, and without a network."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from browser import errors, in_browser, requests, resize, started
from pages import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly, and without a word."""
    home = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(home)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return home


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with started(tmp_path_factory.mktemp("profile")) as driver:
        driver.get("about:blank")
        requests(driver)  # what the browser asked for before the site is not the site's
        yield driver


def test_nothing_comes_from_another_machine(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="(https?:[^"]*)', text)
        loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="(https?:[^"]*)', text)
        assert loaded == [], page.name


def test_formulas_and_doctests_are_drawn(site: Path) -> None:
    assert "<math" in (site / "how-it-works.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in (site / "api.html").read_text(encoding="utf-8"), "a doctest became a quotation"


@in_browser
def test_every_page_fits_a_phone(chrome: webdriver.Chrome, site: Path) -> None:
    """404.html is left out, which servers show under any address."""
    resize(chrome, 390)
    for page in sorted(site.glob("[!4]*.html")):
        chrome.get(page.as_uri())
        shape = "const page = document.documentElement; return page.scrollWidth <= page.clientWidth"
        assert chrome.execute_script(shape), page.name
        broken = "return [...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)"
        assert chrome.execute_script(broken) == [], page.name
        assert errors(chrome) == [], page.name
    assert {url.partition(":")[0] for url in requests(chrome)} <= {"file", "data"}


@in_browser
def test_search_finds_without_a_server(chrome: webdriver.Chrome, site: Path) -> None:
    resize(chrome, 1440)
    chrome.get((site / "index.html").as_uri())
    field = chrome.find_element(By.CSS_SELECTOR, "input[name=query]")
    field.click()
    field.send_keys("proximal")
    WebDriverWait(chrome, 30).until(lambda _: chrome.find_elements(By.CSS_SELECTOR, ".md-search-result__link"))
    links = chrome.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
    found = {re.sub(r".*/|[?#].*", "", str(link.get_attribute("href"))) for link in links}
    assert {"which-method.html", "models.html"} <= found
    assert errors(chrome) == []
    assert {url.partition(":")[0] for url in requests(chrome)} <= {"file", "data"}
