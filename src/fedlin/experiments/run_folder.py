"""The folder of an experiment: what was asked for, what each run came to, and where unfinished ones stand.

experiment.toml    the file with its defaults filled in and its paths made absolute
environment.json   versions, commit, device and date of every session that worked on it
code.json          the files of the user's own code, by their content
problems.json      facts of each problem, and a fingerprint of its numbers
tuning/0003.json   step sizes tried for a run and those that differ from it in their seed only
runs/0003.npz      a finished run: its model x and everything measured
runs/0003.json     its model on the rows held out, over all and by client
runs/0003.ckpt     where an unfinished run stands
metrics.parquet    one long table of all runs, written at the end
tuning.parquet     the same of all step sizes tried
"""

import io
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedlin.engines.checkpoint import write_whole
from fedlin.errors import ArgumentError
from fedlin.experiments.config import TomlTable, TuningConfig
from fedlin.experiments.experiment_file import ExperimentFile, load
from fedlin.experiments.planned_runs import PlannedRun
from fedlin.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

Facts = dict[str, Any]  # what is stored of a problem
CONFIG = "experiment.toml"
PACKAGES = ("fedlin", "jax", "jaxlib", "numpy", "scipy")


class RunFolder:
    """An experiment's folder on disk; every file in it is written whole or not at all."""

    def __init__(self, path: Path, file: ExperimentFile) -> None:
        self.path = path
        self.file = file

    @classmethod
    def create(cls, path: Path, file: ExperimentFile) -> "RunFolder":
        """A new folder for an experiment that has not begun."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if (path / CONFIG).is_file():
                raise ArgumentError(
                    f"{path} holds a run: go on with it by `fedlin run --resume {path}`, or name another one by --out."
                )
            raise ArgumentError(f"{path} is not an empty folder: name another one by --out.")
        try:
            for part in ("runs", "tuning"):
                (path / part).mkdir(parents=True, exist_ok=True)
            write_whole(path / CONFIG, tomli_w.dumps(resolved(file)).encode())
        except OSError as error:
            raise ArgumentError(f"cannot write to {path}: {error.strerror}; name another folder by --out.") from error
        return cls(path, file)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """A folder that `create` made."""
        if not (path / CONFIG).is_file():
            raise ArgumentError(f"{path} is not the folder of a run: it holds no {CONFIG}.")
        return cls(path, load(path / CONFIG, stored=True))

    def check_same(self, file: ExperimentFile) -> None:
        """Refuse to go on with another experiment than the one the folder is of."""
        mine, theirs = _flat(resolved(self.file)), _flat(resolved(file))
        differing = sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))
        if differing:
            changes = "; ".join(
                f"{key} is {_shown(mine, key)} there and {_shown(theirs, key)} here" for key in differing
            )
            raise ArgumentError(f"{self.path} is of another experiment: {changes}. Start a new one by --out.")

    def begin(self, facts: Mapping[str, Facts], code: Mapping[str, str]) -> None:
        """Note the session, the problems and the user's own code; refuse what is not that of the earlier sessions."""
        known_code = self._json("code.json") or {}
        for name, content in known_code.items():
            if code.get(name) != content:
                raise ArgumentError(
                    f"{self.path} was made with other code: {name} has changed since. Put it back, or start a new run "
                    "by --out."
                )
        before = self._json("problems.json") or {}
        for case, known in facts.items():
            if case in before and before[case]["fingerprint"] != known["fingerprint"]:
                raise ArgumentError(
                    f"{self.path} was made with other data: what [problem] names has changed since. Put it back, or "
                    "start a new run by --out."
                )
        self._write_json("problems.json", facts)
        if code:
            self._write_json("code.json", code)
        self._write_json("environment.json", [*(self._json("environment.json") or []), environment(self.file.source)])

    def facts(self, run: PlannedRun) -> Facts:
        """What is known of a run's problem."""
        known = self._json("problems.json") or {}
        return dict(known.get(run.problem_key, {}))

    def store_picture(self, name: str, figure: "Canvas") -> None:
        """Keep a picture as PNG."""
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150)
        write_whole(self.path / name, buffer.getvalue())

    def checkpoint(self, run: PlannedRun) -> Path:
        """Where an unfinished run is saved."""
        return self.path / "runs" / f"{run.name}.ckpt"

    def finished(self, run: PlannedRun) -> bool:
        """Whether a run's result is stored."""
        return self._run(run).is_file()

    def store(self, run: PlannedRun, result: Result) -> None:
        """Keep a finished run; its checkpoint is no longer needed."""
        buffer = io.BytesIO()
        result.write(buffer)
        write_whole(self._run(run), buffer.getvalue())
        self.checkpoint(run).unlink(missing_ok=True)

    def held_out(self, run: PlannedRun) -> Any:
        """What a run's model does on the rows held out, or None."""
        return self._json(f"runs/{run.name}.json")

    def store_held_out(self, run: PlannedRun, report: Mapping[str, object]) -> None:
        """Keep what a run's model does on the rows held out."""
        self._write_json(f"runs/{run.name}.json", report)

    def results(self) -> Iterator[tuple[PlannedRun, Result]]:
        """The finished runs."""
        for run in self.file.runs:
            if self.finished(run):
                yield run, Result.load(self._run(run))

    def tuning(self, run: PlannedRun) -> Any:
        """The step sizes tried for a run, or None."""
        return self._json(f"tuning/{run.name}.json")

    def store_tuning(self, run: PlannedRun, tried: Mapping[str, object]) -> None:
        """Keep the step sizes tried for a run and those that differ from it in their seed only."""
        self._write_json(f"tuning/{run.name}.json", tried)

    def write_tables(self) -> None:
        """The long tables, from what the runs came to."""
        import pandas as pd

        self._write_table("metrics.parquet", [_long(run, result) for run, result in self.results()])
        tried = []
        for run in self.file.runs:
            record = self.tuning(run)
            if record is not None:
                rows = pd.DataFrame(record["trials"])
                tried.append(_labelled(run, rows.assign(chosen=rows["value"] == record["value"])))
        if tried:
            self._write_table("tuning.parquet", tried)

    def _write_table(self, name: str, parts: Sequence["pd.DataFrame"]) -> None:
        import pandas as pd

        buffer = io.BytesIO()
        pd.concat(parts, ignore_index=True).to_parquet(buffer, index=False)
        write_whole(self.path / name, buffer.getvalue())

    def _run(self, run: PlannedRun) -> Path:
        return self.path / "runs" / f"{run.name}.npz"

    def _json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def _write_json(self, name: str, content: object) -> None:
        write_whole(self.path / name, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def resolved(file: ExperimentFile) -> TomlTable:
    """The experiment as a table with defaults filled in; lists stay lists, so that it gives the same runs."""
    experiment = file.experiment
    table = experiment.model_dump(exclude_none=True)
    table["problem"] = _under(file.runs[0].problem.model_dump(exclude_none=True), experiment.problem)
    if any(run.plan.tuned for run in file.runs):
        table["plan"] = {
            **experiment.plan,
            "tuning": {**TuningConfig().model_dump(exclude_none=True), **experiment.plan.get("tuning", {})},
        }
    return table


def _under(defaults: TomlTable, settings: TomlTable) -> dict[str, object]:
    return {
        key: _under(value, settings[key])
        if isinstance(value, dict) and isinstance(settings.get(key), dict)
        else settings.get(key, value)
        for key, value in {**defaults, **settings}.items()
    }


def _flat(table: TomlTable, path: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in table.items():
        if key == "algorithm" and not path:
            value = {f"[{position}]": entry for position, entry in enumerate(value)}
        here = f"{path}{'' if not path or key.startswith('[') else '.'}{key}"
        flat |= _flat(value, here) if isinstance(value, dict) else {here: value}
    return flat


def _shown(table: Mapping[str, object], key: str) -> str:
    return repr(table[key]) if key in table else "not given"


def _long(run: PlannedRun, result: Result) -> "pd.DataFrame":
    return _labelled(run, result.to_dataframe())


def _labelled(run: PlannedRun, rows: "pd.DataFrame") -> "pd.DataFrame":
    """Rows of a run with its name, method, seed and grid values in front."""
    grid = {key: value if isinstance(value, int | float | str) else str(value) for key, value in run.grid.items()}
    front = {"member": run.number, "algorithm": run.label, "seed": run.seed, **grid}
    return rows.assign(**front)[[*front, *rows.columns]]


def environment(source: Path) -> dict[str, object]:
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
