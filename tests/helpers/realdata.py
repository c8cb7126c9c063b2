"""Where the tests find real data: the folder named by FEDLIN_DATA, or `../shared/data` beside the repository."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
DATA = "FEDLIN_DATA"


def data_file(name: str) -> Path:
    """The path of a data file; the test is skipped where there is none."""
    folder = Path(os.environ.get(DATA, "../shared/data"))
    path = (ROOT / folder / name).resolve()
    if not path.is_file():
        pytest.skip(f"{name} is not in {folder}: set {DATA} to the folder that holds it")
    return path


def idx(name: str, header: int) -> NDArray[np.uint8]:
    """The bytes of a gzipped IDX file, without its header."""
    return np.frombuffer(gzip.decompress(data_file(name).read_bytes())[header:], np.uint8)
