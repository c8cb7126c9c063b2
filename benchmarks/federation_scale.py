"""How a federation over FLARE grows: `python -m benchmarks.federation_scale SITES ENTRIES [--top | --secure]`.

All processes are on this machine. Seconds to the first round are from the start of the first process; CPU seconds are
those of all processes together, which is what a busy machine has to find. What was found is kept in benchmarks/results,
and stands in docs/operate.md.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

from benchmarks import operate_page
from fedlin.cache import keep_compiled
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.flare.processes import members_of
from fedlin.deploy.project import Project, create
from fedlin.deploy.settings import NAME
from fedlin.deploy.status import Progress, lines

_COMPILED = 3  # rounds in which programs are compiled
CLIENT = """\
import numpy as np

import fedlin

WEIGHT = 1.0


def distance(x, rows):
    return 0.5 * ((x - rows[0]) ** 2).sum()


def problem():
    centre = np.random.default_rng({seed}).standard_normal((1, 1, {dim}))
    return fedlin.problems.from_loss(distance, np.zeros({dim}), centre)
"""


def federation(folder: Path, sites: int, dim: int, top: bool, secure: bool, rounds: int, port: int) -> Project:
    """So many sites with a loss that costs next to nothing."""
    names = [f"site-{number:03d}" for number in range(sites)]
    create(folder, names, "localhost", port)
    kept = max(1, dim // 100)
    links = f'uplink = "top_k({kept})"\nmodel_uplink = "innovation(top_k({kept}))"\n' if top else ""
    links += f'model_downlink = "innovation(top_k({kept}))"\ndownlink = "top_k({kept})"\n' if top else ""
    numbers = "\n".join(f"{name} = {{ tau = 2, eta = 0.1 }}" for name in names)
    settings = "secure = true\n[policy]\nnorm_bound = 1e4\n" if secure else ""
    run = f"[run]\nrounds = {rounds}\ndim = {dim}\n{settings}"
    text = f'{run}[algorithm]\nname = "fedlin"\n{links}[sites]\n{numbers}\n'
    (folder / NAME).write_text(text, encoding="utf-8")
    for number, name in enumerate(names):
        (folder / "sites" / name / "client.py").write_text(CLIENT.format(seed=number, dim=dim), encoding="utf-8")
    return Project.read(folder)


def measure(sites: int, dim: int, top: bool, secure: bool, rounds: int) -> dict[str, Any]:
    """Seconds to the first round and a round, CPU seconds, memory of the server and disk of a site."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    keep_compiled()  # as the command does
    with tempfile.TemporaryDirectory() as folder:
        project = federation(Path(folder) / "federation", sites, dim, top, secure, rounds, port)
        run, begun, first, cpu = LocalFederation(project), time.monotonic(), 0.0, dict[int, float]()
        cpu_first, memory, looked = 0.0, 0, 0.0
        looks: list[tuple[int, float]] = []  # rounds played, and CPU seconds used until then

        def watch(now: Progress | None) -> None:
            nonlocal first, cpu_first, memory, looked
            if time.monotonic() - looked < 1.0 and not (now is not None and not first):
                return
            looked = time.monotonic()
            for process, members in members_of([run.server, *run.sites.values()]).items():
                for member in members:
                    try:
                        cpu[member.pid] = sum(member.cpu_times()[:2])
                        if process is run.server:
                            memory = max(memory, member.memory_info().rss)
                    except psutil.Error:
                        continue
            if now is not None and not first:
                first, cpu_first = time.monotonic() - begun, sum(cpu.values())
            if now is not None and now.round >= _COMPILED:
                looks.append((now.round, sum(cpu.values())))

        end = run.run(watch)
        if end["status"] != "done":
            raise RuntimeError(end["error"])
        times = [line["seconds"] for line in lines(project.server) if "event" not in line]
        site = project.site(project.sites[0])
        disk = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    (start, used), (last, used_last) = looks[0], looks[-1]
    return {
        "sites": sites,
        "entries": dim,
        "messages": "TOP-1 %" if top else "dense, masked" if secure else "dense",
        "first round, s": round(first, 1),
        "first round, CPU s": round(cpu_first, 1),
        "a round, s": round(median(np.diff(times)[_COMPILED - 1 :]), 3),
        "a round, CPU s": round((used_last - used) / (last - start), 3) if last > start else float("nan"),
        "server's memory, MB": memory >> 20,
        "disk of a site, MB": round(disk / 2**20, 2),
    }


COLUMNS = {
    "sites": "{:g}",
    "entries": "{:,}",
    "messages": "{}",
    "first round, s": "{:g}",
    "a round, s": "{:.2f}",
    "a round, CPU s": "{:.2f}",
    "server's memory, MB": "{:,}",
    "disk of a site, MB": "{:.2f}",
    "load": "{:g}",
    "processor": "{}",
}


def table(kept: dict[str, dict[str, Any]]) -> str:
    """The table of the handbook."""
    if not kept:
        return operate_page.UNMEASURED
    order = sorted(kept.values(), key=lambda one: (one["entries"], one["sites"], one["messages"]))
    rows = [[form.format(one[name]) for name, form in COLUMNS.items()] for one in order]
    return "\n".join("| " + " | ".join(row) + " |" for row in (list(COLUMNS), ["---"] * len(COLUMNS), *rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sites", type=int)
    parser.add_argument("entries", type=int)
    parser.add_argument("--top", action="store_true")
    parser.add_argument("--secure", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    where = operate_page.machine()
    found = where | measure(given.sites, given.entries, given.top, given.secure, given.rounds)
    print(json.dumps(found, indent=1))
    operate_page.keep("scale", {f"{found['sites']} sites, {found['entries']} entries, {found['messages']}": found})
    operate_page.fill("scale", table(operate_page.read("scale")))
