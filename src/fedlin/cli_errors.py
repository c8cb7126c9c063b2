"""How the commands refuse: what the package says, a line each to stderr, and exit status 2."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fedlin.errors import FedLinError


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turn an error of the package, or want of memory, into a message; any other is a bug and shows its traceback."""
    try:
        yield
    except (FedLinError, MemoryError) as error:
        text = f"not enough memory: {error}. Ask for less." if isinstance(error, MemoryError) else str(error)
        for line in text.split("\n"):
            typer.echo(f"fedlin: {line}", err=True)
        raise typer.Exit(2) from error
