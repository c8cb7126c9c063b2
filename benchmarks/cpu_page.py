"""The part of docs/performance.md that a CPU's figures fill: the other packages, growth, and what bounds a round."""

from typing import Any

from benchmarks.tables import batches, micro, recording, size, table

TEXT = """Measured on {cpu}, {cores} cores, {memory}, Python {python}, JAX {jax}, NumPy {numpy}; the other packages in
the versions of the table, each in a virtual environment and processes of its own, one thread for BLAS and PyTorch. The
load average was {load:.1f} at the start: on a busy machine look at ratios, not at seconds.

## Against other packages

W1 is the paper's least squares: 20 clients of 500×100, τ_i uniform on 2 to 100. W2 is logistic regression: 100
clients of 100×60, ten steps each. Both take whole gradients in float64, with every client in every round. A ratio is
the time of a round over that of a plain NumPy loop over clients and steps which runs FedLin just before and just
after: the median over {repeats} repeats, each a new process, and the range. {verdict}

{race}

![Time of a round over the NumPy loop's, for every package, on a log axis](pictures/peers.svg)

*First round* is from the start of the process, imports and compilation included; *memory* is the most that all its
processes held at once; both on W2. *Steps* tells whether every client takes its own τ_i steps of its own size or,
where the package has one number for all, the mean. *Answer* compares the model after {rounds} rounds with the
same rounds in NumPy, on both workloads: the larger relative distance, and right below {right:.0e}, since some
packages send float32.

fedlin's figures include the loss, the gradient norm, the gap and the distance after every round; the others measure
nothing. FedLin also takes a gradient more a client than FedAvg and SCAFFOLD. Least squares are quadratic, where
fedlin sums all local steps in closed form; *step by step* does not. Every package is used in its fastest form: FedLab
ready batches instead of its slower DataLoader, Flower clients in NumPy, FedJAX batches without shuffling.

## How time grows

Logistic regression in float32, FedLin with its measures, every client in every round, each point in a process of its
own. The line is a + b·size (a, b ≥ 0) with the least squares of relative errors; *over the line* is the measured time
over it.

{growth}

The same clients in one process, the sizes timed in turns so that a busy machine slows them alike:

{clients}

And a cohort of 1,000, drawn anew every round, against a federation of 1,000; *in chunks* from a memory-mapped file:

{cohorts}

## What bounds a round on a CPU

Here a copy in memory moves {copy:.0f} GB/s, a float64 matrix product runs at {flops:.0f} GFLOP/s, and a call of a
compiled program that does nothing takes {call}.

{needs}

*Operations* are those the method needs, *data* is what all clients hold, read once a round. A product of a matrix and
a vector does two operations for eight bytes, so it never comes near a matrix product's rate: it runs at the bandwidth
of the cache its data fits, or of the memory. W1 in closed form reads its matrices a few times a round whatever τ_i is,
so that bandwidth bounds it. Step by step, and in W2, a client's data is read again in every step: from the nearest
cache where a client takes all its steps before the next one (*client* below), through all caches where each step is
taken by all clients (*step*). With few clients of few rows a round is bound by the calls of its operations, which do
not grow: the offset of the lines above.

A round costs this much more with its measures:

{recording}

Many runs at once, as one batch:

{batches}

The memory layouts, as ratios to the NumPy loop: *client* runs all steps of a client before the next one, *step* runs
each step for all clients, *auto* chooses.

{layouts}
"""


def span(figure: dict[str, float], digits: str = ".3g") -> str:
    """Median (low to high)."""
    low, middle, high = (f"{figure[name]:{digits}}" for name in ("low", "median", "high"))
    return f"{middle} ({low} to {high})"


def times(race: list[dict[str, Any]], row: dict[str, Any], workload: str) -> float:
    """How many times fedlin's time a contestant takes."""
    own = next(entry for entry in race if entry["title"] == "fedlin")
    return float(row[workload]["ratio"]["median"] / own[workload]["ratio"]["median"])


def verdict(race: list[dict[str, Any]]) -> str:
    """The least advantage over a peer, of all that ran."""
    said = []
    for workload in ("W1", "W2"):
        ran = [row for row in race if row["peer"] and "ratio" in row[workload]]
        if not ran:
            return "No other package could be run."
        closest = min(ran, key=lambda row: times(race, row, workload))
        said.append(f"{times(race, closest, workload):,.0f} times fedlin's time on {workload} ({closest['title']})")
    return f"By these medians the other packages take at least {said[0]} and {said[1]}."


