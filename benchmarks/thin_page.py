"""docs/thin-links.md and docs/pictures/thin-links.svg from what `benchmarks.thin_links` measured."""

from pathlib import Path

import numpy as np

from benchmarks.tables import table
from benchmarks.thin_network import BURST
from benchmarks.thin_problems import PROBLEMS, SITES, Table, ThinProblem
from fedlin.report.figure import Curve, Figure, Panel
from fedlin.report.matplotlib_figures import save as draw

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURES = DOCS / "thin-links.md", DOCS / "pictures"
SHOWN = "network"  # the problem whose seconds are drawn for every speed
FIRST = 2  # rounds that are not counted: the opening one is a program of its own and sends in full, so that two compile
DENSE, COMPRESSED = "FedLin", "compressed FedLin"
TEXT = """\
# Thin links

Sites whose data differ, on links of low bandwidth: a federation over NVIDIA FLARE with TLS, run by the commands of
[the handbook](operate.md), its server and {sites} sites each in a network namespace of one machine. `tc tbf` gives the
link of each site {speeds} Mbit/s each way, and a relay at each site adds {delay:g} ms to every message, since not
every kernel has netem. `make bench-thin` measures it, as root; where namespaces or `tc` are missing it says so and
measures nothing.

Measured before messages over FLARE were sent as they are now: each was a stream with a receipt for every part, and took
more bytes and time of its own. Neither the seconds nor the overhead below are those of the present version.

![Accuracy by seconds at {thin:g} Mbit/s, and seconds to the accuracy by speed](pictures/thin-links.svg)

{problems}

Every method takes {tau} local steps and the step size of a grid that reaches the target in the fewest rounds in
simulation; for the network, on other images than those it is tested on. A method that does not reach it runs {played}
rounds, and its seconds are in brackets. The gap or accuracy after each round is taken from the simulation of
the same run; the last model of the federation is measured too, in the last column. Seconds are from the
end of the second round, since the first two compile, to the end of the round that reaches the target; those two rounds
took {start:.0f} s in the median. All processes were on {cores} cores, whose load average was {least:g} to {most:g}.

{tables}

## What `Clock` was given

None of the seconds measured on shaped links. Its speed, and its latency beyond the relay's delay, are fitted to the
median rounds of the three methods over links that are not shaped. The bytes that FLARE, TLS and TCP add to a message
are half of what those links carried beyond the method's own: the other half are acknowledgements, as long as the
envelopes, which travel the other way while the receiver works. The half was found in packets of a run at 5 Mbit/s,
after first results at 0.5 Mbit/s. The bandwidth of a shaped link is the one that was set. After a pause `tbf` lets the
{burst:,} bytes of a packet through at once, as it must, so that as many of those added to a message cost nothing: this
was added after the first predictions for a9a, which were more than a quarter too long at 0.5 Mbit/s. The largest error
is {worst:.0%}, the median {typical:.0%}.

{clocks}

## Whole messages and compressed ones, at {thin:g} Mbit/s

{verdict}
"""
ADVICE = """\
## What `fedlin advise` said

None of the numbers it was given is from a shaped run. The network's target is a loss of about what models of that
accuracy have, chosen after their losses were measured. Its steps are tuned, for each candidate by itself, in the pilots
of `advise`.

{advice}
"""


def taken(run: Table) -> float:
    """Seconds from the end of the last round that compiles to that of the last."""
    return float(run["seconds"][-1] - run["seconds"][FIRST - 1])


def error(run: Table) -> float:
    """How far off the clock was, over what was measured."""
    return abs(float(run["predicted"]) / taken(run) - 1)


def _quality(problem: ThinProblem, value: float) -> str:
    return f"{value:.3f}" if problem.measure == "accuracy" else f"{value:.1e}"


def _goal(problem: ThinProblem) -> str:
    return f"{problem.measure} {'≥' if problem.measure == 'accuracy' else '≤'} {problem.target:g}"


def runs_table(which: str, found: Table) -> str:
    """Every method at every speed, measured and predicted."""
    problem, tuned = PROBLEMS[which], found["tuned"][which]
    rows = []
    for speed in shaped(found["runs"][which]):
        for name, run in found["runs"][which][speed].items():
            there = tuned[name]["reached"]
            rows.append(
                (
                    f"{speed} Mbit/s",
                    name,
                    str(tuned[name]["rounds"]) if there else f"{tuned[name]['rounds']}, not reached",
                    f"{taken(run):.1f}" if there else f"({taken(run):.1f})",
                    f"{run['predicted']:.1f}",
                    f"{run['predicted'] / taken(run) - 1:+.0%}",
                    _quality(problem, run["ends at"]),
                )
            )
    heads = ("link", "method", "rounds", "seconds", "by `Clock`", "error", "ends at")
    return f"### {problem.title[0].upper()}{problem.title[1:]}: {_goal(problem)}\n\n{table(heads, rows)}"


def clock_table(found: Table) -> str:
    """What was taken from the runs over links that were not shaped."""
    rows = []
    for which, known in found["clock"].items():
        speed = f"{known['speed']:.0f}" if known["speed"] else "not seen"
        overhead = ", ".join(f"{name} {value:,.0f}" for name, value in known["overhead"].items())
        rows.append((which, f"{1e3 * known['latency']:.1f} ms", speed, overhead))
    return table(("", "latency of a message", "gradients a second", "bytes added to a message"), rows)


def advice_table(which: str, found: Table) -> str:
    """The candidates in the order of their seconds."""
    rows = [
        (one["label"], *(f"{one[cost]:.0f}" if np.isfinite(one[cost]) else "–" for cost in ("rounds", "seconds")))
        for one in found["advice"][which]["forecasts"]
    ]
    asked = " ".join(f"--{name} {value:.3g}" for name, value in found["advice"][which]["options"].items())
    command = f"`fedlin advise experiment.toml --by seconds {asked}`"
    return f"For `{which}`, {command}:\n\n{table(('candidate', 'rounds', 'seconds'), rows)}"


