"""When each site's process registered with the server for the last time: it was started then, or the server was."""

import json
import threading
import time
from pathlib import Path

from fedlin.engines.checkpoint import write_whole

REGISTERED = "registered.json"  # in the server's folder
_turn = threading.Lock()


def record_registration(kit: Path, name: str) -> None:
    """A site's process has just registered with the server whose folder this is."""
    with _turn:
        content = {**read_registrations(kit), name: round(time.time(), 3)}
        write_whole(kit / REGISTERED, json.dumps(content).encode(), mode=0o600, sync=False)


def read_registrations(kit: Path) -> dict[str, float]:
    """The seconds since 1970 at which each site registered last."""
    try:
        content = json.loads((kit / REGISTERED).read_text(encoding="utf-8"))
        return {str(name): float(when) for name, when in content.items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
