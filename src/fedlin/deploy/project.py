"""A federation's folder: what goes to the server, to each site and to the admin.

federation/
  federation.toml  the settings of the run; they travel with its job
  server/          to the machine that leads
  sites/NAME/      to each site; client.py and site.toml are for its owner to write
  admin/           who sends the job
  job/             what is sent
  authority/       the key that signs certificates; keep it where nobody else reads
"""

import os
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import tomli_w

from fedlin.deploy.flare.authority import Authority
from fedlin.deploy.flare.job import CONFIG, write_job
from fedlin.deploy.flare.kits import ADMIN, Place, check_flare, write_kits
from fedlin.deploy.flare.programs import CLIENT
from fedlin.deploy.runs import run_folder
from fedlin.deploy.settings import NAME, parse_settings, read_tables
from fedlin.deploy.site_settings import SITE
from fedlin.deploy.site_template import START, client_text, settings_text, site_text
from fedlin.deploy.starting_model import read_start
from fedlin.engines.checkpoint import write_whole
from fedlin.errors import DeployError, FedLinError

AUTHORITY = "authority"
_ALLOWED = re.compile(r"[a-z][a-z0-9-]{0,31}")
_TAKEN = {"server", "admin"}
# FLARE reads these as values.
_MISREAD = {"y", "yes", "t", "true", "on", "n", "no", "f", "false", "off", "nan", "inf", "infinity"}


@dataclass(frozen=True)
class Project:
    """The parts of a federation's folder, and the run that its settings name."""

    folder: Path
    sites: tuple[str, ...]
    needed: int  # how many of them a round can do with
    run: str | None = None

    @property
    def server(self) -> Path:
        """The server's kit."""
        return self.folder / "server"

    @property
    def run_folder(self) -> Path:
        """Where the server keeps this run."""
        return run_folder(self.server, self.run)

    @property
    def admin(self) -> Path:
        """The kit of who sends the job."""
        return self.folder / "admin"

    @property
    def job(self) -> Path:
        """What is sent."""
        return self.folder / "job"

    def site(self, name: str) -> Path:
        """A site's kit."""
        return self.folder / "sites" / name

    @classmethod
    def read(cls, folder: Path, *, run: str | None = None, after: str | None = None) -> "Project":
        """The federation in a folder, with its job made ready; `run` and `after` go before those of its settings."""
        project, files = cls._parse(folder, {"name": run, "after": after})
        with private_files():
            write_job(project.job, len(project.sites), files)
        return project

    @classmethod
    def look(cls, folder: Path) -> "Project":
        """The federation in a folder; nothing is written, since a run may go on whose job has to be sent again."""
        return cls._parse(folder, {})[0]

    @classmethod
    def _parse(cls, folder: Path, options: Mapping[str, str | None]) -> tuple["Project", dict[str, bytes]]:
        """The federation, and the files that go along with its job."""
        if not (folder / "admin").is_dir():
            raise DeployError(f"{folder} is no federation: make one with fedlin federation init.")
        tables = read_tables(folder / NAME, "make one with fedlin federation init")
        tables["run"] = {**tables.get("run", {}), **{key: value for key, value in options.items() if value is not None}}
        try:
            settings = parse_settings(tables)
            check_names(settings.sites, Place.read(folder / "admin").host)
        except (FedLinError, TypeError) as error:
            raise DeployError(f"{folder / NAME}: {error}") from error
        project = cls(folder, settings.sites, settings.policy.needed(len(settings.sites)), settings.name)
        read_start(folder, settings)
        files = {NAME: tomli_w.dumps(tables).encode()}
        if settings.start is not None:
            files[settings.start] = (folder / settings.start).read_bytes()
        return project, files

    def share(self) -> None:
        """Give the kits here that have settings the job's, once no other run goes on, since the server hears the sites
        that its settings name and no others.
        """
        kits = [part for part in (self.server, *map(self.site, self.sites)) if (part / NAME).is_file()]
        try:
            text = (self.job / CONFIG / NAME).read_bytes() if kits else b""
            for part in kits:
                if (part / NAME).read_bytes() != text:
                    write_whole(part / NAME, text, mode=0o600)
        except OSError as error:
            raise DeployError(f"the settings cannot be copied: {error}.") from error


def check_names(names: Sequence[str], host: str) -> None:
    """Refuse names that FLARE would misread, or that would be taken for the server."""
    for name in names:
        # Certificates tell participants apart by their names alone.
        if not _ALLOWED.fullmatch(name) or name in _TAKEN | _MISREAD | {host}:
            raise DeployError(
                f"site {name!r} is not allowed: use at most 32 small letters, digits and hyphens, a "
                "letter first, and no word that stands for yes, no, the server or a number."
            )
    if not names or len(set(names)) != len(names):
        raise DeployError(f"sites = {list(names)} is not allowed: give each site a name of its own.")


def create(
    folder: Path, sites: Sequence[str], host: str, port: int, *, torch: bool = False, keys: bool = True
) -> Project:
    """Write a new federation that runs as it is, with `torch` in PyTorch; sites reach its server at `host`.

    With `keys` false every site makes its own key, and has to send a request before it can take part.
    """
    check_names(sites, host)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeployError(f"{folder} is a file, or a folder that is not empty: name a new folder.")
    if torch and find_spec("torch") is None:
        raise DeployError("a model in PyTorch needs PyTorch: pip install 'fedlin[torch]'.")
    check_flare()
    place = Place(host, "127.0.0.1" if host == "localhost" else host, port)
    with private_files():
        (folder / "sites").mkdir(parents=True)
        authority = Authority.create(folder / AUTHORITY)
        parts = {host: "server", ADMIN: "admin", **{site: f"sites/{site}" for site in sites}}
        write_kits(folder, authority, place, parts, keys=keys)
        for script in (folder / "admin" / "startup").glob("*.sh"):  # which FLARE lets everybody run
            script.chmod(0o700)
        (folder / NAME).write_text(settings_text(sites, torch), encoding="utf-8")
        for number, name in enumerate(sites):
            write_site_files(folder / "sites" / name, name, number, torch=torch)
        if torch:  # every site's model starts the same
            problem = runpy.run_path(str(folder / "sites" / sites[0] / CLIENT))["problem"]()
            np.save(folder / START, problem.start)
        return Project.read(folder)


def write_site_files(kit: Path, name: str, number: int, *, torch: bool = False) -> None:
    """What is for a site's owner to write, as it comes: drawn data, and the limits that hold without any."""
    (kit / CLIENT).write_text(client_text(name, number, torch), encoding="utf-8")
    (kit / SITE).write_text(site_text(name), encoding="utf-8")


@contextmanager
def private_files() -> Iterator[None]:
    """What is written meanwhile can be read by its owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
