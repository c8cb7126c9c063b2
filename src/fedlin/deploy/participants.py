"""Who belongs to a federation: sites are added and removed, keys are requested, signed and renewed."""

import hashlib
from contextlib import ExitStack
from pathlib import Path

import tomlkit

from fedlin.audit import AuditTrail
from fedlin.deploy.flare.authority import ISSUED, Authority, write_request
from fedlin.deploy.flare.certificates import check_certificate
from fedlin.deploy.flare.kits import ADMIN, Place, details, write_kits
from fedlin.deploy.folder_lock import locked
from fedlin.deploy.kit_folders import site_name
from fedlin.deploy.project import AUTHORITY, Project, check_names, private_files, write_site_files
from fedlin.deploy.settings import ENCODING, NAME, parse_settings
from fedlin.engines.checkpoint import write_whole
from fedlin.errors import DeployError, FedLinError


def add_site(folder: Path, name: str, *, keys: bool = True) -> Project:
    """Make a kit for a new site, and give it a line in the settings; the next run has it.

    Its local steps and step size are those of the first site until they are changed.
    """
    project = Project.look(folder)
    place = Place.read(project.admin)
    check_names([*project.sites, name], place.host)
    if project.site(name).exists():
        raise DeployError(f"{project.site(name)} is there already, of a site that was removed: move it away.")
    if (folder / AUTHORITY / ISSUED / f"{name}.crt").exists():
        raise DeployError(
            f"{name!r} was a site before, and whoever has its former key would take part again: give the new one "
            f"another name, or put the line of {name} back into [sites] if it is the same one."
        )
    settings = tomlkit.parse((folder / NAME).read_text(encoding=ENCODING))
    sites = settings["sites"]
    first = sites[project.sites[0]]
    line = tomlkit.inline_table()
    line.update({"tau": first["tau"], "eta": first["eta"]})
    sites.append(name, line)
    with private_files():
        write_kits(folder, Authority(folder / AUTHORITY), place, {name: f"sites/{name}"}, keys=keys)
        write_site_files(project.site(name), name, len(project.sites))
        write_whole(folder / NAME, tomlkit.dumps(settings).encode(), mode=0o600)
        AuditTrail(folder).record("site added", site=name)
        return _made_ready(folder)


def remove_site(folder: Path, name: str) -> Project:
    """Take a site out of the settings: from the next run on the server refuses it, certificate or not."""
    project = Project.look(folder)
    if name not in project.sites:
        raise DeployError(f"{name!r} is not a site of {folder}: its sites are {', '.join(project.sites)}.")
    if len(project.sites) == 1:
        raise DeployError(f"{name} is the only site of {folder}: add another one first.")
    settings = tomlkit.parse((folder / NAME).read_text(encoding=ENCODING))
    settings["sites"].remove(name)
    try:
        parse_settings(settings.unwrap())
    except (FedLinError, TypeError) as error:
        raise DeployError(f"{name} was not removed, since {folder / NAME} would not be right then: {error}") from error
    write_whole(folder / NAME, tomlkit.dumps(settings).encode(), mode=0o600)
    AuditTrail(folder).record("site removed", site=name)
    return _made_ready(folder)


def _made_ready(folder: Path) -> Project:
    """The federation with its job made ready; as it is where a run goes on, whose job may have to be sent again."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder))
        except DeployError:
            return Project.look(folder)
        return Project.read(folder)


def request_certificate(kit: Path) -> Path:
    """At a site: a request for a certificate, for the key that is in its kit and stays there, made if there is none."""
    name = site_name(kit)
    path = kit / f"{name}.csr"
    with private_files():
        write_whole(path, write_request(kit / "startup", name), mode=0o600)
    return path


def sign_request(folder: Path, request: Path) -> Path:
    """At the authority: the certificate for a site's request."""
    project = Project.look(folder)
    try:
        content = request.read_bytes()
    except OSError as error:
        raise DeployError(f"{request} cannot be read: {error}.") from error
    name, certificate = Authority(folder / AUTHORITY).sign(content, set(project.sites))
    path = request.with_name(f"{name}.crt")
    write_whole(path, certificate, mode=0o600)
    AuditTrail(folder).record("certificate signed", site=name, sha256=hashlib.sha256(certificate).hexdigest())
    return path


def install_certificate(kit: Path, certificate: Path) -> None:
    """At a site: take the certificate that the authority sent, if it is for this site's key."""
    own = kit / "startup" / "client.crt"
    before = own.read_bytes() if own.exists() else None
    try:
        write_whole(own, certificate.read_bytes(), mode=0o600)
        check_certificate(kit)
    except (OSError, DeployError) as error:
        if before is None:
            own.unlink(missing_ok=True)
        else:
            write_whole(own, before, mode=0o600)
        raise DeployError(f"{certificate} was not taken: {error}") from error


def renew(folder: Path) -> list[Path]:
    """New certificates for the same keys, into every kit that is here; the sites' are also in authority/issued."""
    project = Project.look(folder)
    authority, place = Authority(folder / AUTHORITY), Place.read(project.admin)
    kits = {place.host: project.server, ADMIN: project.admin, **{name: project.site(name) for name in project.sites}}
    written = []
    for name, kit in kits.items():
        certificate = authority.renew(name, **details(name, place))
        role = "server" if name == place.host else "client"
        written.append(folder / AUTHORITY / ISSUED / f"{name}.crt")
        if (kit / "startup" / f"{role}.key").exists():
            write_whole(kit / "startup" / f"{role}.crt", certificate, mode=0o600)
    AuditTrail(folder).record("certificates renewed", names=sorted(kits))
    return written
