"""How the commands refuse: what the package says, a line each to stderr, and exit status 2."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fedlin.errors import FedLinError

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM}


@contextmanager
def cli_errors() -> Iterator[None]:
    """Turn an error of the package, or want of memory or disk, into a message; any other is a bug and shows its
    traceback.
    """
    try:
        yield
    except (FedLinError, MemoryError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _DISK:
            raise
        for line in _told(error).split("\n"):
            typer.echo(f"fedlin: {line}", err=True)
        raise typer.Exit(2) from error


def _told(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}. Ask for less."
    if isinstance(error, OSError):
        return f"the system refuses to write or to read: {error}. Mend that, and give the same command again."
    return str(error)
