"""Where the server keeps each run, and how a run ended.

server/
  federation.toml      the settings of the latest run, as they came with its job
  runs/NAME/           a run that has a name: its state, its model, its settings, how it ended
  state/, model.npy    the same of a run without a name
"""

import io
import json
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fedlin.core import Array
from fedlin.engines.checkpoint import write_whole
from fedlin.errors import DeployError

STATE = "state"
MODEL = "model.npy"
BEST = "best.npy"  # the model that the sites' evaluations found best
OUTCOME = "outcome.json"
RUNS = "runs"
Ending = dict[str, Any]  # how a run ended: its status, and what goes with that
_PRESENT = "present-run"  # in the server's folder: the name of the latest run, empty where it has none


def run_folder(kit: Path, name: str | None) -> Path:
    """The folder of a run at the server."""
    return kit if name is None else kit / RUNS / name


def run_title(name: str | None) -> str:
    """How a sentence calls a run."""
    return f"the run {name!r}" if name else "the run without a name"


def begin_run(kit: Path, name: str | None) -> Path:
    """The folder of the run that begins or goes on now, which `present_run` then returns."""
    folder = run_folder(kit, name)
    folder.mkdir(0o700, parents=True, exist_ok=True)
    write_whole(kit / _PRESENT, (name or "").encode(), mode=0o600)
    return folder


def present_run(kit: Path) -> Path:
    """The folder of the latest run."""
    try:
        name = (kit / _PRESENT).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        name = ""
    return run_folder(kit, name or None)


def named_run(kit: Path, name: str | None) -> Path:
    """The folder of the run of this name, or of the latest; refused where there is none."""
    folder = present_run(kit) if name is None else run_folder(kit, name)
    if name is not None and not folder.is_dir():
        known = ", ".join(sorted(path.name for path in (kit / RUNS).glob("*"))) or "none"
        raise DeployError(f"no run is called {name!r} at {kit}: there are {known}.")
    return folder


def former_model(kit: Path, name: str) -> Array:
    """The model of an earlier run."""
    path = run_folder(kit, name) / MODEL
    try:
        return read_model(path)
    except (OSError, ValueError) as error:
        raise DeployError(f"run.after = {name!r}: {path} is no model of a run that has ended: {error}.") from error


def read_model(path: Path) -> Array:
    """The array in a file of NumPy's; ValueError or OSError where there is none."""
    try:
        model = np.load(path, allow_pickle=False)
    except (EOFError, SyntaxError, TokenError, TypeError, MemoryError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error  # NumPy parses a header as Python would
    except BadZipFile as error:
        raise ValueError(str(error)) from error
    if not isinstance(model, np.ndarray):
        model.close()
        raise ValueError("it holds several arrays")
    return model


def write_model(path: Path, x: Array) -> None:
    """Save a flat model, whole or not at all."""
    content = io.BytesIO()
    np.save(content, x)
    write_whole(path, content.getvalue(), mode=0o600)


def conclude(folder: Path, content: Ending) -> None:
    """Tell whoever waits for the run how it ended."""
    write_whole(folder / OUTCOME, json.dumps(content).encode(), mode=0o600)


def outcome(folder: Path) -> Ending | None:
    """How the run ended, if it did."""
    try:
        content = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) and isinstance(content.get("status"), str) else None


def exit_status(end: Ending) -> int:
    """0 where the run was done with all sites, 3 where it was done without some site, 1 where it failed.

    >>> [exit_status(end) for end in ({"status": "done"}, {"status": "done", "without": {"north": "left"}})]
    [0, 3]
    """
    if end["status"] not in ("done", "stopped"):
        return 1
    return 3 if end.get("without") else 0


def end_line(end: Ending, model: str) -> str:
    """How a run ended, in a sentence; `model` is where its model is.

    >>> end_line({"status": "done", "without": {"north": "quarantined"}}, "model.npy")
    'done without north (quarantined): the model is in model.npy'
    """
    missing = ", ".join(f"{name} ({why})" for name, why in (end.get("without") or {}).items())
    status = f"{end['status']} without {missing}" if missing else end["status"]
    best = f"; the best, of round {end['best']['round']}, in {BEST} beside it" if "best" in end else ""
    return f"{status}: {end.get('error') or f'the model is in {model}{best}'}"
