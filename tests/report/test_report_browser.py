"""The report in a real browser, opened from disk as a reader would."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from browser import MARKS, errors, requests, resize, started
from fedlin.report.page import write_report
from report_samples import verdicts

PLOTS = 6  # the panels of the sample verdicts

pytestmark = MARKS


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(verdicts(), tmp_path_factory.mktemp("report") / "out")


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def show(chrome: webdriver.Chrome, page: Path, width: int = 1440, scheme: str = "light") -> None:
    """Open the page at that width and wait until every plot is drawn."""
    resize(chrome, width)
    prefer(chrome, scheme)
    chrome.get(page.as_uri())
    WebDriverWait(chrome, 30).until(
        lambda driver: driver.execute_script("return document.documentElement.dataset.drawn") == str(PLOTS)
    )


def prefer(chrome: webdriver.Chrome, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def test_the_page_opens_from_disk_alone(chrome: webdriver.Chrome, page: Path) -> None:
    requests(chrome)  # what the browser asked for before this page is not the page's
    show(chrome, page)
    asked = requests(chrome)
    assert page.as_uri() in asked
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert errors(chrome) == []
    assert len(chrome.find_elements(By.CSS_SELECTOR, ".js-plotly-plot")) == PLOTS
    assert all(
        plot.find_elements(By.CSS_SELECTOR, "svg.main-svg") for plot in chrome.find_elements(By.CLASS_NAME, "plot")
    )


def test_a_click_on_the_legend_hides_a_curve_and_its_band(chrome: webdriver.Chrome, page: Path) -> None:
    show(chrome, page)
    plot = chrome.find_element(By.CSS_SELECTOR, "#figure-fig4 .plot")

    def drawn() -> int:
        return len(plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace"))

    before = drawn()
    toggle = plot.find_element(By.CSS_SELECTOR, ".legend .traces:first-child .legendtoggle")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", toggle)
    toggle.click()
    WebDriverWait(chrome, 10).until(lambda _: drawn() == before - 2)
    visible = "return arguments[0]._fullData.filter(t => t.legendgroup.startsWith('FedLin')).map(t => t.visible)"
    assert chrome.execute_script(visible, plot) == ["legendonly", "legendonly"]


def test_the_csv_downloads_as_it_lies_on_disk(chrome: webdriver.Chrome, page: Path, tmp_path: Path) -> None:
    show(chrome, page)
    chrome.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    link = chrome.find_element(By.CSS_SELECTOR, "#figure-fig4 .downloads a[href$='.csv']")
    chrome.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", link)
    link.click()
    saved = tmp_path / "fig4.csv"
    WebDriverWait(chrome, 10).until(lambda _: saved.is_file())
    assert saved.read_bytes() == (page.parent / "data" / "fig4.csv").read_bytes()
    for link in chrome.find_elements(By.CSS_SELECTOR, ".downloads a"):
        target = link.get_dom_attribute("href")
        assert (page.parent / target).is_file()


@pytest.mark.parametrize("width", [390, 1440])
def test_everything_fits_the_screen(chrome: webdriver.Chrome, page: Path, width: int) -> None:
    show(chrome, page, width)
    fits = "const part = document.querySelector(arguments[0]); return part.scrollWidth <= part.clientWidth"
    assert chrome.execute_script(fits, "html")
    assert chrome.execute_script(fits, "#summary .scroll"), "verdicts stand in blocks on a phone"
    boxes = chrome.execute_script(
        """return [...document.querySelectorAll(".plot")].map((plot) => {
          const box = (part) => plot.querySelector(part).getBoundingClientRect();
          return { plot: plot.getBoundingClientRect(), legend: box(".legend"), label: box(".xtitle") };
        })"""
    )
    for box in boxes:
        assert box["label"]["bottom"] <= box["legend"]["top"]
        assert box["legend"]["right"] <= box["plot"]["right"] + 1
        assert box["legend"]["bottom"] <= box["plot"]["bottom"] + 1


def test_plots_follow_the_window(chrome: webdriver.Chrome, page: Path) -> None:
    show(chrome, page, 1440)
    sizes = """return [...document.querySelectorAll(".plot")].map(
      (plot) => [plot._fullLayout.width, plot._fullLayout.height])"""
    wide = chrome.execute_script(sizes)
    resize(chrome, 390)
    WebDriverWait(chrome, 10).until(lambda _: all(width < 390 for width, _ in chrome.execute_script(sizes)))
    assert [height for _, height in chrome.execute_script(sizes)] == [height for _, height in wide]
    assert errors(chrome) == []


def test_a_dark_page_has_dark_figures(chrome: webdriver.Chrome, page: Path) -> None:
    look = """const plot = document.querySelector("#figure-fig4 .plot");
      return {
        page: getComputedStyle(document.body).backgroundColor,
        text: plot._fullLayout.font.color,
        grid: plot._fullLayout.xaxis.gridcolor,
        theory: plot._fullData.find((trace) => trace.meta === "theory").line.color,
      }"""
    show(chrome, page, scheme="light")
    light = chrome.execute_script(look)
    prefer(chrome, "dark")  # the reader's system turns dark while the page is open
    WebDriverWait(chrome, 10).until(lambda _: chrome.execute_script(look)["theory"] == "#ffffff")
    switched = chrome.execute_script(look)
    show(chrome, page, scheme="dark")
    assert chrome.execute_script(look) == switched
    assert light["theory"] == "#000000"
    assert all(light[part] != switched[part] for part in light)
    assert errors(chrome) == []
