"""Write docs/few-bits.md and docs/pictures/few-bits.svg, from what `few_bits` measured."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from benchmarks import few_bits_spread
from benchmarks.few_bits import RESULTS
from benchmarks.tables import table
from fedlin.claims.common.shootout_data import SPARSE
from fedlin.report.matplotlib_figures import RC
from fedlin.report.style import COLOURS

DOCS = Path(__file__).parent.parent / "docs"
PAGE, TEMPLATE, PICTURE = DOCS / "few-bits.md", DOCS / "few_bits_page.txt", DOCS / "pictures" / "few-bits.svg"
# Of which the text tells the bits.
TOLD = {
    "ours": "fedlin_newton at the steps of its theory",
    "rival": "FedNL, rank 1, half precision",
    "local": "Many local steps, 8 bits",
    "local16": "Many local steps",
    "momentum": "Nesterov's momentum, 8 bits",
    "anderson": "Anderson's acceleration, 5 rounds",
    "catalyst": "Catalyst",
    "restart": "Momentum that restarts itself",
    "nesterov": "Nesterov's momentum",
}


def load() -> dict[str, Any]:
    """What was measured."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found | {"elsewhere": json.loads(few_bits_spread.RESULTS.read_text())}


def best(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every variant the setting with the fewest bits to the last goal, then to the one before."""
    chosen: dict[str, dict[str, Any]] = {}
    for run in runs:
        name = run["variant"]
        if name not in chosen or _rank(run) < _rank(chosen[name]):
            chosen[name] = run
    return sorted(chosen.values(), key=_rank)


def _rank(run: dict[str, Any]) -> list[float]:
    return [np.inf if bits is None else bits for bits in reversed(run["bits"])]


def rows(runs: list[dict[str, Any]]) -> str:
    """A table of runs."""

    def cell(rounds: int | None, bits: int | None) -> str:
        return "–" if rounds is None else f"{bits:,} ({rounds:,})"

    heads = ("", "setting", *(f"bits to {goal} (rounds)" for goal in ("10⁻⁴", "10⁻⁶", "10⁻¹⁰")))
    cells = [
        (
            run["variant"],
            re.sub(r"^1( Newton)? steps", r"1\1 step", run["setting"]),
            *(cell(*pair) for pair in zip(run["rounds"], run["bits"], strict=True)),
        )
        for run in runs
    ]
    return table(heads, cells)


def by_kappa(found: list[dict[str, Any]]) -> tuple[str, str]:
    """The table of medians against κ, and the slopes."""
    kappas = sorted({row["kappa"] for row in found})
    methods = list(dict.fromkeys(row["method"] for row in found))
    cells, slopes = [], []
    for method in methods:
        line, logs = [method], []
        for kappa in kappas:
            own = [row for row in found if row["method"] == method and row["kappa"] == kappa]
            there = [row for row in own if row["rounds"] is not None]
            if not there or len(there) < len(own):
                line.append("–")
                continue
            middle = sorted(there, key=lambda row: row["rounds"])[len(there) // 2]
            line.append(f"{middle['rounds']:,} rounds, {middle['bits']:,} bits")
            logs += [(np.log(kappa), row["draw"], np.log(row["rounds"])) for row in there]
        each = [
            np.polyfit([x for x, draw, _ in logs if draw == one], [y for _, draw, y in logs if draw == one], 1)[0]
            for one in {draw for _, draw, _ in logs}
        ]
        slopes.append(f"{method} {min(each):.2f} to {max(each):.2f}")
        cells.append(line)
    return table(("", *(f"κ = {kappa:,.0f}" for kappa in kappas)), cells), "; ".join(slopes)


def elsewhere(found: list[dict[str, Any]]) -> str:
    """How much curvatures differ on each problem, and what FedLin with Newton's steps takes by its step."""

    def cell(row: dict[str, Any], place: str) -> str:
        ended, step = row[place], row["steps"][place]
        words = "–" if ended["rounds"] is None else f"{ended['bits']:,.0f} ({ended['rounds']})"
        return f"{words}, η = {step:.2f}"

    heads = ("", "κ", "M at the start", "M at x*", "step of the start: bits (rounds)", "twice that", "step of x*")
    cells = [
        (
            row["problem"],
            f"{row['kappa']:,.0f}",
            *(f"{row['spreads'][place]:.1f}" for place in ("start", "end")),
            *(cell(row, place) for place in ("start", "twice", "end")),
        )
        for row in found
    ]
    return table(heads, cells)


def draw(runs: list[dict[str, Any]]) -> Figure:
    """A bar for every variant that came to the last goal."""
    shown = [run for run in runs if run["bits"][-1] is not None]
    with rc_context(RC):
        canvas = Figure(figsize=(7.2, 0.9 + 0.28 * len(shown)), layout="constrained")
        axes = canvas.subplots()
        second = ["FedNL" in run["variant"] for run in shown]
        axes.barh(range(len(shown)), [run["bits"][-1] for run in shown], color=[COLOURS[int(s)] for s in second])
        axes.set_yticks(range(len(shown)), [run["variant"] for run in shown])
        axes.set_xscale("log")
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.set_xlabel("bits up and down, a client, to a gap of 10⁻¹⁰")
    return canvas


def write(found: dict[str, Any]) -> str:
    """The page: the template with what was found in its places."""
    tried = best(found["runs"])
    named = {run["variant"]: run for run in (*tried, *best(found["shipped"]))}
    said = {key: _bits(named[name]) for key, name in TOLD.items()}
    said["kappa"], said["slopes"] = by_kappa(found["kappa"])
    sparse = next(row for row in found["elsewhere"] if row["problem"] == SPARSE)
    said |= {"elsewhere": elsewhere(found["elsewhere"]), "spread_most": f"{few_bits_spread.MOST}"}
    said |= {f"sparse_{place}": f"{spread:.1f}" for place, spread in sparse["spreads"].items()}
    said |= {"sparse_first": f"{sparse['start']['rounds']}", "sparse_highest": f"{sparse['end']['highest']:.1f}"}
    said |= {"shipped": rows(sorted(found["shipped"], key=_rank)), "tried": rows(tried)}
    said |= {"local_setting": named[TOLD["local"]]["setting"], "most": f"{found['most']:,}"}
    said |= {"condition": f"{found['kappa of a9a']:,.0f}", "spread": f"{found['spread of a9a']:.2f}"}
    page = TEMPLATE.read_text(encoding="utf-8")
    for key, words in said.items():
        page = page.replace("{{" + key + "}}", words)
    return page


def _bits(run: dict[str, Any]) -> str:
    return "more bits than its rounds allowed" if run["bits"][-1] is None else f"{run['bits'][-1]:,} bits"


def main() -> None:
    """Write both."""
    found = load()
    PAGE.write_text(write(found), encoding="utf-8")
    canvas = draw(sorted(best(found["runs"]) + best(found["shipped"]), key=_rank))
    with rc_context(RC):
        canvas.savefig(PICTURE, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
