"""The report: a folder that opens in a browser from disk, with no network."""

import csv
import json
from collections.abc import Mapping, Sequence
from itertools import repeat
from pathlib import Path

from plotly.offline import get_plotlyjs

from fedlin.report.figure import Figure
from fedlin.report.matplotlib_figures import save
from fedlin.report.report_folder import staged
from fedlin.report.verdict import Verdict
from fedlin.report.verdict_page import page, stem


def write_report(
    verdicts: Sequence[Verdict],
    folder: Path | str,
    *,
    title: str = "FedLin, claim by claim",
    command: str = "fedlin reproduce",
    pictures: bool = True,
) -> Path:
    """Write the report and return its page; a report already there is replaced, anything else is left alone.

    Without `pictures` the figures are drawn in the browser only, with no PNG and SVG for papers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     page = write_report([Verdict("demo", "A demo", "One is one.", {}, ())], Path(home) / "report")
    ...     "One is one." in page.read_text(encoding="utf-8")
    True
    """
    figures = {stem(verdict, figure): figure for verdict in verdicts for figure in verdict.figures}
    verdicts_json = json.dumps([verdict.as_dict() for verdict in verdicts], indent=2) + "\n"
    return write_page(
        Path(folder), page(verdicts, title, command, pictures), figures, {"verdicts.json": verdicts_json}, pictures
    )


def write_page(
    folder: Path, html: str, figures: Mapping[str, Figure], files: Mapping[str, str], pictures: bool
) -> Path:
    """Write a page with its figures as data and pictures, and further files of text by name."""
    with staged(folder) as fresh:
        for part in ("data", "figures") if pictures else ("data",):
            (fresh / part).mkdir()
        for name, figure in figures.items():
            if pictures:
                save(figure, fresh / "figures", name)
            _write_csv(figure, fresh / "data" / f"{name}.csv")
        for name, text in {**files, "plotly.min.js": get_plotlyjs(), "index.html": html}.items():
            (fresh / name).write_text(text, encoding="utf-8", newline="\n")
    return folder / "index.html"


def _write_csv(figure: Figure, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("panel", "curve", "kind", "x", "y", "low", "high"))
        for panel in figure.panels:
            for curve in panel.curves:
                low = repeat("") if curve.low is None else curve.low.tolist()
                high = repeat("") if curve.high is None else curve.high.tolist()
                for numbers in zip(curve.x.tolist(), curve.y.tolist(), low, high, strict=False):
                    table.writerow((panel.title, curve.label, curve.kind, *numbers))
