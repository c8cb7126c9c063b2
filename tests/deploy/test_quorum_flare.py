"""A quorum over NVIDIA FLARE with a site that is slow, and then frozen. Run by `make test-long`."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.flare.processes import PROGRAMS
from fedlin.deploy.settings import read_settings
from fedlin.deploy.status import Progress, lines
from local_flare import importable, template
from paced_sites import SLOW
from template_data import drawn_problem

pytestmark = pytest.mark.long
SITES = ("east", "north", SLOW)
# An old gradient counts for ten rounds and more, which takes steps of η̄ ≤ 1/(2L) for three sites: a twelfth of the
# template's.
SHORTER = {"eta = 0.002727": "eta = 0.000227", "eta = 0.00375": "eta = 0.000312", "eta = 0.006": "eta = 0.0005"}
SETTLED, SPAN, ROUNDS = 10, 30.0, 260  # rounds before anything is measured, seconds of each measurement, rounds in all


class Freeze:
    """Lets the run go on for a while, freezes the slow site for as long, and lets it go on."""

    def __init__(self, run: LocalFederation) -> None:
        self.run = run
        self.marks: list[tuple[float, int]] = []  # when, and the round: begun, frozen, thawed

    def __call__(self, now: Progress | None) -> None:
        if now is None or now.round < SETTLED or len(self.marks) == 3:
            return
        if self.marks and time.monotonic() - self.marks[-1][0] < SPAN:
            return
        for member in self.run.sites[SLOW].members() if self.marks else []:
            if len(self.marks) == 1:
                member.suspend()
            else:
                member.resume()
        self.marks.append((time.monotonic(), now.round))

    def rounds_a_second(self, first: int) -> float:
        (begun, before), (ended, after) = self.marks[first : first + 2]
        return (after - before) / (ended - begun)


def test_a_quorum_is_fair_to_a_slow_site_and_fast_under_a_frozen_one(tmp_path: Path) -> None:
    links = {'uplink = "innovation(top_k(10))"': 'uplink = "innovation(identity())"', "# quorum = 2": "quorum = 2"}
    project = template(tmp_path / "federation", SITES, {"rounds = 200": f"rounds = {ROUNDS}", **links, **SHORTER})
    run = LocalFederation(project, {**PROGRAMS, "client": "paced_sites:make_paced_client"})
    freeze = Freeze(run)
    with importable():
        end = run.run(freeze)
    assert end == {"status": "done", "rounds": ROUNDS}
    whole, frozen = freeze.rounds_a_second(0), freeze.rounds_a_second(1)
    print(f"{whole:.2f} rounds a second, {frozen:.2f} while a site is frozen")
    assert frozen >= 0.8 * whole

    def counted(first: int, last: int) -> list[int]:
        rounds: list[dict[str, Any]] = [line for line in lines(project.server) if "event" not in line]
        return [line["round"] for line in rounds if SLOW in line["answered"] and first <= line["round"] <= last]

    # It is waited for after ten rounds; on a busy machine it may miss that moment, and then its late answer tells that
    # it is there, and is soon followed by one that is waited for.
    often = 2 * read_settings(project.folder).policy.late_every - 1
    begun, stopped, thawed = (number for _, number in freeze.marks)
    assert max(np.diff([begun, *counted(begun, stopped), stopped])) <= often
    back, *later = counted(thawed, ROUNDS)
    assert back - thawed <= thawed - stopped  # who does not answer is waited for ever more rarely
    assert max(np.diff([back, *later, ROUNDS])) <= often
    assert not [line for line in lines(project.server) if line.get("event") == "outlier"]
    assert not counted(stopped + 2, thawed - 1)
    minimiser = drawn_problem(3).minimizer
    assert np.linalg.norm(np.load(project.server / "model.npy") - minimiser) < 1e-3 * np.linalg.norm(minimiser)
