"""FLARE's programs start without the driver for HTTP, and start the processes of jobs in the same way."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedlin.deploy.flare import start_program

pytest.importorskip("nvflare")

from raw_peer import make_certificates

PROGRAM = """\
import json, os, sys
from nvflare.fuel.f3.communicator import driver_mgr, load_comm_drivers

load_comm_drivers()
seen = {"arguments": sys.argv[1:], "first": sys.path[0], "name": __name__, "http": "aiohttp" in sys.modules}
print(json.dumps(seen | {"drivers": sorted(driver_mgr.drivers), "fedlin": "fedlin" in sys.modules}))
"""


def test_a_program_starts_as_by_its_name_without_the_driver_for_http(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, start_program.__file__, "program", "-m", "a kit"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert (seen["arguments"], seen["name"]) == (["-m", "a kit"], "__main__")
    assert Path(seen["first"]).samefile(tmp_path)  # where a site's client.py finds the files beside it
    assert not seen["http"]
    assert not seen["fedlin"]
    assert {"grpc", "grpcs", "tcp", "stcp"} <= set(seen["drivers"])
    assert not {"http", "https"} & set(seen["drivers"])


GATED = """\
from fedlin.transports import flare_gate

print([(type(gate).__name__, getattr(gate, "host", None) or gate.name) for gate in flare_gate._gates])
"""


@pytest.mark.parametrize(
    ("program", "gates"),
    [
        ("server_train", [("ServerGate", "localhost")]),
        ("client_train", [("SiteGate", "north")]),
        ("worker_process", [("SiteGate", "north")]),
        ("runner_process", []),  # which hears of others through the server's own
    ],
)
def test_processes_that_others_reach_have_a_gate_from_the_start(
    tmp_path: Path, program: str, gates: list[tuple[str, str]]
) -> None:
    make_certificates(tmp_path, "north")
    (tmp_path / "startup").mkdir()
    for name, role in (("localhost", "server"), ("north", "client")):
        (tmp_path / f"{name}.crt").rename(tmp_path / "startup" / f"{role}.crt")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / f"{program}.py").write_text(GATED, encoding="utf-8")
    command = [sys.executable, start_program.__file__, f"app.{program}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(gates)


@pytest.mark.parametrize("kind", ["client", "server"])
def test_jobs_start_likewise_also_in_a_folder_with_spaces(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import import_module

    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.apis.job_launcher_spec import JobProcessArgs

    module = import_module(f"nvflare.app_common.job_launcher.{kind}_process_launcher")
    launcher: Any = getattr(module, start_program._LAUNCHERS[kind])
    arguments = {
        JobProcessArgs.EXE_MODULE: ("-m", "nvflare.worker"),
        JobProcessArgs.JOB_ID: ("-n", "a-job"),
        JobProcessArgs.WORKSPACE: ("-m", "my federation/it's room#3"),
        JobProcessArgs.OPTIONS: ("--set", " secure_train=true uid=north"),
    }
    context = SimpleNamespace(get_prop={FLContextKey.JOB_PROCESS_ARGS: arguments}.get)
    monkeypatch.setattr(launcher, "get_command", launcher.get_command)
    start_program.launch_jobs_likewise(kind)
    argv = shlex.split(launcher().get_command({}, context))
    assert argv[:3] == [sys.executable, start_program.__file__, "nvflare.worker"]
    assert argv[3:] in (
        ["-m", "my federation/it's room#3", "-n", "a-job", "--set", "secure_train=true", "uid=north"],
        ["-n", "a-job", "-m", "my federation/it's room#3", "--set", "secure_train=true", "uid=north"],
    )
    assert arguments[JobProcessArgs.WORKSPACE] == ("-m", "my federation/it's room#3")  # nothing of FLARE's is changed
