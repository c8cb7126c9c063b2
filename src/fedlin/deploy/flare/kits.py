"""FLARE's start-up kits: the federation's own authority, and certificates for the server, each site and the admin.

Connections are mutual TLS, also those within a machine, between FLARE's own process and that of a job. Server and
sites refuse jobs that bring code: a job may only name components of fedlin and FLARE, so the server can ask a site for
numbers and for nothing else. A site's logs stay with the site.
"""

import io
import json
import shutil
import socket
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from fedlin.deploy.flare.job import CLIENT, CONTROLLER, EXECUTOR, SERVER
from fedlin.errors import DeployError

Kind = Literal["server", "client"]
PROJECT = "fedlin"
ADMIN = "admin@fedlin.local"
FILTER = "fedlin.transports.flare_filter.SiteFilter"
_COMPONENTS = [SERVER, CLIENT, CONTROLLER, EXECUTOR]


def check_flare() -> None:
    """Say what to install where NVIDIA FLARE is missing."""
    if find_spec("nvflare") is None:
        raise DeployError("A federation needs NVIDIA FLARE: pip install 'fedlin[flare]'.")


def write_kits(folder: Path, sites: Sequence[str], host: str, address: str, port: int) -> None:
    """Write `server`, `admin`, `sites/NAME` and `authority` under `folder`.

    `host` is the name in the server's certificate, `address` where sites reach it.
    """
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.signature import SignatureBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    project = Project(PROJECT, "a federation of fedlin", props={"api_version": 3})
    project.set_server(host, PROJECT, {"fed_learn_port": port, "admin_port": port, "default_host": address})
    for site in sites:
        project.add_client(site, PROJECT, {})
    project.add_admin(ADMIN, PROJECT, {"role": "project_admin"})
    builders = [
        WorkspaceBuilder(template_file=["master_template.yml"]),
        StaticFileBuilder(config_folder="config", scheme="grpc"),
        CertBuilder(),
        SignatureBuilder(),
    ]
    scratch = folder / "authority"
    said = io.StringIO()
    with redirect_stdout(said):
        context = Provisioner(str(scratch), builders).provision(project)
    if context.get(CtxKey.BUILD_ERROR):
        raise DeployError(f"NVIDIA FLARE could not make the certificates: {said.getvalue().strip()}")
    made = Path(context[CtxKey.CURRENT_PROD_DIR])
    (folder / "sites").mkdir()
    for name, target in {host: "server", ADMIN: "admin", **{site: f"sites/{site}" for site in sites}}.items():
        shutil.move(made / name, folder / target)
    _keep_root_key(scratch)
    _refuse_code(folder / "server" / "local")
    for site in sites:
        _refuse_code(folder / "sites" / site / "local")
        _keep_to_itself(folder / "sites" / site / "local")


def _keep_root_key(scratch: Path) -> None:
    """What is left of the provisioning is the root key alone, readable by its owner."""
    state = scratch / PROJECT / "state" / "cert.json"
    state.rename(scratch / "cert.json")
    shutil.rmtree(scratch / PROJECT)
    (scratch / "cert.json").chmod(0o600)


def configure(kit: Path, kind: Kind) -> None:
    """Set up what FLARE reads when it starts, wherever the kit was copied and whichever version of fedlin made it."""
    kit.chmod(0o700)
    within = {"scheme": "tcp", "resources": {"host": "localhost", "connection_security": "mtls"}}
    _write(kit / "local" / "comm_config.json", {"internal": within})
    if kind == "server":
        _configure_server(kit)
    for path in [*(kit / "startup").iterdir(), *(kit / "local").iterdir()]:
        path.chmod(path.stat().st_mode & 0o700)


def _configure_server(kit: Path) -> None:
    """Keep FLARE's records in the server's own folder, and start a job once it is there."""
    resources = _default(kit / "local", "resources.json")
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.resolve() / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit.resolve() / "jobs")
        if component["id"] == "job_scheduler":
            component["args"] |= {"max_jobs": 1, "min_schedule_interval": 1.0, "max_schedule_interval": 5.0}
    resources["components"].append({"id": "site_filter", "path": FILTER, "args": {}})
    resources["class_allow_list"] = [*_COMPONENTS, FILTER]
    _write(kit / "local" / "resources.json", resources)


def check_port(kit: Path) -> None:
    """Refuse to start a server on this machine where something else listens already."""
    service = json.loads((kit / "startup" / "fed_server.json").read_text(encoding="utf-8"))["servers"][0]["service"]
    port = int(service["target"].rpartition(":")[2])
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise DeployError(f"port {port} is in use: end what uses it, or make a new folder with init --port.") from error


def _refuse_code(local: Path) -> None:
    permissions = _default(local, "authorization.json")
    everything = dict.fromkeys(permissions["permissions"]["lead"], "any")
    permissions["permissions"] = {"project_admin": {**everything, "byoc": "none", "shell_commands": "none"}}
    _write(local / "authorization.json", permissions)


def _keep_to_itself(local: Path) -> None:
    """A site runs nothing but the job's own components, and sends no logs."""
    resources = _default(local, "resources.json")
    resources["components"] = [part for part in resources["components"] if part["id"] != "site_log_streamer"]
    resources |= {"class_allow_list": _COMPONENTS, "allow_log_streaming": False}
    _write(local / "resources.json", resources)


def _default(local: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((local / f"{name}.default").read_text(encoding="utf-8"))
    return content


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
