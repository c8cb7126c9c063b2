"""A report's folder: checked before any work, and swapped in whole or not at all."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlin.errors import ArgumentError

MARKER = ".fedlin-report"


def check_folder(folder: Path) -> None:
    """Raise where a report cannot or must not be written; the disk is left as it was."""
    try:
        _refuse_foreign(folder)
        ancestor = next(path for path in folder.absolute().parents if path.exists())
        tempfile.TemporaryDirectory(dir=ancestor).cleanup()
    except OSError as error:
        raise ArgumentError(f"cannot write to {folder}: {error.strerror}; name another folder") from error


def _refuse_foreign(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ArgumentError(f"{folder} is a file or a link; name another folder")
    if folder.is_mount() or Path.cwd().is_relative_to(folder.resolve()):
        raise ArgumentError(f"{folder} cannot be replaced as a whole; name a folder inside it")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise ArgumentError(f"{folder} holds files that are not a report; name a new or an empty folder")


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A fresh folder beside `folder` that takes its place when the block ends well, else vanishes."""
    check_folder(folder)
    mark = secrets.token_hex(4)
    fresh, old = (folder.with_name(f".{folder.name}.{mark}.{part}") for part in ("new", "old"))
    try:
        fresh.mkdir(parents=True)
        yield fresh
        (fresh / MARKER).write_text("A report by fedlin; the next one replaces this folder.\n")
        _swap(fresh, folder, old)
    except OSError as error:
        raise ArgumentError(f"cannot write to {folder}: {error.strerror}; name another folder") from error
    finally:
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _swap(fresh: Path, folder: Path, old: Path) -> None:
    if not folder.exists():
        fresh.rename(folder)
        return
    folder.rename(old)
    try:
        fresh.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
