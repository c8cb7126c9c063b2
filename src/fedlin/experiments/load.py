"""An experiment read from a TOML file: every command that takes one starts here."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlin.errors import ArgumentError, FedLinError
from fedlin.experiments import config
from fedlin.experiments.explain import checked
from fedlin.experiments.files import located
from fedlin.experiments.members import PlannedRun, members


@dataclass(frozen=True, eq=False)
class Loaded:
    """The file's content and the runs it asks for."""

    source: Path
    experiment: config.ExperimentConfig
    members: list[PlannedRun]

    @property
    def title(self) -> str:
        """What to call it."""
        return self.experiment.title or self.source.stem


def load(path: str | Path, *, rounds: int | None = None) -> Loaded:
    """Read and check a file; nothing is built yet. `rounds` stands in for the file's own."""
    source = Path(path)
    try:
        raw = tomllib.loads(source.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(f"{source} is not TOML: {error}.") from error
    if rounds is not None:
        raw["rounds"] = rounds
    try:
        experiment = checked(config.ExperimentConfig, _with_files(raw, source.parent))
        return Loaded(source, experiment, members(experiment))
    except FedLinError as error:
        raise type(error)("\n".join(f"{source}: {line}" for line in str(error).split("\n"))) from error


def _with_files(raw: Mapping[str, Any], home: Path) -> dict[str, Any]:
    """The table with every `file` made absolute, so that it means the same from any folder."""
    found: dict[str, Any] = {}
    for key, value in raw.items():
        if isinstance(value, dict):
            found[key] = _with_files(value, home)
        elif key == "file" and isinstance(value, str | list):
            many = [
                located(one, home) if isinstance(one, str) else one
                for one in ([value] if isinstance(value, str) else value)
            ]
            found[key] = many if isinstance(value, list) else many[0]
        else:
            found[key] = value
    return found
