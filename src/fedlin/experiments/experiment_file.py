"""An experiment's file read and checked; what is wrong in it is named in the file's own terms."""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fedlin.checks import file_name
from fedlin.errors import ArgumentError, DataError, FedLinError
from fedlin.experiments import config
from fedlin.experiments.check_config import checked
from fedlin.experiments.config import TomlTable
from fedlin.experiments.own_code import place_of
from fedlin.experiments.planned_runs import PlannedRun, planned_runs

DATA = "FEDLIN_DATA"


@dataclass(frozen=True, eq=False)
class ExperimentFile:
    """The file's content and the runs it asks for."""

    source: Path
    experiment: config.ExperimentConfig
    runs: list[PlannedRun]

    @property
    def title(self) -> str:
        """What to call it."""
        return self.experiment.title or self.source.stem


def load(path: str | Path, *, rounds: int | None = None, stored: bool = False) -> ExperimentFile:
    """Read and check a file; nothing is built yet. `rounds` stands in for the file's own.

    One that was `stored` with a run names all its defaults; where it says nothing of preparing, there was none then.
    """
    source = Path(path)
    file_name("file", path, ArgumentError)
    try:
        raw = tomllib.loads(source.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{source} is not TOML: {error}.") from error
    if rounds is not None:
        raw["rounds"] = rounds
    if stored and isinstance(raw.get("problem"), dict) and "data" in raw["problem"]:
        raw["problem"].setdefault("prepare", "none")
    try:
        experiment = checked(config.ExperimentConfig, _with_absolute_paths(raw, source.parent))
        return ExperimentFile(source, experiment, planned_runs(experiment))
    except FedLinError as error:
        raise type(error)("\n".join(f"{source}: {line}" for line in str(error).split("\n"))) from error


def _with_absolute_paths(raw: TomlTable, folder: Path, within: str = "") -> TomlTable:
    """The table with every `file` and `python` made absolute, so that it means the same from any folder."""
    table: dict[str, object] = {}
    for key, value in raw.items():
        if isinstance(value, dict):
            table[key] = _with_absolute_paths(value, folder, key)
        elif isinstance(value, list) and key == "algorithm":
            table[key] = [_with_absolute_paths(entry, folder) if isinstance(entry, dict) else entry for entry in value]
        elif isinstance(value, str) and (key == "python" or within == "metrics"):
            path, name = place_of(value)
            table[key] = f"{located(path, folder)}:{name}"
        elif key == "file" and isinstance(value, str):
            table[key] = located(value, folder)
        elif key == "file" and isinstance(value, list):
            table[key] = [located(name, folder) if isinstance(name, str) else name for name in value]
        else:
            table[key] = value
    return table


def located(name: str, home: Path) -> str:
    """The absolute path of a file or folder: beside the experiment, else in the folder that FEDLIN_DATA names."""
    file_name("file", name, DataError)
    if Path(name).is_absolute():  # whoever reads it says whether it is there; a finished run is compared without it
        return name
    folders = [home, *([Path(os.environ[DATA])] if os.environ.get(DATA) else [])]
    for folder in folders:
        if (folder / name).exists():
            return str((folder / name).resolve())
    places = " nor in ".join(str(folder.resolve()) for folder in folders)
    raise DataError(f"file = {name!r} is not in {places}: give its path, or set {DATA} to the folder that holds it.")
