"""Programs that fit their device: how many clients at a time, by what the compiled program says it needs."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.stages import Wrapped

from fedlin.columns import write_bytes
from fedlin.core import PyTree
from fedlin.errors import TooLargeError
from fedlin.layout import even_block

# Kernels on a GPU compute addresses of larger arrays in 32 bits, and stop there with an illegal address.
LARGEST = 2**31 - 1  # entries of one array
WHOLE = 0.9  # of a device's memory, for a program with all it holds
PART = 0.25  # of a device's memory, for what a pass over all clients needs in between
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


class Needs(NamedTuple):
    """What a program takes."""

    held: int  # bytes of its arguments and results
    between: int  # bytes of what it computes in between
    largest: int  # entries of the largest array it computes


@cache
def device_memory() -> int:
    """Bytes of the first device's memory, on a CPU those of the machine or of its container."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    sizes = [2**34]  # where the system does not say
    with suppress(ValueError, OSError, AttributeError):
        sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(ValueError, OSError):  # the word "max" where there is no limit
        sizes.append(int(_CONTAINER.read_text()))
    return min(sizes)


def fitting_block(
    make: Callable[[int | None], Wrapped],
    arguments: tuple[PyTree, ...],
    clients: int,
    first: int | None,
    *,
    measuring: bool,
) -> int | None:
    """The most clients at a time with which a program fits the device: `first` where that does, all if it is None.

    Args:
        make: the jitted program for so many clients at a time. What is compiled to see what it needs is what a later
            call with these arguments runs.
        arguments: what it is called with, or their shapes.
        clients: how many there are.
        first: how many at a time to begin with, or None for all at once.
        measuring: whether this is a pass over all clients beside a run, which may take a part of the memory only.

    Returns:
        Clients at a time; None for all at once.
    """
    memory, block = device_memory(), first
    while True:
        size = block or clients
        needs = _needs(make(block), arguments)
        room = memory * PART if measuring else memory * WHOLE - needs.held
        if needs.between <= room and needs.largest <= LARGEST:
            return block
        if size == 1 or room <= 0:
            raise _refusal("one client at a time", needs)
        share = min(room / max(needs.between, 1), LARGEST / max(needs.largest, 1), 0.9)
        block = even_block(max(1, int(size * share)), clients)


def check_fits(program: Wrapped, arguments: tuple[PyTree, ...], clients: int) -> None:
    """Refuse a program for so many clients that does not fit the device."""
    needs = _needs(program, arguments)
    if needs.held + needs.between > WHOLE * device_memory() or needs.largest > LARGEST:
        raise _refusal(f"a chunk of {clients}", needs)


def _refusal(what: str, needs: Needs) -> TooLargeError:
    return TooLargeError(
        f"{what} takes {write_bytes(needs.held)} of data, models and states and {write_bytes(needs.between)} in "
        f"between, and this device has {write_bytes(device_memory())}: use mini-batches of fewer rows "
        "(fedlin.problems.minibatch), a smaller chunk= with the other clients on the host, or a smaller cohort."
    )


def _needs(program: Wrapped, arguments: tuple[PyTree, ...]) -> Needs:
    traced = program.trace(*arguments)
    largest = 0 if jax.default_backend() == "cpu" else max(_sizes(traced.jaxpr.jaxpr), default=0)
    if largest > LARGEST:  # to compile it would be in vain
        return Needs(0, 0, largest)
    analysis = traced.lower().compile().memory_analysis()
    if analysis is None:  # not every backend knows
        return Needs(0, 0, largest)
    held = analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return Needs(held, analysis.temp_size_in_bytes, largest)


def _sizes(jaxpr: Jaxpr) -> Iterator[int]:
    """The entries of every array that a program computes, in its loops and branches too."""
    for equation in jaxpr.eqns:
        yield from (out.aval.size for out in equation.outvars if hasattr(out.aval, "size"))
        for inner in inner_programs(equation):
            yield from _sizes(inner)


def inner_programs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The bodies of a loop, a branch or a call."""
    for value in equation.params.values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, ClosedJaxpr):
                yield part.jaxpr
            elif isinstance(part, Jaxpr):
                yield part
