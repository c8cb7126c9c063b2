"""A virtual environment for every peer, from pinned versions; who cannot be installed is told, not left out."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
HOME = HERE.parent.parent / ".venv-peers"
NAMES = ("fedjax", "pfl", "fedlab", "flower")


def python(name: str) -> Path:
    """A peer's interpreter."""
    return HOME / name / "bin" / "python"


def install(name: str) -> str:
    """Empty when the peer is there, else pip's last word; what is installed is not installed again."""
    pins, stamp = HERE / f"{name}.txt", HOME / name / ".installed"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return ""
    pip = [str(python(name)), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-r", str(pins)]
    for command in ([sys.executable, "-m", "venv", "--clear", str(HOME / name)], pip):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
    stamp.write_text(pins.read_text())
    return ""


def install_all() -> dict[str, str]:
    """All at once, since they mostly wait for the network; by name, what `install` said."""
    with ThreadPoolExecutor() as pool:
        return dict(zip(NAMES, pool.map(install, NAMES), strict=True))
