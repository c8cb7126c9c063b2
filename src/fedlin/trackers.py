"""Callbacks that send every round's measures to a dashboard: pass one in `simulate(callbacks=[...])`.

Use a tracker in a `with` block, or close it, or leave it: what is still waiting is written when Python ends.
"""

import atexit
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from fedlin.errors import ArgumentError

Mode = Literal["online", "offline", "disabled"]  # of Weights & Biases
BATCH = 1000  # metrics MLflow takes in one request


class Tracker(ABC):
    """Gets the measures of every round; those that are not finite, such as an unknown gap, are left out."""

    _closed = False

    def __init__(self) -> None:
        atexit.register(self.close)

    def __call__(self, number: int, measures: Mapping[str, float]) -> None:
        self.write(number, {name: value for name, value in measures.items() if math.isfinite(value)})

    @abstractmethod
    def write(self, number: int, measures: Mapping[str, float]) -> None:
        """Take in the measures of round `number`."""

    @abstractmethod
    def end(self, failed: bool) -> None:
        """Write what is waiting and let go of the dashboard."""

    def close(self, failed: bool = False) -> None:
        """End the record; a second time does nothing more."""
        if not self._closed:
            self._closed = True
            atexit.unregister(self.close)
            self.end(failed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close(failed=kind is not None)


class _TensorBoard(Tracker):
    def __init__(self, folder: str) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as cause:
            raise _missing("tensorboardX", "tensorboard") from cause
        self._writer = SummaryWriter(folder)
        super().__init__()

    def write(self, number: int, measures: Mapping[str, float]) -> None:
        for name, value in measures.items():
            self._writer.add_scalar(name, value, number)

    def end(self, failed: bool) -> None:
        self._writer.close()


class _MLflow(Tracker):
    def __init__(self, experiment: str, run: str | None, uri: str | None, params: Mapping[str, object]) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.entities import Metric
        except ImportError as cause:
            raise _missing("mlflow", "mlflow") from cause
        self._client, self._metric = MlflowClient(uri), Metric
        existing = self._client.get_experiment_by_name(experiment)
        experiment_id = existing.experiment_id if existing else self._client.create_experiment(experiment)
        self.run_id: str = self._client.create_run(experiment_id, run_name=run).info.run_id
        for name, value in params.items():
            self._client.log_param(self.run_id, name, value)
        self._waiting: list[Any] = []
        super().__init__()

    def write(self, number: int, measures: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self._waiting += [self._metric(name, value, now, number) for name, value in measures.items()]
        while len(self._waiting) >= BATCH:
            self._send()

    def end(self, failed: bool) -> None:
        while self._waiting:
            self._send()
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")

    def _send(self) -> None:
        self._client.log_batch(self.run_id, metrics=self._waiting[:BATCH])
        del self._waiting[:BATCH]


class _Wandb(Tracker):
    def __init__(
        self, project: str, run: str | None, folder: str | None, mode: Mode | None, params: Mapping[str, object]
    ) -> None:
        try:
            import wandb
        except ImportError as cause:
            raise _missing("wandb", "wandb") from cause
        settings = wandb.Settings(silent=True, console="off")
        self._run = wandb.init(
            project=project,
            name=run,
            dir=folder,
            mode=mode,
            config=dict(params),
            reinit="create_new",
            settings=settings,
        )
        self.folder: str = self._run.dir
        super().__init__()

    def write(self, number: int, measures: Mapping[str, float]) -> None:
        self._run.log(dict(measures), step=number)

    def end(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


def tensorboard(folder: str | PathLike[str]) -> Tracker:
    """Scalars by round, in a folder for `tensorboard --logdir`. Needs the extra: `pip install 'fedlin[tensorboard]'`.

    Args:
        folder: Where TensorBoard's files go.

    Returns:
        The tracker.

    >>> import fedlin, tempfile
    >>> from pathlib import Path
    >>> problem = fedlin.problems.least_squares(clients=2, dim=2, samples=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with tensorboard(folder) as track:
    ...         result = fedlin.simulate(fedlin.fedlin(), problem, fedlin.Plan(1, 0.01), 5, callbacks=[track])
    ...     len(list(Path(folder).iterdir()))
    1
    """
    if not isinstance(folder, str | PathLike):
        raise ArgumentError(f"folder = {folder!r} is not allowed: give the path of a folder.")
    return _TensorBoard(fspath(folder))


def mlflow(
    experiment: str = "fedlin",
    *,
    run: str | None = None,
    uri: str | None = None,
    params: Mapping[str, object] | None = None,
) -> Tracker:
    """A new MLflow run with every measure as a metric by round. Needs the extra: `pip install 'fedlin[mlflow]'`.

    Args:
        experiment: The experiment's name.
        run: The run's name; MLflow invents one unless given.
        uri: The tracking server or a database such as `sqlite:///mlflow.db`; MLflow's own setting unless given.
        params: What is logged with the run.

    Returns:
        The tracker; its `run_id` is MLflow's.
    """
    if not isinstance(experiment, str) or not experiment:
        raise ArgumentError(f"experiment = {experiment!r} is not allowed: give the experiment's name.")
    return _MLflow(experiment, run, uri, params or {})


def wandb(
    project: str = "fedlin",
    *,
    run: str | None = None,
    folder: str | PathLike[str] | None = None,
    mode: Mode | None = None,
    params: Mapping[str, object] | None = None,
) -> Tracker:
    """A new Weights & Biases run with every measure by round. Needs the extra: `pip install 'fedlin[wandb]'`.

    Args:
        project: The project's name.
        run: The run's name; W&B invents one unless given.
        folder: Where W&B keeps its files; `wandb` in the working folder unless given.
        mode: "online", "offline" (files only, which `wandb sync` uploads later) or "disabled"; what the environment
            variable WANDB_MODE says unless given.
        params: What is logged with the run.

    Returns:
        The tracker.
    """
    if not isinstance(project, str) or not project:
        raise ArgumentError(f"project = {project!r} is not allowed: give the project's name.")
    if mode not in (None, *get_args(Mode)):
        raise ArgumentError(f"mode = {mode!r} is not allowed: give one of {', '.join(get_args(Mode))}.")
    return _Wandb(project, run, None if folder is None else fspath(folder), mode, params or {})


def check_tracker(name: str) -> None:
    """Refuse a tracker whose package is not installed."""
    package = {"tensorboard": "tensorboardX"}.get(name, name)
    if find_spec(package) is None:
        raise _missing(package, name)


def track_run(name: str, folder: Path, run: str, params: Mapping[str, object]) -> Tracker:
    """The tracker that an experiment file names, for a run of it; files go into `folder`."""
    if name == "tensorboard":
        return tensorboard(folder / "tensorboard" / run)
    if name == "mlflow":
        return mlflow(folder.name, run=run, params=params)
    folder.mkdir(parents=True, exist_ok=True)
    return wandb(folder.name, run=run, folder=folder, params=params)


def _missing(package: str, extra: str) -> ArgumentError:
    return ArgumentError(
        f"this tracker writes through {package}, which is not installed: run pip install 'fedlin[{extra}]'."
    )
