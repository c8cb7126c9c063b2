"""Public data sets, downloaded once from their publishers, and used only if their SHA-256 is the published one."""

import gzip
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

from fedlin.cache import VARIABLE, cache_folder
from fedlin.checks import did_you_mean
from fedlin.errors import ArgumentError, DataError

PATIENCE = 30.0  # seconds without an answer before the network counts as away
MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"


class Source(NamedTuple):
    """A file as its publisher has it."""

    url: str
    sha256: str


# Images in the IDX format come in two files, pixels and labels, and become one archive.
CATALOGUE: dict[str, tuple[Source, ...]] = {
    "a9a": (
        Source(
            "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/a9a",
            "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
        ),
    ),
    "mnist": (
        Source(
            f"{MNIST}/t10k-images-idx3-ubyte.gz",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        Source(
            f"{MNIST}/t10k-labels-idx1-ubyte.gz",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "mnist-train": (
        Source(
            f"{MNIST}/train-images-idx3-ubyte.gz",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        Source(
            f"{MNIST}/train-labels-idx1-ubyte.gz",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
    ),
}


def names() -> tuple[str, ...]:
    """The data sets `fetch` knows.

    - `a9a`: census incomes, 32,561 rows, 123 features, labels -1 and +1 (LIBSVM).
    - `mnist`: the 10,000 test images of handwritten digits, 784 pixels from 0 to 255, labels 0 to 9.
    - `mnist-train`: the 60,000 training images.

    Returns:
        Their names, as `fetch` takes them.

    >>> names()
    ('a9a', 'mnist', 'mnist-train')
    """
    return tuple(CATALOGUE)


def fetch(name: str, *, folder: str | os.PathLike[str] | None = None) -> Path:
    """The path of a public data set, ready for `read`; downloaded if it is not in `folder` yet.

    The folder is `fedlin` in the user's cache folder, or the one in FEDLIN_CACHE, unless given; where FEDLIN_CACHE is
    empty nothing is kept, and a folder has to be given.

    Args:
        name: One of `names()`.
        folder: Where the files are kept, or are already.

    Returns:
        The path, ready for `read`.

    >>> fetch("mnits")
    Traceback (most recent call last):
        ...
    fedlin.errors.ArgumentError: name = 'mnits' is not a known data set (did you mean 'mnist'?): choose one of ...
    """
    if not isinstance(name, str) or name not in CATALOGUE:
        guess = did_you_mean(str(name), CATALOGUE)
        raise ArgumentError(f"name = {name!r} is not a known data set{guess}: choose one of {', '.join(CATALOGUE)}.")
    target = cache_folder() if folder is None else Path(folder).expanduser()
    if target is None:
        raise ArgumentError(f"{VARIABLE} is empty, so that nothing is kept: give folder=, or name a folder there.")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise DataError(f"{target} cannot be made ({cause}): give another folder=, or set {VARIABLE}.") from cause
    sources = CATALOGUE[name]
    archive = target / f"{name}.npz"
    if len(sources) == 2 and archive.is_file():
        return archive
    files = [_stored(source, target) for source in sources]
    if len(files) == 1:
        return files[0]
    with _whole(archive) as part:
        np.savez_compressed(part, X=idx_rows(files[0]), y=idx_rows(files[1]))
    return archive


def _stored(source: Source, folder: Path) -> Path:
    """The file in the folder, downloaded unless it is there and right."""
    path = folder / source.url.rpartition("/")[2]
    if path.is_file() and _sha256(path) == source.sha256:
        return path
    with _whole(path) as part:
        _download(source, path, part)
        if _sha256(part) != source.sha256:
            raise DataError(
                f"what {source.url} sent is not the published file (SHA-256 {_sha256(part)}, not {source.sha256}): "
                f"try again later, or put the right file at {path}."
            )
    return path


def _download(source: Source, path: Path, part: Path) -> None:
    remedy = f"check the network, or download it elsewhere and put it at {path}"
    try:
        with urlopen(source.url, timeout=PATIENCE) as answer, open(part, "wb") as file:
            shutil.copyfileobj(answer, file)
            promised = int(answer.headers.get("Content-Length") or file.tell())
    except (OSError, HTTPException) as cause:
        if isinstance(cause, HTTPError):
            cause.close()  # it holds the connection open
        raise DataError(f"{source.url} cannot be downloaded ({cause}): {remedy}.") from cause
    came = part.stat().st_size
    if came < promised:
        raise DataError(f"{source.url} broke off after {came:,} of {promised:,} bytes: {remedy}.")


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A path to write to; the file appears under its own name once it is complete, or not at all."""
    part = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def idx_rows(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The bytes of a gzipped IDX file, a row an image: two zeros, the type, the number of axes, their lengths."""
    content = gzip.decompress(path.read_bytes())
    axes = content[3]
    lengths = np.frombuffer(content, ">i4", axes, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    return values.reshape(int(lengths[0]), -1) if axes > 1 else values
