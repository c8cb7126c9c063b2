"""One command at a time in a folder: a second one would end what the first has started."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlin.engines.checkpoint import private
from fedlin.errors import DeployError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder until the block ends, or the process does; refused where another process holds it."""
    import fcntl

    try:
        file = open(folder / LOCK, "a+", encoding="ascii", opener=private)  # noqa: SIM115 - held as long as the lock
    except FileNotFoundError as error:
        raise DeployError(
            f"{folder} is not there: it is a folder that fedlin federation init or add writes."
        ) from error
    except OSError as error:
        raise DeployError(f"{folder} cannot be used: {error}.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise DeployError(f"{folder} is in use by process {holder}: end that one first.") from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
