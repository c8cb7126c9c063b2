"""FLARE's start-up kits for the server, each site and the admin, with certificates of the federation's own authority.

Connections are mutual TLS, also those within a machine, between FLARE's own process and that of a job. Server and
sites refuse jobs that bring code: a job may only name components of fedlin and FLARE, so the server can ask a site for
numbers and for nothing else. A site's logs stay with the site.
"""

import io
import json
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from fedlin.deploy.flare.authority import ORGANISATION, ROOT, Authority, make_key
from fedlin.deploy.flare.job import SERVER, SITE
from fedlin.engines.checkpoint import write_whole
from fedlin.errors import DeployError
from fedlin.transports.message_limit import LARGEST_FRAME, READ_TIMEOUT

Kind = Literal["server", "client"]
ADMIN = "admin@fedlin.local"
_GATE = {"gate": "fedlin.transports.flare_gate.NeedsGate"}
OWN = {**_GATE, "rejoin": "fedlin.transports.flare_rejoin.Rejoin"}
_COMPONENTS = [SERVER, SITE]
# What the holder of the admin's certificate may do: no code, no shell, no ending of processes; at a site, jobs alone.
_NEVER = dict.fromkeys(("byoc", "shell_commands", "operate", "clone_job", "server-predeployed-flwr"), "none")
_SITE_RIGHTS = {**_NEVER, "submit_job": "any", "manage_job": "any", "download_job": "none", "view": "none"}
_SERVER_RIGHTS = {**_SITE_RIGHTS, "download_job": "any", "view": "any", "app_command": "any"}
_RIGHTS = {"server": {"project_admin": _SERVER_RIGHTS}, "client": {"project_admin": _SITE_RIGHTS}}
_CONNECTIONS = 1000  # that FLARE's server has a thread for, two of each site
_HANDSHAKE = 10_000  # milliseconds that somebody who connects to the server's port has to say who it is
_SITES = 10_000  # that may take part, of which the federation's settings decide
_LOG_SIZE, _LOG_FILES = 5 << 20, 3  # bytes of each of FLARE's logs, and how many old ones are kept


@dataclass(frozen=True)
class Place:
    """Where a federation's server is: `host` is the name in its certificate, `address` where sites reach it."""

    host: str
    address: str
    port: int

    @classmethod
    def read(cls, kit: Path) -> "Place":
        """What the admin's or a site's kit says."""
        admin, client = (kit / "startup" / name for name in ("fed_admin.json", "fed_client.json"))
        try:
            if admin.is_file():
                made = json.loads(admin.read_text(encoding="utf-8"))["admin"]
                return cls(made["server_identity"], made["host"], int(made["port"]))
            made = json.loads(client.read_text(encoding="utf-8"))["servers"][0]
            address, _, port = made["service"]["target"].rpartition(":")
            return cls(made["identity"], address, int(port))
        except (OSError, ValueError, KeyError) as error:
            raise DeployError(f"{kit / 'startup'} does not say where the server is: {error!r}.") from error


def check_flare() -> None:
    """Say what to install where NVIDIA FLARE is missing."""
    if find_spec("nvflare") is None:
        raise DeployError("A federation needs NVIDIA FLARE: pip install 'fedlin[flare]'.")


def write_kits(folder: Path, authority: Authority, place: Place, parts: dict[str, str], *, keys: bool = True) -> None:
    """Write kits into `folder`: `parts` has where each goes by the name in its certificate.

    With `keys` false the sites' kits have neither key nor certificate: each site makes its own key.
    """
    sites = [name for name in parts if name not in (place.host, ADMIN)]
    with TemporaryDirectory() as scratch:
        made = _provision(Path(scratch), sites, place)
        for name, target in parts.items():
            shutil.move(made / name, folder / target)
    for name, target in parts.items():
        kit = folder / target
        role = "server" if name == place.host else "client"
        write_whole(kit / "startup" / ROOT, authority.root, mode=0o600)
        if name != ADMIN:
            configure(kit, "client" if name in sites else "server")
        if name not in sites or keys:
            key, pem = make_key()
            write_whole(kit / "startup" / f"{role}.key", pem, mode=0o600)
            certificate = authority.issue(name, key.public_key(), **details(name, place))
            write_whole(kit / "startup" / f"{role}.crt", certificate, mode=0o600)
            authority.keep(name, certificate)


def details(name: str, place: Place) -> dict[str, Any]:
    """What a certificate says besides the name: an admin's role, and where the server is reached."""
    if name == ADMIN:
        return {"role": "project_admin"}
    return {"address": place.address} if name == place.host else {}


