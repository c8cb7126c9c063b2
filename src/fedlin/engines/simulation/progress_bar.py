"""A progress bar: rounds, the latest gap or gradient norm, and the time left."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any


class _Silent:
    def update(self, rounds: int, text: str) -> None:
        """Nothing to show."""


def bar(visible: bool, rounds: int, name: str) -> AbstractContextManager[Any]:
    """A bar with `update(rounds, text)`, or one that does nothing."""
    return _RichBar(rounds, name) if visible else nullcontext(_Silent())


class _RichBar:
    def __init__(self, rounds: int, name: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(),
            transient=False,
        )
        self._task = self._progress.add_task(name, total=rounds, text="")

    def __enter__(self) -> "_RichBar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, rounds: int, text: str) -> None:
        """Show that `rounds` are done."""
        self._progress.update(self._task, completed=rounds, text=text)
