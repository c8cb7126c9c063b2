"""Secure sums over NVIDIA FLARE: sites are killed before, during and after masking, and no bit of the model changes."""

import shutil
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

from test_chaos_flare import Faults, end, end_at, near

import fedlin
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.flare.processes import PROGRAMS
from fedlin.deploy.flare.programs import make_client
from fedlin.deploy.project import Project
from fedlin.deploy.settings import parse_settings, read_settings
from fedlin.deploy.status import Awaiting, lines
from fedlin.engines.federation import secure_site, secure_sum
from fedlin.errors import DeployError, WireError
from fedlin.transports.loopback import Loopback
from fedlin.transports.signatures import KitIdentity
from local_flare import importable, template

SITES = ("east", "north", "south", "west")
LIMIT = 900.0
BEFORE, DURING, AFTER = ("keys", "shares"), ("gradient", "model"), ("unmask",)


def federation(folder: Path, rounds: int, quorum: str = "") -> Project:
    """The template's federation with secure sums and short timeouts."""
    changes = {
        "rounds = 200": f"rounds = {rounds}",
        'uplink = "innovation(top_k(10))"': 'uplink = "innovation(identity())"',
        "timeout = 60.0": "timeout = 3.0",
        "patience = 3600.0": "patience = 300.0",
        "# norm_bound = 1e3": "norm_bound = 1e4",
        "# secure = true ": "secure = true ",
    }
    if quorum:
        changes["# quorum = 2"] = quorum
    return template(folder, SITES, changes)


def without_masks(project: Project, scratch: Path) -> Any:
    """The same run in one process, with fixed-point sums, no mask and no fault."""
    settings = read_settings(project.folder)
    handlers = {}
    for name in SITES:
        shutil.copytree(project.site(name), scratch / name)
        handlers[name] = make_client(name, str(scratch / name), str(project.folder))
    with pytest.MonkeyPatch.context() as patch:
        for module in (secure_site, secure_sum):
            patch.setattr(module, "add_mask", lambda *_, **__: None)
        result = fedlin.serve(
            settings.algorithm,
            Loopback(handlers),
            settings.plan,
            settings.rounds,
            dim=settings.dim,
            policy=settings.policy,
            secure=True,
        )
    return result.x


def kill_a_site_in(routes: Collection[str]) -> Callable[[Faults], Awaiting]:
    """Kill a site while the server waits for answers to such a message."""

    def kill(faults: Faults) -> Awaiting:
        now = faults.wait_for(lambda now: not now.over and now.phase in routes)
        (site,) = faults.sites()
        end(site.members())
        return now

    kill.__name__ = f"kill_a_site_in_{'_or_'.join(routes)}"
    return kill


def kill_the_server_in_unmask(faults: Faults) -> Awaiting:
    """It has asked for shares, and never hears them."""
    return end_at(faults, faults.run.server.members(), lambda now: now.phase in AFTER and not now.over)


def play(project: Project, faults: Sequence[Callable[[Faults], Any]], seed: int) -> Faults:
    run = LocalFederation(project, {**PROGRAMS, "client": "paced_sites:make_paced_client"})
    chaos = Faults(run, faults, seed)
    begun = time.monotonic()
    assert run.run(chaos) == {"status": "done", "rounds": read_settings(project.folder).rounds}
    assert time.monotonic() - begun < LIMIT
    assert len(chaos.met) == len(faults)
    for _, what, now in chaos.met:
        print(f"{what}{f' in {now.phase} of round {now.round}' if now else ''}")
    return chaos


@pytest.mark.long
def test_sites_killed_before_during_and_after_masking_change_no_bit(tmp_path: Path) -> None:
    """Every round waits for everyone: the model is that of fixed-point sums without masks and without faults."""
    project = federation(tmp_path / "federation", rounds=50)
    expected = without_masks(project, tmp_path / "undisturbed")
    kills = [kill_a_site_in(routes) for routes in (BEFORE, DURING, AFTER)]
    with importable():
        play(project, [*kills, kill_the_server_in_unmask, *kills], seed=0)
    np.testing.assert_array_equal(np.load(project.server / "model.npy"), expected)
    assert not [line for line in lines(project.server) if line.get("event") == "started afresh"]


@pytest.mark.long
def test_a_quorum_of_secure_sums_goes_on_and_ends_at_the_minimiser(tmp_path: Path) -> None:
    project = federation(tmp_path / "federation", rounds=100, quorum="quorum = 3")
    with importable():
        play(project, [kill_a_site_in(routes) for routes in (DURING, AFTER, BEFORE)], seed=1)
    played = [line for line in lines(project.server) if "answered" in line]
    assert {len(line["answered"]) for line in played} >= {3}
    assert near(project, len(SITES))


def test_settings_that_leave_no_secure_sum_are_refused(tmp_path: Path) -> None:
    site = {"tau": 2, "eta": 0.1}
    tables: dict[str, Any] = {
        "run": {"rounds": 3, "dim": 4, "secure": True},
        "algorithm": {"name": "fedlin"},
        "policy": {"norm_bound": 10.0},
        "sites": dict.fromkeys(("a", "b", "c", "d"), site),
    }
    assert parse_settings(tables).secure
    changes: list[tuple[dict[str, Any], str]] = [
        ({"policy": {}}, r"needs policy\.norm_bound"),
        ({"sites": {"a": site, "b": site}}, "at least 3 sites, and there are 2"),
        (
            {"policy": {"norm_bound": 10.0, "quorum": 2}},
            "at least 3 sites, and there are 4 of which a round goes on with 2",
        ),
    ]
    for change, why in changes:
        with pytest.raises(DeployError, match=why):
            parse_settings({**tables, **change})


def test_the_identity_of_a_kit_is_its_certificate(tmp_path: Path) -> None:
    """Another site's kit is believed for its own name alone, another federation's and a removed site's for none."""
    project = template(tmp_path / "one", SITES[:3], {})
    foreign = template(tmp_path / "other", SITES[:3], {})
    identity = {n: KitIdentity(project.site(n) / "startup", n, SITES[:2]) for n in SITES[:3]}
    stranger = KitIdentity(foreign.site("north") / "startup", "north", SITES[:2])
    east, north, south = (identity[name] for name in SITES[:3])
    east.check("north", north.certificate, b"statement", north.sign(b"statement"))
    for name, own, said, why in [
        ("north", north, b"other", "north did not sign this"),
        ("east", north, b"statement", "certificate is in the name of"),
        ("north", stranger, b"statement", "was not signed by this federation's authority"),
        ("south", south, b"statement", "south is not a site of this run"),
    ]:
        with pytest.raises(WireError, match=why):
            east.check(name, own.certificate, b"statement", own.sign(said))
