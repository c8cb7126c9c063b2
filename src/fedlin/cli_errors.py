"""How the commands refuse: what the package says, a line each to stderr, and exit code 2."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fedlin.errors import FedLinError


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turn an error of the package into a message; any other is a bug, and shows its traceback."""
    try:
        yield
    except FedLinError as error:
        for line in str(error).split("\n"):
            typer.echo(f"fedlin: {line}", err=True)
        raise typer.Exit(2) from error
