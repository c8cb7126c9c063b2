"""What tests of federations over NVIDIA FLARE on this machine share."""

import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedlin.deploy.project import Project, create
from fedlin.deploy.settings import NAME


def free_port() -> int:
    """A port that nothing listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def importable() -> Iterator[pytest.MonkeyPatch]:
    """FLARE's processes, which inherit the environment, import what the tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield patch


def template(folder: Path, sites: Sequence[str], changes: Mapping[str, str]) -> Project:
    """The federation that `init` writes, with these texts of its settings replaced."""
    create(folder, sites, "localhost", free_port())
    text = (folder / NAME).read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / NAME).write_text(text)
    return Project.read(folder)
