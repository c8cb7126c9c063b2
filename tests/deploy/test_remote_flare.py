"""A federation as on machines of their own, by the handbook's commands: faults, several runs, new certificates.

Run by `make test-long`.
"""

import signal
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVIDIA FLARE: pip install 'fedlin[flare]'")

import psutil
from benchmarks.federation_recovery import FAULTS, LIMIT, ROUNDS, Machines, running

from fedlin.deploy.flare.programs import make_client
from fedlin.deploy.runs import outcome
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.status import lines
from fedlin.engines.federation import serve
from fedlin.transports.loopback import Loopback

pytestmark = pytest.mark.long
SECOND = 30  # rounds of the second run


def screen(machines: Machines, command: str) -> str:
    return (machines.project.folder.parent / f"{command}.txt").read_text()


def leaves(machines: Machines, *words: str) -> int:
    return machines.command(*words).wait(LIMIT)


def test_a_federation_lives(tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    with running(folder) as machines:
        begun = time.monotonic()
        machines.next_round()
        print(f"first round: {time.monotonic() - begun:.1f} s", flush=True)
        assert_survives_the_terminal(machines)
        assert leaves(machines, "start", str(folder)) == 2
        assert "is in use by process" in screen(machines, "start-federation")
        for fault, (make, _) in FAULTS.items():
            machines.settle()
            print(f"{fault}: {make(machines):.1f} s", flush=True)
        machines.settle()
        assert "south takes part again" in screen(machines, "start-federation")
        jobs = list((machines.project.server / "jobs").iterdir())
        assert len(jobs) == 3  # the first, and one for each time that the server was away: not for a site's
        assert_bits(machines, tmp_path / "undisturbed")
        assert_stops_and_goes_on(machines)
        assert_another_run_follows(machines, tmp_path)


def assert_survives_the_terminal(machines: Machines) -> None:
    """The end of a terminal ends neither `join` nor `start`."""
    for pid in machines.pids():
        psutil.Process(pid).send_signal(signal.SIGHUP)
    machines.settle()
    assert all(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in machines.pids())


def assert_bits(machines: Machines, scratch: Path) -> None:
    """Up to the loss of a site's memory every round moved the model as in a run that nothing disturbs, to the bit."""
    written = lines(machines.project.server)
    lost = next(line["round"] for line in written if line.get("event") == "started afresh")
    moves = {line["round"]: line["move"] for line in written if "event" not in line and line["round"] <= lost}
    settings = read_settings(machines.project.folder)
    handlers = {}
    for name in settings.sites:
        (scratch / name).mkdir(parents=True)
        (scratch / name / "client.py").write_text((machines.project.site(name) / "client.py").read_text())
        handlers[name] = make_client(name, str(scratch / name), str(machines.project.folder))
    expected = serve(settings.algorithm, Loopback(handlers), settings.plan, lost, dim=settings.dim)
    assert lost > 20
    assert moves == dict(enumerate(expected.move[1:].tolist(), 1))


def assert_stops_and_goes_on(machines: Machines) -> None:
    """Who sent the job leaves, and it goes on; it is ended; and `start` takes it up where it was."""
    folder = str(machines.project.folder)
    machines.end_start(signal.SIGINT)
    assert "left: a run that has begun goes on at the server" in screen(machines, "start-federation")
    machines.next_round()
    assert leaves(machines, "stop", folder) == 0
    assert "ended 1 jobs" in screen(machines, "stop-federation")
    time.sleep(2.0)
    before = machines.round()
    time.sleep(5.0)
    assert machines.round() == before
    machines.start()
    machines.next_round()
    assert machines.round() > before


def assert_another_run_follows(machines: Machines, scratch: Path) -> None:
    """New certificates, other settings and a name: a run from the former model, which is kept."""
    folder = machines.project.folder
    machines.end_start(signal.SIGTERM)
    text = (folder / NAME).read_text().replace(f"rounds = {ROUNDS}", f"rounds = {SECOND}")
    (folder / NAME).write_text(text)
    assert leaves(machines, "start", str(folder)) == 2  # the other one still runs
    assert "the run without a name goes on with other settings" in screen(machines, "start-federation")
    assert leaves(machines, "stop", str(folder)) == 0
    assert leaves(machines, "renew", str(folder)) == 0
    for process in (machines.server, *machines.sites.values()):  # what is started again shows the new certificate
        machines.cut_power(process)
        machines.join(process)
    assert leaves(machines, "run", "first", str(folder)) == 0
    first = np.load(machines.project.server / "runs" / "first" / "model.npy")
    assert leaves(machines, "run", "second", str(folder), "--after", "first") == 0
    assert outcome(machines.project.server / "runs" / "second") == {"status": "done", "rounds": SECOND}
    np.testing.assert_array_equal(np.load(machines.project.server / "runs" / "first" / "model.npy"), first)
    began = [line for line in lines(machines.project.server / "runs" / "second") if "event" not in line]
    assert len(began) == SECOND
    # It started where the first ended, so that its first move is far smaller than the first one's.
    moves = [lines(machines.project.server / "runs" / name)[1]["move"] for name in ("first", "second")]
    assert moves[1] < 0.5 * moves[0]
