"""Starts a program of NVIDIA FLARE behind a gate, without what no federation here uses: `start_program.py MODULE ...`.

The gate checks what others send before FLARE sees it (`transports/flare_gate.py`). FLARE imports every driver it has,
also that for HTTP, whose library takes a third of what a site's process takes to start; kits speak gRPC. The process of
a job is started in the same way, by the process that this starts. Run as a file, since the process of a job at the
server needs no gate, and importing `fedlin` for it now would take longer than leaving out the driver saves.
"""

import os
import runpy
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_UNUSED = "nvflare.fuel.f3.drivers.aio_http_driver"
_FILES = 65_536
_LAUNCHERS = {"client": "ClientProcessJobLauncher", "server": "ServerProcessJobLauncher"}


def start(program: str) -> None:
    """Run one of FLARE's modules as `python -m` does, with the arguments that are left."""
    sys.path[0] = os.getcwd()
    leave_out()
    decode_alone()
    allow_files()
    install_gate(program, Path.cwd())
    for kind in _LAUNCHERS:
        if program.endswith(f".{kind}_train"):
            launch_jobs_likewise(kind)
    runpy.run_module(program, run_name="__main__", alter_sys=True)


def leave_out() -> None:
    """Put an empty module where FLARE would look for the driver for HTTP."""
    sys.modules.setdefault(_UNUSED, ModuleType(_UNUSED))


def decode_alone() -> None:
    """Have FLARE decode a message from itself: it would write files, and fetch parts from where a sender says."""
    from nvflare.fuel.utils.fobs import lobs

    def no_folder() -> str:
        raise ValueError("no message of a federation has a file in it")

    lobs.get_datum_dir = no_folder
    lobs.get_dot_handler = lambda kind: None  # at which FLARE says that it cannot be decoded


def allow_files() -> None:
    """Let this process have as many open files as it may: every connection is one."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (_FILES if most == resource.RLIM_INFINITY else min(most, _FILES), most)
        )


def install_gate(program: str, kit: Path) -> None:
    """Have FLARE's own process of the server, and every one of a site, check what comes to it."""
    if program.endswith((".server_train", ".client_train", ".worker_process")):
        from nvflare.fuel.f3.cellnet.identity import get_cert_common_name_from_file as own_name

        from fedlin.transports.flare_gate import install

        if program.endswith(".server_train"):
            from fedlin.transports.flare_server_gate import ServerGate

            install(ServerGate(kit, str(own_name(str(kit / "startup" / "server.crt")))))
        else:
            from fedlin.transports.flare_requests import limit_requests
            from fedlin.transports.flare_site_gate import SiteGate

            install(SiteGate(kit, str(own_name(str(kit / "startup" / "client.crt")))))
            limit_requests(kit)


def launch_jobs_likewise(kind: str) -> None:
    """Have FLARE start the process of a job by this file too, also where the name of a folder has spaces in it."""
    from importlib import import_module

    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.apis.job_launcher_spec import JobProcessArgs

    module = import_module(f"nvflare.app_common.job_launcher.{kind}_process_launcher")
    launcher: Any = getattr(module, _LAUNCHERS[kind])
    original = launcher.get_command

    def get_command(self: Any, job_meta: dict[str, Any], fl_ctx: Any) -> str:
        arguments = dict(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS))
        for name, (flag, value) in arguments.items():
            if name != JobProcessArgs.OPTIONS:  # which are several words
                arguments[name] = flag, shlex.quote(str(value))
        quoted = SimpleNamespace(get_prop={FLContextKey.JOB_PROCESS_ARGS: arguments}.get)
        command = original(self, job_meta, quoted).removeprefix(sys.executable).split(" -m ", 1)[1]
        return f"{shlex.quote(sys.executable)} {shlex.quote(__file__)} {command}"

    launcher.get_command = get_command


if __name__ == "__main__":
    start(sys.argv.pop(1))
