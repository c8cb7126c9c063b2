"""The folder for what is worth keeping between processes: downloaded data, and the commands' compiled programs."""

import os
from pathlib import Path

import jax

VARIABLE = "FEDLIN_CACHE"  # another folder, or empty to keep nothing


def cache_folder() -> Path | None:
    """Where to keep things: `fedlin` in the user's cache folder, or as FEDLIN_CACHE says; None where it is empty."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "fedlin"
    named = os.environ.get(VARIABLE, str(default))
    return Path(named).expanduser() if named else None


def keep_compiled(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs on disk, for this process, those it starts and all later ones that ask for it.

    The command `fedlin` does so by itself; a library that is imported keeps nothing unless this is called.

    Args:
        folder: Where to keep them; where FEDLIN_CACHE says, or in the user's cache folder, unless given.

    Returns:
        The folder, or None where FEDLIN_CACHE is empty and none is given.

    >>> keep_compiled("programs")  # doctest: +SKIP
    PosixPath('programs')
    """
    folder = cache_folder() if folder is None else Path(folder).expanduser()
    if folder is None:
        return None
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    for name, value in settings.items():
        os.environ[name.upper()] = str(value)  # for the processes this one starts
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    return folder
