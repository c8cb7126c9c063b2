"""Keeps NVIDIA FLARE from writing whole messages into lines of a log that nobody reads.

With every request that arrives FLARE 2.9 makes a line for its debug log that holds the request's bytes in full, whether
that log is written or not. For a model of a million entries that took half of a site's time.
"""

from nvflare.fuel.utils.buffer_list import ConsumableBufferList


def shorten() -> None:
    """From now on messages that arrive in this process are printed by the number of their parts."""
    ConsumableBufferList.__repr__ = lambda parts: f"<{len(parts)} parts>"


def restore() -> None:
    """Let FLARE print them in full again, as it does without fedlin."""
    if "__repr__" in vars(ConsumableBufferList):
        del ConsumableBufferList.__repr__
