"""Errors, raised before any work starts: what was given, what is allowed, what to do."""


class FedLinError(ValueError):
    """Base of every error this package raises on purpose.

    >>> import fedlin
    >>> fedlin.top_k(0)
    Traceback (most recent call last):
        ...
    fedlin.errors.ArgumentError: ...
    """


class ArgumentError(FedLinError):
    """A single argument is out of its range or of the wrong kind."""


class PlanError(FedLinError):
    """The numbers of local steps or the step sizes do not fit the problem or the algorithm."""


class DataError(FedLinError):
    """The clients' data cannot define the problem asked for."""


class UnknownError(FedLinError):
    """The problem does not know a constant or an optimum that was asked of it."""


class TooLargeError(FedLinError):
    """A run takes more memory than its device has, however few clients it works on at a time."""


class CheckpointError(FedLinError):
    """A checkpoint or a saved result cannot be read, or belongs to another run."""


class OtherRunError(CheckpointError):
    """A checkpoint was made by a run with other settings; `differing` names them."""

    def __init__(self, path: object, differing: list[str]) -> None:
        self.differing = differing
        super().__init__(
            f"{path} belongs to another run, one with another {', another '.join(differing)}. "
            "Run it with the settings it was made with, or name another file."
        )


class DamagedError(CheckpointError):
    """A file was cut off or changed after it was written."""


class WireError(FedLinError):
    """A message that came over the network is not one this side can accept."""


class NotFiniteError(WireError):
    """A message holds NaN or infinite numbers."""


class FederationError(FedLinError):
    """A federation cannot start or go on."""


class DeployError(FedLinError):
    """A federation cannot be set up, started or read as asked."""