def ratio_advised(which: str, found: Table) -> float:
    """The seconds of whole messages over those of compressed ones, as `advise` expected them."""
    expected = {one["label"]: one["seconds"] for one in found["advice"][which]["forecasts"]}
    return float(expected["fedlin"] / expected[f"compressed(k={PROBLEMS[which].methods[COMPRESSED]['k']})"])


def ratio_measured(which: str, found: Table) -> float:
    """The same as it was measured over the thinnest links."""
    runs = found["runs"][which]
    dense, compressed = (taken(runs[shaped(runs)[0]][name]) for name in (DENSE, COMPRESSED))
    return dense / compressed


def verdict(found: Table) -> str:
    """What was predicted and what was measured."""
    said = []
    for which in found["runs"]:
        was = ratio_measured(which, found)
        ahead, factor = ("ahead of", was) if was > 1 else ("behind", 1 / was)
        line = f"- `{which}`: compressed FedLin is {ahead} whole messages by a factor of {factor:.1f} in seconds."
        if which in found.get("advice", {}):
            expected = ratio_advised(which, found)
            line += f" `advise` expected whole messages to take {expected:.1f} times the seconds of compressed ones."
        said.append(f"{line} {sizes(which, found)}")
    return "\n".join(said)


def sizes(which: str, found: Table) -> str:
    """Why: what compression saves of a message with its envelope, and what it costs in rounds."""
    tuned, added = found["tuned"][which], found["clock"][which]["overhead"]
    sent = {name: tuned[name]["bytes"][-1][0] for name in (DENSE, COMPRESSED)}
    carried = {name: sent[name] + added[name] for name in sent}
    rounds = tuned[COMPRESSED]["rounds"] / tuned[DENSE]["rounds"]
    return (
        f"A message has {sent[DENSE]:,} bytes whole and {sent[COMPRESSED]:,} compressed; with what FLARE, TLS and TCP "
        f"add, {carried[DENSE]:,.0f} and {carried[COMPRESSED]:,.0f}. Compressed messages take {rounds:.1f} times the "
        "rounds."
    )


def shaped(runs: Table) -> list[str]:
    """The speeds measured, the lowest first, without the runs that `Clock` was fitted to."""
    return sorted((speed for speed in runs if speed != "free"), key=float)


def figure(found: Table) -> Figure:
    """The measures against seconds over the thinnest links, and seconds against speed, with the clock's."""
    problem, runs = PROBLEMS[SHOWN], found["runs"][SHOWN]
    speeds, needed = shaped(runs), []
    for kind, of in (("measured", taken), ("points", lambda run: run["predicted"])):
        for name in problem.methods:
            label = name if kind == "measured" else f"{name}, by Clock"
            x, y = np.array([float(speed) for speed in speeds]), np.array([of(runs[speed][name]) for speed in speeds])
            needed.append(Curve(label, x, y, kind=kind))  # type: ignore[arg-type]
    return Figure(
        "thin-links",
        "Thin links",
        (
            progress(SHOWN, found),
            Panel(f"{SHOWN}, to {_goal(problem)}", "Mbit/s of a site's link", "seconds", tuple(needed), xscale="log"),
        ),
    )


def progress(which: str, found: Table) -> Panel:
    """How good models are against seconds over the thinnest links."""
    problem, tuned, runs = PROBLEMS[which], found["tuned"][which], found["runs"][which]
    thin, curves = shaped(runs)[0], []
    for name in problem.methods:
        run = runs[thin][name]
        at = np.array(run["seconds"][FIRST - 1 :]) - run["seconds"][FIRST - 1]
        curves.append(Curve(name, at, np.array(tuned[name]["curve"][FIRST : FIRST + len(at)])))
    named, scale = ("test accuracy", "linear") if problem.measure == "accuracy" else (problem.measure, "log")
    title = f"{which}, links of {thin} Mbit/s"
    return Panel(title, "seconds of wall time", named, tuple(curves), yscale=scale)  # type: ignore[arg-type]


def write(found: Table) -> str:
    """The page."""
    measured = [run for runs in found["runs"].values() for speed in shaped(runs) for run in runs[speed].values()]
    errors = [error(run) for run in measured]
    speeds = [float(speed) for speed in shaped(found["runs"][SHOWN])]
    page = TEXT.format(
        sites=len(SITES),
        speeds=", ".join(f"{speed:g}" for speed in speeds),
        delay=1e3 * found["delay"],
        thin=min(speeds),
        tau=PROBLEMS[SHOWN].tau,
        played=PROBLEMS[SHOWN].most,
        problems="\n".join(
            f"- `{which}`: {problem.title}; {_goal(problem)}."
            for which, problem in PROBLEMS.items()
            if which in found["runs"]
        ),
        start=np.median([run["seconds"][FIRST - 1] for run in measured]),
        cores=found["cores"],
        least=min(run["load"] for run in measured),
        most=max(run["load"] for run in measured),
        tables="\n\n".join(runs_table(which, found) for which in found["runs"]),
        burst=BURST,
        worst=max(errors),
        typical=np.median(errors),
        clocks=clock_table(found),
        verdict=verdict(found),
    )
    if "advice" in found:
        tables = "\n\n".join(advice_table(which, found) for which in found["advice"])
        page += "\n" + ADVICE.format(advice=tables)
    return page


def save(found: Table, page: Path = PAGE, pictures: Path = PICTURES) -> None:
    """The page and its picture."""
    page.write_text(write(found), encoding="utf-8")
    png, _ = draw(figure(found), pictures)
    png.unlink()
