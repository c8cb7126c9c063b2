"""Whole sites with a certificate of another authority, an expired one or none knock at a federation over NVIDIA FLARE.

Run by `make test-long`.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import fedlin
from bad_certificates import expired_certificate
from fedlin.deploy.flare.local_federation import LocalFederation
from fedlin.deploy.flare.processes import PROGRAMS, Process, stop_all
from fedlin.deploy.project import Project, create
from fedlin.deploy.runs import STATE, outcome
from fedlin.deploy.settings import NAME, read_settings
from local_flare import free_port
from template_data import drawn_problem

pytestmark = pytest.mark.long
SITES = ("north", "south")
ROUNDS = 20
LIMIT = 300.0  # seconds, on a machine that is busy with other things
REFUSALS = {  # what the server's log says of each
    "foreign": "unable to get local issuer certificate",
    "expired": "certificate has expired",
    "none": "PEER_DID_NOT_RETURN_A_CERTIFICATE",
}
# FLARE's own software does not even call with a certificate that its authority did not sign, or not for today.
CARELESS = """\
from nvflare.fuel.f3.cellnet import cell_cipher

cell_cipher.verify_cert_chain = lambda **chain: None
"""


def strangers(project: Project, elsewhere: Project, folder: Path) -> dict[str, Process]:
    """The second site's kit with another certificate, by what is wrong with it; all trust the federation's server."""
    name = SITES[1]
    kits = {kind: shutil.copytree(project.site(name), folder / kind) for kind in REFUSALS}
    foreign, expired, none = (kit / "startup" for kit in kits.values())
    other = elsewhere.site(name) / "startup"
    for place, pair in (
        (foreign, (other / "client.crt", other / "client.key")),
        (expired, expired_certificate(project, name)),
    ):
        for made, part in zip(pair, ("client.crt", "client.key"), strict=True):
            shutil.copyfile(made, place / part)
    settings = json.loads((none / "fed_client.json").read_text())
    settings["client"]["connection_security"] = "tls"  # the server's certificate alone
    (none / "fed_client.json").write_text(json.dumps(settings))
    return {kind: Process(kit, "client", name, PROGRAMS["client"]) for kind, kit in kits.items()}


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def test_a_site_with_the_wrong_certificate_stays_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come in the name of a site that is not there yet. The site itself is let in, and the run is as ever."""
    port = free_port()
    folder, elsewhere = tmp_path / "federation", create(tmp_path / "elsewhere", SITES, "localhost", port)
    create(folder, SITES, "localhost", port)
    (folder / NAME).write_text((folder / NAME).read_text().replace("rounds = 200", f"rounds = {ROUNDS}"))
    project = Project.read(folder)
    run, knocking = LocalFederation(project), strangers(project, elsewhere, tmp_path / "strangers")
    (tmp_path / "careless").mkdir()
    (tmp_path / "careless" / "sitecustomize.py").write_text(CARELESS)

    def refused() -> bool:
        log = (project.server / "process.log").read_text(errors="replace")
        return all(why in log for why in REFUSALS.values())

    def over() -> bool:
        run.driver.advance()
        return outcome(project.server) is not None

    try:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "careless"), *sys.path]))
        for process in knocking.values():
            process.start()
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        for process in (run.server, run.sites[SITES[0]]):
            process.start()
        wait_until(refused, "the server did not tell of three refusals")
        wait_until(lambda: bool(present(run)), "the first site was not let in")
        assert present(run) == {SITES[0]}
        run.sites[SITES[1]].start()
        wait_until(over, "the run did not end")
        assert all(process.alive() for process in knocking.values())
        assert present(run) == set(SITES)
    finally:
        stop_all(list(knocking.values()))
        run.close()
    assert outcome(project.server) == {"status": "done", "rounds": ROUNDS}
    assert not any((process.kit / STATE).exists() for process in knocking.values())  # nobody asked them anything
    told = read_settings(folder)
    expected = fedlin.simulate(told.algorithm, drawn_problem(2), told.plan, ROUNDS, seed=told.seed)
    np.testing.assert_allclose(np.load(project.server / "model.npy"), expected.x, rtol=1e-10, atol=1e-10)


def present(run: LocalFederation) -> set[str]:
    """Whom the server has let in."""
    try:
        return {client.name for client in run.driver.session().get_system_info().client_info}
    except Exception:  # the server is not there yet
        run.driver.forget()
        return set()
