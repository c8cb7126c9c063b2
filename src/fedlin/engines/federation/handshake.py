"""What server and clients must agree on before any message makes sense."""

import hashlib
import json
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedlin.core import Method
from fedlin.engines.federation.wire import VERSION
from fedlin.engines.messages import PhaseShape, RoundShapes, trace_rounds
from fedlin.engines.phase import ClientProgram
from fedlin.errors import ArgumentError, WireError
from fedlin.payloads import size
from fedlin.precision import precision
from fedlin.problems.objective import Objective

# Messages have the same shapes whatever the data, so an oracle without data stands in for every client's.
_STAND_IN = ClientProgram(Objective(lambda data, x: jnp.sum(x), lambda data, x: x, prox=lambda data, u, s: u), None)


@dataclass(frozen=True)
class Handshake:
    """An algorithm with all its numbers, and the size and precision of the model."""

    algorithm: Method
    dim: int
    dtype: np.dtype
    secure: bool = False  # whether the server learns sums of uploads alone

    def __post_init__(self) -> None:
        recipe = self.algorithm.recipe
        numbers = () if recipe is None else recipe.numbers
        open_numbers = [name.rpartition(".")[2] for name, value in numbers if value is None]
        if open_numbers:
            raise ArgumentError(
                f"{self.algorithm.name} leaves {' and '.join(open_numbers)} to the problem, and no single machine of a "
                f"federation knows all of it: give {open_numbers[0]}= when building the algorithm."
            )
        if any(phase.tamper is not None for phase in self.algorithm.phases):
            raise ArgumentError(
                f"{self.algorithm.name} is an attack on all uploads of a phase at once, which can only be simulated: "
                "use fedlin.simulate, or give a site false data."
            )
        self.algorithm.check(self.dim)
        if self.secure:
            from fedlin.engines.federation.secure_encoding import check_structure

            for phase in (*self.shapes.opening, *self.shapes.later):
                check_structure(phase.name, phase.up)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The terms in plain values, by name."""
        recipe = self.algorithm.recipe
        made = None if recipe is None else f"{recipe!r}{recipe.numbers!r}"
        facts = {
            "protocol": VERSION,
            "algorithm": self.algorithm.name,
            "recipe": made,
            "dimension": self.dim,
            "precision": self.dtype.name,
        }
        return {**facts, "secure": True} if self.secure else facts

    @cached_property
    def fingerprint(self) -> bytes:
        """Four bytes that tell these terms from others; every message carries them."""
        return hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode()).digest()[:4]

    @cached_property
    def shapes(self) -> RoundShapes:
        """The messages and states of every phase."""
        with precision(self.dtype):
            return _shapes(self.algorithm, self.dim, self.dtype)

    @property
    def largest_upload(self) -> int:
        """The bytes of the longest upload of any phase."""
        uploads = [phase.up for phase in (*self.shapes.opening, *self.shapes.later)]
        if self.secure:
            from fedlin.engines.federation.secure_encoding import masked_size

            return max(map(masked_size, uploads))
        return max(size(upload).total for upload in uploads)

    def phase(self, opening: bool, number: int) -> PhaseShape:
        """What phase `number` sends, in the first round of a run or in a later one."""
        phases = self.shapes.opening if opening else self.shapes.later
        if number >= len(phases):
            raise WireError(f"the message is of phase {number}, and {self.algorithm.name} has {len(phases)}.")
        return phases[number]


@cache
def _shapes(algorithm: Method, dim: int, dtype: np.dtype) -> RoundShapes:
    return trace_rounds(algorithm, _STAND_IN, (None, None), dim, dtype)
