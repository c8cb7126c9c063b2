"""The methods of a setting on rows nobody learned from: tables of metrics, pictures by round, client and chance."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedlin.columns import column
from fedlin.comparison import method_curve
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.text_table import TextTable
from fedlin.result import Result

Reports = Mapping[str, Sequence[Mapping[str, Any]]]  # of every method, one a seed, as stored with its runs
ENDINGS = ("_worst", "_median")
BY_ROUND = ("accuracy", "log_loss", "explained", "rmse", "deviance")


def held_out_table(reports: Reports) -> TextTable:
    """Every method's last models: each metric over all test rows, at the worst and at the median client."""
    heads = ("method", "metric", "all rows", "worst client", "median client")
    rows = []
    for method, seeds in reports.items():
        metrics = [report["metrics"] for report in seeds]
        for name in metrics[0]:
            if not name.endswith(ENDINGS):
                keys = [name, *(f"{name}{ending}" for ending in ENDINGS)]
                values = (np.median([one_seed.get(key, np.nan) for one_seed in metrics]) for key in keys)
                rows.append((method, column(name).title, *map(_write, values)))
    return TextTable("On rows nobody learned from", heads, tuple(rows))


def client_table(reports: Reports) -> TextTable:
    """What every client may expect of every method's last model, with the first seed."""
    first = {method: seeds[0]["clients"] for method, seeds in reports.items()}
    name = _main(reports)
    clients = next(iter(first.values()))
    rows = [
        (client, f"{clients[client]['rows']:,}", *(_write(values[client][name]) for values in first.values()))
        for client in clients
    ]
    return TextTable(f"{column(name).title.capitalize()} by client", ("client", "test rows", *first), tuple(rows))


def held_out_figure(results: Mapping[str, Sequence[Result]], reports: Reports) -> Figure:
    """Metrics by round, at every client, and stated chances beside what happened."""
    metrics = next(iter(reports.values()))[0]["metrics"]
    panels = [
        Panel(
            f"{column(name).title.capitalize()} on test rows",
            "rounds",
            column(name).label,
            tuple(method_curve(method, runs, name, "rounds") for method, runs in results.items()),
            yscale="linear",
        )
        for name in BY_ROUND
        if name in metrics
    ]
    name = _main(reports)
    points = {method: [(client["rows"], client[name]) for client in seeds[0]["clients"].values()]
              for method, seeds in reports.items()}  # fmt: skip
    panels.append(
        Panel(
            f"{column(name).title.capitalize()} of every client",
            "test rows of the client",
            column(name).label,
            tuple(_points(method, values) for method, values in points.items()),
            xscale="log",
            yscale="linear",
        )
    )
    calibrated = {method: seeds[0]["calibration"] for method, seeds in reports.items() if seeds[0]["calibration"]}
    if calibrated:
        lines = [
            Curve(method, *np.array([(group["stated"], group["happened"]) for group in bins]).T)
            for method, bins in calibrated.items()
        ]
        diagonal = Curve("as stated", np.array([0.0, 1.0]), np.array([0.0, 1.0]), kind="theory")
        panels.append(Panel("Calibration", "chance stated", "share that happened", (*lines, diagonal), yscale="linear"))
    return Figure("test", "On rows nobody learned from", tuple(panels))


def _points(method: str, values: Sequence[tuple[float, float]]) -> Curve:
    x, y = np.array(sorted(values), np.float64).T
    return Curve(method, x, y, kind="points")


def _main(reports: Reports) -> str:
    metrics = next(iter(reports.values()))[0]["metrics"]
    return next(name for name in BY_ROUND if name in metrics)


def _write(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else "–"
