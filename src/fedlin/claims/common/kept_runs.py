"""Runs of the shoot-out kept on disk, so that a claim that was ended goes on; other code or data is another run."""

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import fedlin
from fedlin.cache import cache_folder
from fedlin.claims.common.run_costs import Spending
from fedlin.errors import CheckpointError
from fedlin.result import Result

# What a run depends on: files and folders of the package.
PARTS = ("*.py", "algorithms", "problems", "theory", "data", "engines")
HELPERS = ("entrants", "fewer_bits", "shootout_data", "run_costs", "published", "method_faults")


def kept(name: str, make: Callable[[], Spending]) -> Spending:
    """What `make` gives, from disk where the same code made it before.

    Args:
        name: What tells the run from others: problem, method, variant and step.
        make: Makes it.

    Returns:
        The run and what it spent.
    """
    folder = cache_folder()
    if folder is None:
        return make()
    digest = hashlib.sha256(f"{code()} {name}".encode()).hexdigest()[:32]
    path = folder / "frontier" / f"{digest}.npz"
    try:
        run = Result.load(path)
        return Spending(run, {unit: run.columns[unit] for unit in (*run.metrics, "rounds", "gradients")})
    except (FileNotFoundError, CheckpointError):
        made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")  # written whole or not at all
    made.run.with_columns(**made.spent).save(part)
    part.replace(path)
    return made


@cache
def code() -> str:
    """A digest of all that a run depends on but its data."""
    package = Path(fedlin.__file__).parent
    files = [
        file for part in PARTS for file in sorted(package.glob(part if part.endswith(".py") else f"{part}/**/*.py"))
    ]
    files += [package / "claims" / "common" / f"{helper}.py" for helper in HELPERS]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