def race_rows(race: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """One row a contestant; who could not be installed or did not run has one too, with the reason."""
    rows = []
    for row in race:
        figures = {name: row[name] for name in ("W1", "W2") if name in row}
        ran = [figure for figure in figures.values() if "ratio" in figure]
        version = ran[0]["version"] if ran else ""
        cells = [f"{row['title']} {version}".strip(), row["method"], "own" if row["own steps"] else "mean"]
        if row["missing"]:
            rows.append((*cells, f"could not be installed: {row['missing']}", *[""] * 6))
            continue
        for name in ("W1", "W2"):
            if name not in figures:
                cells += ["", ""]
            elif "ratio" in figures[name]:
                more = times(race, row, name)
                cells += [span(figures[name]["ratio"]), f"{more:,.0f}" if more >= 100 else f"{more:.2g}"]
            else:
                cells += [f"failed: {figures[name]['failed']}", ""]
        last = ran[-1] if ran else None
        cells += [f"{last['first']['median']:.1f} s", size(last["peak"]["median"])] if last else ["", ""]
        worst = max((figure["distance"] for figure in ran), default=float("nan"))
        right = all(figure["right"] for figure in ran)
        cells.append(f"{'right' if right else '**wrong**'} ({worst:.0e})" if ran else "")
        rows.append(tuple(cells))
    return rows


def growth_rows(growth: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row a point."""
    rows = []
    for kind, curve in growth.items():
        fixed = ", ".join(f"{name} {value}" for name, value in curve["fixed"].items())
        for number, point in enumerate(curve["points"]):
            cells = [f"{kind} ({fixed})" if number == 0 else "", f"{point['size']:,}"]
            if "failed" in point:
                rows.append((*cells, f"failed: {point['failed']}", "", ""))
                continue
            over = point["seconds"] / (curve["offset"] + curve["slope"] * point["size"])
            rows.append((*cells, micro(point["seconds"]), f"{over:.2f}", size(point["peak"])))
    return rows


def client_rows(clients: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row a number of clients."""
    line, each = clients["straight line"], clients["per client over that of 1,000"]
    rows: list[tuple[str, ...]] = []
    for count, seconds in clients["seconds a round"].items():
        over = seconds / (line["offset"] + line["slope"] * int(count.replace(",", "")))
        rows.append((count, micro(seconds), f"{over:.2f}", f"{each[count]:.2f}"))
    return rows


def cohort_rows(cohorts: dict[str, Any]) -> list[tuple[str, ...]]:
    """One row a way, with its ratio to a federation of the cohort's size where it is a cohort."""
    rows: list[tuple[str, ...]] = []
    for way, seconds in cohorts["seconds a round"].items():
        ratio = ""
        if way in cohorts["ratio"]:
            low, high = cohorts["range"][way]
            ratio = span({"median": cohorts["ratio"][way], "low": low, "high": high})
        rows.append((way, micro(seconds), ratio))
    return rows


def need_rows(measured: dict[str, Any]) -> list[tuple[str, ...]]:
    """A round of fedlin against what the machine gives."""
    by_title = {row["title"]: row for row in measured["race"]["rows"]}
    top, rows = measured["ceilings"], list[tuple[str, ...]]()
    for name, need in measured["needs"].items():
        figure = by_title["fedlin"]["W2"] if name == "W2" else by_title[name]["W1"]
        seconds = figure["seconds"]["median"]
        rate, traffic = need["operations"] / seconds, need["bytes"] / seconds
        title = {"fedlin": "W1, closed form", "fedlin, step by step": "W1, step by step"}.get(name, name)
        rows.append(
            (
                title,
                micro(seconds),
                f"{need['operations'] / 1e6:.2g} million",
                f"{rate / 1e9:.2g} GFLOP/s ({rate / top['flop/s']:.0%} of a matrix product)",
                size(need["bytes"]),
                f"{traffic / 1e9:.2g} GB/s ({traffic / top['copy bytes/s']:.0%} of a copy)",
            )
        )
    return rows


def write(measured: dict[str, Any]) -> str:
    """The text, filled."""
    race, engine, top = measured["race"]["rows"], measured["engine"], measured["ceilings"]
    machine = {**measured["machine"], "memory": size(measured["machine"]["memory"])}
    ran = [row[name] for row in race for name in ("W1", "W2") if row["title"] == "fedlin"]
    heads = ("", "method", "steps", "W1", "× fedlin", "W2", "× fedlin", "first round", "memory", "answer")
    return TEXT.format(
        **machine,
        repeats=ran[0]["repeats"],
        rounds=measured["race"]["rounds"],
        right=measured["race"]["right"],
        verdict=verdict(race),
        race=table(heads, race_rows(race)),
        growth=table(
            ("what grows", "size", "a round (rounds: the run)", "over the line", "memory"),
            growth_rows(measured["growth"]),
        ),
        clients=table(
            ("clients", "a round", "over the line", "a client's time over that of 1,000"),
            client_rows(measured["scale"]["clients"]),
        ),
        cohorts=table(("", "a round", "over the federation"), cohort_rows(measured["scale"]["cohorts"])),
        copy=top["copy bytes/s"] / 1e9,
        flops=top["flop/s"] / 1e9,
        call=micro(top["call"]),
        needs=table(("", "a round", "operations", "rate", "data", "traffic"), need_rows(measured)),
        layouts=table(tuple(engine["layouts"][0]), [tuple(row.values()) for row in engine["layouts"]]),
        recording=recording(engine["recording"]),
        batches=batches(engine["batches"]),
    )
