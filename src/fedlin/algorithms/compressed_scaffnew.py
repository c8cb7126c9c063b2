"""CompressedScaffnew: Scaffnew whose clients send some of their entries, every entry being sent by s of the m clients.

L. Condat, I. Agarský, P. Richtárik, Provably Doubly Accelerated Federated Learning: The First Theoretically Successful
Combination of Local Training and Communication Compression, 2022. Written after the code of TAMUNA's authors (the
baseline `tamuna` of Flower), which is this method where everyone takes part; the proof stands at
`fedlin.theory.compressed_scaffnew`.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly
from fedlin.algorithms.shared_coin import steps_until
from fedlin.checks import positive_integer
from fedlin.compressors import index_dtype
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Scalar, Vector
from fedlin.errors import ArgumentError, WireError
from fedlin.payloads import Size, array_bytes, float_bits


class MaskedClient(NamedTuple):
    """The control variate, and what the last round left to do once the mean is known."""

    h: Vector  # h_i
    sent: Vector  # x̂_i
    column: Scalar  # of the pattern: which entries were sent


@partial(jax.tree_util.register_dataclass, data_fields=["values", "column"], meta_fields=["dim", "sparsity", "clients"])
@dataclass(frozen=True)
class PatternEntries:
    """The entries that one column of the pattern selects, and that column's number: no index for each entry."""

    values: jax.Array
    column: jax.Array
    dim: int
    sparsity: int  # s
    clients: int  # as many columns: m, or those who take part in a round

    def decode(self) -> Vector:
        """The vector that is zero elsewhere."""
        places = selected(self.column, self.dim, self.sparsity, self.clients)
        return jnp.zeros(self.dim, self.values.dtype).at[places].set(self.values, mode="drop")

    def size(self) -> Size:
        """⌈sd/m⌉ values and the column."""
        return Size(array_bytes(self.values), array_bytes(self.column))

    def paper_bits(self) -> float:
        """The values alone, since both ends draw the columns from one seed."""
        return float_bits(self.values)

    def validate(self) -> None:
        """Refuse a column that is none."""
        if np.asarray(self.column) >= self.clients:
            raise WireError(f"a payload names a column beyond the {self.clients} of its pattern.")


def selected(column: Scalar, dim: int, sparsity: int, clients: int) -> jax.Array:
    """The entries in a column of the pattern, ⌈sd/m⌉ of them; where it has one less, the last is d, which is no entry.

    The d rows of the pattern have s ones each, assigned to the m columns in turn: one number sd/m of them a column.
    """
    count = -(-sparsity * dim // clients)
    place = column.astype(jnp.int32) + clients * jnp.arange(count, dtype=jnp.int32)
    return jnp.where(place < sparsity * dim, place // sparsity, dim)


def move(
    h: Vector, x: Vector, local: Local, place: Scalar, sparsity: int, senders: int
) -> tuple[MaskedClient, PatternEntries]:
    """Local steps from x until the shared coin falls, and the entries that the client at this place of them sends."""
    coin, columns = jax.random.split(local.shared_key)
    y = local.descend(x, shift=-h, steps=steps_until(coin, 1 / local.tau.astype(jnp.float32)))
    column = jax.random.permutation(columns, senders)[place].astype(jnp.int32)
    values = y.at[selected(column, x.shape[0], sparsity, senders)].get(mode="fill", fill_value=0)
    payload = PatternEntries(values, column.astype(index_dtype(senders)), x.shape[0], sparsity, senders)
    return MaskedClient(h, y, column), payload


def correct(state: MaskedClient, x: Vector, local: Local, clients: int, sparsity: int, senders: int) -> Vector:
    """h_i + (pχ/γ) q_i (x - x̂_i), from the model x that came of what was sent last."""
    p = 1 / local.tau.astype(x.dtype)
    pace = clients * (sparsity - 1) / (sparsity * (clients - 1))  # χ
    places = selected(state.column, x.shape[0], sparsity, senders)
    masked = jnp.zeros(x.shape, x.dtype).at[places].set(1, mode="drop")  # q_i, on every device what its clients send
    return state.h + p * pace / local.eta * masked * (x - state.sent)


def nothing_sent(x: Vector) -> MaskedClient:
    """The state before the first round."""
    return MaskedClient(0 * x, x, jnp.zeros((), jnp.int32))


# What methods whose clients send some of their entries need of a run.
MASKED = frozenset(
    [
        Requirement.ONE_STEP_SIZE,
        Requirement.ONE_STEP_COUNT,
        Requirement.EQUAL_WEIGHTS,
        Requirement.OWN_MODEL,
        Requirement.MEAN_UPLOAD,
        Requirement.PLAIN_STEPS,
    ]
)


@factory()
def compressed_scaffnew(clients: int, sparsity: int) -> Algorithm[ModelOnly, MaskedClient]:
    """x_i ← x_i - γ(∇f_i(x_i) - h_i) until a coin of probability p falls; then every entry is the mean of s clients'.

    With q_i the entries that client i sends, drawn together for all so that each is sent by s of the m clients:
    x = (1/s) Σ q_i x̂_i, h_i ← h_i + (pχ/γ) q_i (x - x̂_i), χ = m(s - 1)/(s(m - 1)), the largest that is proven. γ is the
    plan's η and p is 1/τ, as in `scaffnew`, which it is with s = m. A client sends ⌈sd/m⌉ numbers and no index.

    Args:
        clients: m; there have to be so many, and all in every round.
        sparsity: s, from 2 to m.

    Returns:
        The method.

    >>> compressed_scaffnew(clients=10, sparsity=2).name
    'compressed_scaffnew(clients=10, sparsity=2)'
    """
    if positive_integer("sparsity", sparsity, least=2) > positive_integer("clients", clients, least=2):
        raise ArgumentError(f"sparsity = {sparsity} is more than the {clients} clients: give a number from 2 to that.")

    def move_locally(state: MaskedClient, x: Vector, local: Local) -> tuple[MaskedClient, Message]:
        h = correct(state, x, local, clients, sparsity, clients)  # in the first round x is x̂_i, and nothing moves
        return move(h, x, local, local.number, sparsity, clients)

    def take_mean(state: ModelOnly, mean: Vector, central: Central) -> ModelOnly:
        return ModelOnly(mean * (clients / sparsity))

    return Algorithm(
        f"compressed_scaffnew(clients={clients}, sparsity={sparsity})",
        ModelOnly,
        nothing_sent,
        (Phase("model", lambda state: state.x, move_locally, take_mean),),
        requires=MASKED | {Requirement.EVERY_CLIENT},
        clients=clients,
    )
