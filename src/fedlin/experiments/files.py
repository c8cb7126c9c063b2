"""Where the files an experiment names lie."""

import os
from pathlib import Path

from fedlin.errors import DataError

DATA = "FEDLIN_DATA"


def located(name: str, home: Path) -> str:
    """The absolute path of a file: beside the experiment's file, else in the folder that FEDLIN_DATA names."""
    folders = [home, *([Path(os.environ[DATA])] if os.environ.get(DATA) else [])]
    for folder in folders:
        if (folder / name).is_file():
            return str((folder / name).resolve())
    places = " nor in ".join(str(folder.resolve()) for folder in folders)
    raise DataError(f"file = {name!r} is not in {places}: give its path, or set {DATA} to the folder that holds it.")
