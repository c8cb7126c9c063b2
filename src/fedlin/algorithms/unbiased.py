"""What methods that average compressed values ask of a compressor: E C(v) = v."""

from fedlin.compressors import Compressor
from fedlin.errors import ArgumentError


def unbiased(compressor: Compressor, method: str) -> Compressor:
    """The compressor, if it is one and unbiased; `method` is who needs it.

    >>> from fedlin.compressors import natural
    >>> unbiased(natural(), "DIANA")
    natural()
    """
    remedy = "give quantize(levels), natural() or rand_k(k, unbiased=True)."
    if not isinstance(compressor, Compressor):
        raise ArgumentError(f"compressor = {compressor!r} is not a compressor, and {method} needs one: {remedy}")
    if compressor.omega is None:
        raise ArgumentError(
            f"compressor = {compressor!r} is biased, and {method} needs an unbiased one: {remedy[:-1]}, or use "
            "fedlin.ef21(compressor), which takes any."
        )
    return compressor
