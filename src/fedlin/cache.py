"""What was compiled, kept on disk for the next process: for the command line only, the library sets nothing."""

import os
from pathlib import Path

import jax

VARIABLE = "FEDLIN_CACHE"  # another folder, or empty to keep nothing


def keep_compiled() -> Path | None:
    """Let this process and those it starts share compiled programs; returns the folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedlin"
    folder = os.environ.get(VARIABLE, str(default))
    if not folder:
        return None
    settings = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": 0,
    }
    for name, value in settings.items():
        os.environ[name.upper()] = str(value)  # for the processes this one starts
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
    return Path(folder)
