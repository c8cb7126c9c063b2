"""A federation's folder: what goes to the server, to each site and to the admin.

federation/
  server/          to the machine that leads
  sites/NAME/      to each site; client.py is for its owner to write
  admin/           who sends the job
  job/             what is sent
  authority/       the key that signs certificates; keep it where nobody else reads
"""

import os
import re
import runpy
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedlin.deploy.flare.job import write_job
from fedlin.deploy.flare.kits import check_flare, write_kits
from fedlin.deploy.flare.programs import CLIENT
from fedlin.deploy.settings import NAME, read_settings
from fedlin.deploy.site_settings import SITE
from fedlin.deploy.site_template import START, client_text, settings_text, site_text
from fedlin.deploy.starting_model import read_start
from fedlin.errors import DeployError

_ALLOWED = re.compile(r"[a-z][a-z0-9-]{0,31}")
_TAKEN = {"server", "admin"}
# FLARE reads these as values.
_MISREAD = {"y", "yes", "t", "true", "on", "n", "no", "f", "false", "off", "nan", "inf", "infinity"}


@dataclass(frozen=True)
class Project:
    """The parts of a federation's folder."""

    folder: Path
    sites: tuple[str, ...]
    needed: int  # how many of them a round can do with

    @property
    def server(self) -> Path:
        """The server's kit."""
        return self.folder / "server"

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
    def read(cls, folder: Path) -> "Project":
        """The federation in a folder, with its settings copied to every part that is here, its start to the server."""
        if not (folder / "server").is_dir():
            raise DeployError(f"{folder} is no federation: make one with fedlin federation init.")
        settings = read_settings(folder)
        project = cls(folder, settings.sites, settings.policy.needed(len(settings.sites)))
        missing = [name for name in settings.sites if not project.site(name).is_dir()]
        if missing:
            raise DeployError(f"{folder / NAME} names {missing[0]}, which has no folder in {folder / 'sites'}.")
        text = (folder / NAME).read_text(encoding="utf-8")
        for part in (project.server, *map(project.site, project.sites)):
            (part / NAME).write_text(text, encoding="utf-8")
        if settings.start is not None and (folder / settings.start).is_file():
            shutil.copyfile(folder / settings.start, project.server / settings.start)
        read_start(project.server, settings)
        write_job(project.job, len(project.sites), project.needed)
        return project


def create(folder: Path, sites: Sequence[str], host: str, port: int, *, torch: bool = False) -> Project:
    """Write a new federation that runs as it is, with `torch` in PyTorch; sites reach its server at `host`."""
    for name in sites:
        # A site in the server's name could be taken for it: certificates tell them apart by their names alone.
        if not _ALLOWED.fullmatch(name) or name in _TAKEN | _MISREAD | {host}:
            raise DeployError(
                f"site {name!r} is not allowed: use small letters, digits and hyphens, a letter "
                "first, and no word that stands for yes, no, the server or a number."
            )
    if not sites or len(set(sites)) != len(sites):
        raise DeployError(f"sites = {list(sites)} is not allowed: give each site a name of its own.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeployError(f"{folder} is a file, or a folder that is not empty: name a new folder.")
    if torch and find_spec("torch") is None:
        raise DeployError("a model in PyTorch needs PyTorch: pip install 'fedlin[torch]'.")
    check_flare()
    with _private_files():
        folder.mkdir(parents=True, exist_ok=True)
        write_kits(folder, sites, host, "127.0.0.1" if host == "localhost" else host, port)
        (folder / NAME).write_text(settings_text(sites, torch), encoding="utf-8")
        for number, name in enumerate(sites):
            kit = folder / "sites" / name
            (kit / CLIENT).write_text(client_text(name, number, torch), encoding="utf-8")
            (kit / SITE).write_text(site_text(name), encoding="utf-8")
        if torch:  # every site's model starts the same
            problem = runpy.run_path(str(folder / "sites" / sites[0] / CLIENT))["problem"]()
            np.save(folder / START, problem.start)
        return Project.read(folder)


@contextmanager
def _private_files() -> Iterator[None]:
    """What is written meanwhile can be read by its owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)
