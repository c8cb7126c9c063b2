"""The folder of a run: what was asked for, what each member came to, and where unfinished ones stand.

experiment.toml    the file with its defaults filled in and its paths made absolute
environment.json   versions, commit, device and date of every session that worked on it
problems.json      facts of each problem, and a fingerprint of its numbers
tuning/0003.json   step sizes tried for a member and those like it
runs/0003.npz      a finished member: its model x and everything measured
runs/0003.ckpt     where an unfinished member stands
metrics.parquet    one long table of all members, written at the end
tuning.parquet     the same of all step sizes tried
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedlin.engines.checkpoint import write_whole
from fedlin.errors import ArgumentError
from fedlin.experiments.config import TuningConfig
from fedlin.experiments.environment import environment
from fedlin.experiments.load import Loaded, load
from fedlin.experiments.members import PlannedRun
from fedlin.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

CONFIG = "experiment.toml"


class Folder:
    """A run's folder on disk; every file in it is written whole or not at all."""

    def __init__(self, path: Path, loaded: Loaded) -> None:
        self.path = path
        self.loaded = loaded

    @classmethod
    def create(cls, path: Path, loaded: Loaded) -> "Folder":
        """A new folder for a run that has not begun."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if (path / CONFIG).is_file():
                raise ArgumentError(
                    f"{path} holds a run: go on with it by `fedlin run --resume {path}`, or name another one by --out."
                )
            raise ArgumentError(f"{path} is not an empty folder: name another one by --out.")
        try:
            for part in ("runs", "tuning"):
                (path / part).mkdir(parents=True, exist_ok=True)
            write_whole(path / CONFIG, tomli_w.dumps(resolved(loaded)).encode())
        except OSError as error:
            raise ArgumentError(f"cannot write to {path}: {error.strerror}; name another folder by --out.") from error
        return cls(path, loaded)

    @classmethod
    def open(cls, path: Path) -> "Folder":
        """A folder that `create` made."""
        if not (path / CONFIG).is_file():
            raise ArgumentError(f"{path} is not the folder of a run: it holds no {CONFIG}.")
        return cls(path, load(path / CONFIG))

    def check_same(self, loaded: Loaded) -> None:
        """Refuse to go on with another experiment than the one the folder is of."""
        mine, theirs = _flat(resolved(self.loaded)), _flat(resolved(loaded))
        differing = sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))
        if differing:
            told = "; ".join(f"{key} is {_said(mine, key)} there and {_said(theirs, key)} here" for key in differing)
            raise ArgumentError(f"{self.path} is of another experiment: {told}. Start a new one by --out.")

    def begin(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Note the session and the problems; refuse problems whose numbers are not those of the earlier sessions."""
        before = self._json("problems.json") or {}
        for case, known in facts.items():
            if case in before and before[case]["fingerprint"] != known["fingerprint"]:
                raise ArgumentError(
                    f"{self.path} was made with other data: what [problem] names has changed since. Put it back, or "
                    "start a new run by --out."
                )
        self._write_json("problems.json", facts)
        self._write_json("environment.json", [*(self._json("environment.json") or []), environment(self.loaded.source)])

    def facts(self, member: PlannedRun) -> dict[str, Any]:
        """What is known of a member's problem."""
        known = self._json("problems.json") or {}
        return dict(known.get(member.problem_key, {}))

    def store_picture(self, name: str, figure: "Canvas") -> None:
        """Keep a picture as PNG."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150)
        write_whole(self.path / name, buffer.getvalue())

    def checkpoint(self, member: PlannedRun) -> Path:
        """Where an unfinished member is saved."""
        return self.path / "runs" / f"{member.name}.ckpt"

    def finished(self, member: PlannedRun) -> bool:
        """Whether a member's result is stored."""
        return self._run(member).is_file()

    def store(self, member: PlannedRun, result: Result) -> None:
        """Keep a finished member; its checkpoint is no longer needed."""
        buffer = io.BytesIO()
        result.write(buffer)
        write_whole(self._run(member), buffer.getvalue())
        self.checkpoint(member).unlink(missing_ok=True)

    def results(self) -> Iterator[tuple[PlannedRun, Result]]:
        """The finished members."""
        for member in self.loaded.members:
            if self.finished(member):
                yield member, Result.load(self._run(member))

    def tuning(self, member: PlannedRun) -> Any:
        """The step sizes tried for a member, or None."""
        return self._json(f"tuning/{member.name}.json")

    def store_tuning(self, member: PlannedRun, tried: Any) -> None:
        """Keep the step sizes tried for a member and those like it."""
        self._write_json(f"tuning/{member.name}.json", tried)

    def write_tables(self) -> None:
        """The long tables, from what the members came to."""
        import pandas as pd

        self._write_table("metrics.parquet", [_long(member, result) for member, result in self.results()])
        tried = []
        for member in self.loaded.members:
            record = self.tuning(member)
            if record is not None:
                rows = pd.DataFrame(record["trials"])
                tried.append(_labelled(member, rows.assign(chosen=rows["value"] == record["value"])))
        if tried:
            self._write_table("tuning.parquet", tried)

    def _write_table(self, name: str, parts: Sequence["pd.DataFrame"]) -> None:
        import pandas as pd

        buffer = io.BytesIO()
        pd.concat(parts, ignore_index=True).to_parquet(buffer, index=False)
        write_whole(self.path / name, buffer.getvalue())

    def _run(self, member: PlannedRun) -> Path:
        return self.path / "runs" / f"{member.name}.npz"

    def _json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def _write_json(self, name: str, content: Any) -> None:
        write_whole(self.path / name, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def resolved(loaded: Loaded) -> dict[str, Any]:
    """The experiment as a table with defaults filled in; lists stay lists, so that it gives the same members."""
    experiment = loaded.experiment
    table = experiment.model_dump(exclude_none=True)
    table["problem"] = _under(loaded.members[0].problem.model_dump(exclude_none=True), experiment.problem)
    if any(member.plan.tuned for member in loaded.members):
        table["plan"] = {
            **experiment.plan,
            "tuning": {**TuningConfig().model_dump(exclude_none=True), **experiment.plan.get("tuning", {})},
        }
    return table


def _under(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _under(value, given[key])
        if isinstance(value, dict) and isinstance(given.get(key), dict)
        else given.get(key, value)
        for key, value in {**defaults, **given}.items()
    }


def _flat(table: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key == "algorithm" and not path:
            value = {f"[{position}]": one for position, one in enumerate(value)}
        here = f"{path}{'' if not path or key.startswith('[') else '.'}{key}"
        found |= _flat(value, here) if isinstance(value, dict) else {here: value}
    return found


def _said(table: Mapping[str, Any], key: str) -> str:
    return repr(table[key]) if key in table else "not given"


def _long(member: PlannedRun, result: Result) -> "pd.DataFrame":
    return _labelled(member, result.to_dataframe())


def _labelled(member: PlannedRun, rows: "pd.DataFrame") -> "pd.DataFrame":
    """Rows of a member with its name, method, seed and grid values in front."""
    grid = {key: value if isinstance(value, int | float | str) else str(value) for key, value in member.grid.items()}
    front = {"member": member.number, "algorithm": member.label, "seed": member.seed, **grid}
    return rows.assign(**front)[[*front, *rows.columns]]
