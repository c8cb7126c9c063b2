"""The command `fedlin federation`, run in this process, and a folder for it."""

from pathlib import Path

from typer.testing import CliRunner

from fedlin.cli import app
from fedlin.deploy.project import create


def invoke(*words: object) -> tuple[int, str]:
    """Its exit status and what it prints."""
    done = CliRunner().invoke(app, ["federation", *map(str, words)])
    return done.exit_code, done.output


def two_sites(place: Path) -> Path:
    """The folder of a federation of two sites, of which nothing was started."""
    create(place / "federation", ["north", "south"], "localhost", 8002)
    return place / "federation"
