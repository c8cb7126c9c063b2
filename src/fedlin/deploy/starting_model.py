"""The model a run starts from, where it does not start from zeros."""

from pathlib import Path

from numpy.typing import ArrayLike

from fedlin.checks import finite
from fedlin.core import Array
from fedlin.deploy.runs import former_model, read_model
from fedlin.deploy.settings import FederationSettings
from fedlin.errors import DeployError


def read_start(folder: Path, settings: FederationSettings) -> Array | None:
    """The flat model in the file `run.start`, in the precision `run.dtype`; None where the run has no such file."""
    if settings.start is None:
        return None
    path = folder / settings.start
    try:
        content = read_model(path)
    except FileNotFoundError as error:
        raise DeployError(
            f"run.start: {path} is not there: write it with numpy.save, for example the start of a site's problem()."
        ) from error
    except (ValueError, OSError) as error:
        raise DeployError(f"run.start: {path} is no array of numbers that NumPy can read: {error}.") from error
    return _checked(f"run.start: {path}", content, settings)


def starting_model(kit: Path, job: Path, settings: FederationSettings) -> Array | None:
    """What the server starts from: the file that came with the job, the model of a former run, or None for zeros."""
    if settings.after is None:
        return read_start(job, settings)
    return _checked(f"run.after = {settings.after!r}", former_model(kit, settings.after), settings)


def _checked(source: str, content: ArrayLike, settings: FederationSettings) -> Array:
    x = finite(source, content, DeployError)
    wanted = "a vector" if settings.dim is None else f"shape ({settings.dim},), as run.dim says"
    if x.ndim != 1 or x.size == 0 or settings.dim not in (None, x.size):
        raise DeployError(f"{source} has shape {x.shape}: give {wanted}.")
    return x if settings.dtype is None else x.astype(settings.dtype)
