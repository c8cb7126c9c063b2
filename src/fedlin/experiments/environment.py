"""What a run was made with: versions, device, platform, commit and time."""

import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("fedlin", "jax", "jaxlib", "numpy", "scipy")


def environment(source: Path) -> dict[str, Any]:
    """The facts of this process; the commit is that of the repository the experiment's file lies in, if any."""
    import jax

    device = jax.devices()[0]
    commit = _git(source, "rev-parse", "HEAD")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        "device": f"{device.platform}: {device.device_kind}",
        "platform": platform.platform(),
        "commit": commit,
        "uncommitted changes": None if commit is None else _git(source, "status", "--porcelain") is not None,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(source: Path, *arguments: str) -> str | None:
    """What git answers in the folder of `source`; None outside a repository or without git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(source.absolute().parent), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
