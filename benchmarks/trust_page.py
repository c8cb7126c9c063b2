"""Write docs/trust.md from docs/trust_page.txt and what was measured: `python -m benchmarks.trust_page`.

The figures are those of `benchmarks.trust` (bytes, exchanges, accuracy) and `benchmarks.secure_sums` (times).
"""

import json
from pathlib import Path
from typing import Any

from benchmarks import secure_sums, trust
from benchmarks.tables import table

PAGE = Path(__file__).parent.parent / "docs" / "trust.md"

LARGEST = 1e3  # beyond it a run is said to diverge
TEXT = Path(__file__).parent.parent / "docs" / "trust_page.txt"


def write(found: dict[str, Any], times: list[dict[str, Any]]) -> str:
    """The page."""
    threshold = next(row for row in found["thresholds"] if row["sites"] == trust.SITES)
    honest = threshold["threshold"] - threshold["colluding"]
    return TEXT.read_text().format(
        sites=trust.SITES,
        rounds=trust.ROUNDS,
        private_rounds=trust.PRIVATE_ROUNDS,
        private_runs=trust.PRIVATE_RUNS,
        epsilon=trust.EPSILON,
        delta=trust.DELTA,
        false=trust.FALSE,
        tallied=trust.TALLIED_DIM,
        difference=max(row["difference"] or 0.0 for row in found["accuracy"]),
        excess=(trust.SITES / honest) ** 0.5,
        own=trust.SITES**0.5,
        accuracy=_accuracy(found["accuracy"]),
        costs=table(
            ("", "exchanges a round", "bytes up", "bytes down"),
            [(row["with"], str(row["exchanges"]), f"{row['up']:,}", f"{row['down']:,}") for row in found["costs"]],
        ),
        times=table(
            ("sites", "entries", "rows of a site", "a plain round", "a secure round", "ratio"),
            [
                (
                    str(one["sites"]),
                    f"{one['dim']:,}",
                    str(one["rows"]),
                    f"{one['plain_cpu_ms']:.0f} ms",
                    f"{one['secure_cpu_ms']:.0f} ms",
                    f"{one['cpu_ratio']:.2f}",
                )
                for one in times
            ],
        ),
        ratios="; ".join(_ratios(times, rows) for rows in sorted({one["rows"] for one in times})),
        together=table(
            ("", ""),
            [(row["pair"], f"refused: {row['refusal']}" if row["refusal"] else "yes") for row in found["together"]],
        ),
        thresholds=table(
            ("sites", "threshold", "may be on the server's side"),
            [(str(row["sites"]), str(row["threshold"]), str(row["colluding"])) for row in found["thresholds"]],
        ),
    )


def _ratios(times: list[dict[str, Any]], rows: int) -> str:
    """What a secure round takes, over a plain one, at sites with so many rows."""
    said = [f"{one['cpu_ratio']:.2f} at {one['sites']} sites" for one in times if one["rows"] == rows]
    return f"with {rows} {'row' if rows == 1 else 'rows'} {' and '.join(said)}"


def _accuracy(rows: list[dict[str, Any]]) -> str:
    """The methods side by side."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    heads = [head for method in methods for head in (method, f"{method}, attacked")]
    ends = {(row["method"], row["with"]): row for row in rows}
    lines = []
    for what in dict.fromkeys(row["with"] for row in rows):
        pairs = [(ends[method, what]["far"], ends[method, what]["attacked"]) for method in methods]
        lines.append((what, *(_number(value) for pair in pairs for value in pair)))
    return table(("", *heads), lines)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return "diverges" if value > LARGEST else f"{value:.2g}"


def read() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What `benchmarks.trust` and `benchmarks.secure_sums` wrote."""
    return json.loads(trust.FILE.read_text()), json.loads(secure_sums.FILE.read_text())


if __name__ == "__main__":
    PAGE.write_text(write(*read()))
