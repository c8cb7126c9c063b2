"""Where the files an experiment names lie."""

import os
from pathlib import Path

from fedlin.errors import DataError

DATA = "FEDLIN_DATA"


def located(name: str, home: Path) -> str:
    """The absolute path of a file or folder: beside the experiment, else in the folder that FEDLIN_DATA names."""
    if Path(name).is_absolute():  # whoever reads it tells whether it is there; a finished run is compared without it
        return name
    folders = [home, *([Path(os.environ[DATA])] if os.environ.get(DATA) else [])]
    for folder in folders:
        if (folder / name).exists():
            return str((folder / name).resolve())
    places = " nor in ".join(str(folder.resolve()) for folder in folders)
    raise DataError(f"file = {name!r} is not in {places}: give its path, or set {DATA} to the folder that holds it.")


def stored(name: str) -> str | None:
    """A public data set that lies in the folder FEDLIN_DATA names, so that it need not be fetched."""
    folder = os.environ.get(DATA)
    files = (Path(folder, f"{name}{ending}") for ending in ("", ".gz", ".npz")) if folder else ()
    return next((str(file.resolve()) for file in files if file.is_file()), None)