def _provision(scratch: Path, sites: Sequence[str], place: Place) -> Path:
    """FLARE's own files for every participant, each in a folder of its name, without keys and certificates."""
    from nvflare.lighter.constants import CtxKey
    from nvflare.lighter.entity import Project
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    project = Project(ORGANISATION, "a federation of fedlin", props={"api_version": 3})
    ports = {"fed_learn_port": place.port, "admin_port": place.port, "default_host": place.address}
    project.set_server(place.host, ORGANISATION, ports)
    for site in sites:
        project.add_client(site, ORGANISATION, {})
    project.add_admin(ADMIN, ORGANISATION, {"role": "project_admin"})
    builders = [
        WorkspaceBuilder(template_file=["master_template.yml"]),
        StaticFileBuilder(config_folder="config", scheme="grpc"),
    ]
    said = io.StringIO()
    with redirect_stdout(said):
        context = Provisioner(str(scratch), builders).provision(project)
    if context.get(CtxKey.BUILD_ERROR):
        raise DeployError(f"NVIDIA FLARE could not make the kits: {said.getvalue().strip()}")
    return Path(context[CtxKey.CURRENT_PROD_DIR])


def configure(kit: Path, kind: Kind) -> None:
    """Set up what FLARE reads when it starts, wherever the kit was copied and whichever version of fedlin made it."""
    kit.chmod(0o700)
    within = {"scheme": "tcp", "resources": {"host": "localhost", "connection_security": "mtls"}}
    options = [[f"grpc.max_{way}_message_length", LARGEST_FRAME] for way in ("send", "receive")]
    options.append(["grpc.server_handshake_timeout_ms", _HANDSHAKE])
    without = {"options": options, "max_workers": _CONNECTIONS}
    connections = {"internal": within, "grpc": without, "streaming_read_timeout": READ_TIMEOUT}
    _write(kit / "local" / "comm_config.json", connections)
    _configure_logs(kit / "local")
    _write(kit / "local" / "authorization.json", {"format_version": "1.0", "permissions": _RIGHTS[kind]})
    if kind == "server":
        _configure_server(kit)
    else:
        _keep_to_itself(kit / "local")
    for path in [*(kit / "startup").iterdir(), *(kit / "local").iterdir()]:
        path.chmod(path.stat().st_mode & 0o700)


def _configure_logs(local: Path) -> None:
    """What FLARE prints goes to process.log, which is for what went wrong; its own logs have the rest."""
    settings = _default(local, "log_config.json")
    settings["handlers"]["consoleHandler"]["level"] = "WARNING"
    for handler in settings["handlers"].values():
        if "maxBytes" in handler:
            handler |= {"maxBytes": _LOG_SIZE, "backupCount": _LOG_FILES}
    _write(local / "log_config.json", settings)


def _configure_server(kit: Path) -> None:
    """Keep FLARE's records in the server's own folder, start a job once it is there, and let any number of sites in."""
    startup = json.loads((kit / "startup" / "fed_server.json").read_text(encoding="utf-8"))
    startup["servers"][0]["max_num_clients"] = _SITES
    _write(kit / "startup" / "fed_server.json", startup)
    resources = _default(kit / "local", "resources.json")
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit.resolve() / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit.resolve() / "jobs")
        if component["id"] == "job_scheduler":
            component["args"] |= {"max_jobs": 1, "min_schedule_interval": 1.0, "max_schedule_interval": 5.0}
    _write_resources(kit / "local", resources, OWN)


def check_port(kit: Path) -> None:
    """Refuse to start a server on this machine where something else listens already."""
    service = json.loads((kit / "startup" / "fed_server.json").read_text(encoding="utf-8"))["servers"][0]["service"]
    port = int(service["target"].rpartition(":")[2])
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise DeployError(f"port {port} is in use: end what uses it, or make a new folder with init --port.") from error


def _keep_to_itself(local: Path) -> None:
    """A site runs nothing but the job's own components, and sends no logs."""
    resources = _default(local, "resources.json")
    resources["components"] = [part for part in resources["components"] if part["id"] != "site_log_streamer"]
    _write_resources(local, resources | {"allow_log_streaming": False}, _GATE)


def _write_resources(local: Path, resources: dict[str, Any], own: Mapping[str, str]) -> None:
    """What FLARE loads of its own, and of ours; of a job it loads a job's components alone."""
    resources["components"] += [{"id": name, "path": path, "args": {}} for name, path in own.items()]
    resources["class_allow_list"] = [*_COMPONENTS, *own.values()]
    _write(local / "resources.json", resources)


def _default(local: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((local / f"{name}.default").read_text(encoding="utf-8"))
    return content


def _write(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")
