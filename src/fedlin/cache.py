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


def keep_compiled() -> Path | None:
    """Let this process and those it starts share compiled programs; returns the folder.

    For the command line only: the library sets nothing.
    """
    folder = cache_folder()
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
