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


DECODING = """\
import resource, struct, sys, uuid
from nvflare.fuel.utils import fobs
from nvflare.private.fed.utils.fed_utils import fobs_initialize

fobs_initialize()
main = fobs.dumps({"a": 1})
print(fobs.loads(main), len(fobs.loads(fobs.dumps(bytes(20 << 20)))))
for marker, kind in ((103, 0), (101, 1), (101, 2), (101, 3), (102, 3)):  # a file, and what is fetched from a sender
    try:
        fobs.loads(main + struct.pack(">BBQ", marker, kind, 17) + uuid.uuid4().bytes + b"x")
        print("decoded")
    except Exception as error:
        print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(65536, int(sys.argv[1])))
"""


def test_what_comes_in_a_message_is_decoded_from_it_alone(tmp_path: Path) -> None:
    """FLARE would write what says that it is a file to one, and fetch what says where it is; and files may be many."""
    (tmp_path / "program.py").write_text(DECODING, encoding="utf-8")
    resource = pytest.importorskip("resource")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = [sys.executable, start_program.__file__, "program", str(most if most >= 0 else 1 << 30)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    first, *refused, files = done.stdout.splitlines()
    assert first == f"{{'a': 1}} {20 << 20}"
    assert refused[0] == "no message of a federation has a file in it"
    assert refused[1:] == [f"cannot find handler for Datum Object Type {kind}" for kind in (1, 2, 3, 3)]
    assert files == "True"


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
