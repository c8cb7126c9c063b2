"""TAMUNA: CompressedScaffnew in which some clients take part in a round, and the others are idle and forget nothing.

L. Condat, I. Agarský, G. Malinovsky, P. Richtárik, TAMUNA: Doubly Accelerated Distributed Optimization with Local
Training, Compression, and Partial Participation, 2023, Algorithm 1. The patterns are those of its authors' code (the
baseline `tamuna` of Flower), the rest is written from memory of the algorithm and held to the proof that stands at
`fedlin.theory.tamuna`. It needs the h_i to sum to zero, and so each client its round's own model; in that code a client
corrects h_i by the model it finds when it is next asked.
"""

from fedlin.algorithms.compressed_scaffnew import MASKED, MaskedClient, correct, move, nothing_sent
from fedlin.algorithms.factory import factory
from fedlin.algorithms.model_only import ModelOnly
from fedlin.checks import positive_integer
from fedlin.core import Algorithm, Central, Local, Message, Phase, Requirement, Vector
from fedlin.errors import ArgumentError


@factory()
def tamuna(clients: int, cohort: int, sparsity: int) -> Algorithm[ModelOnly, MaskedClient]:
    """x_i ← x_i - γ(∇f_i(x_i) - h_i) from x until a coin of probability p falls, at the c clients of the round alone.

    Then every entry is the mean of s of them: with q_i the entries that client i sends, x = (1/s) Σ q_i x̂_i, and these
    clients receive x once more: h_i ← h_i + (pχ/γ) q_i (x - x̂_i), χ = m(s - 1)/(s(m - 1)), the largest that is proven.
    γ is the plan's η and p is 1/τ, as in `scaffnew`. A client sends ⌈sd/c⌉ numbers and no index, and gets 2d. With
    c = m it is `compressed_scaffnew`, which gets d.

    Args:
        clients: m; there have to be so many.
        cohort: c, how many take part in each round; give `simulate` participation = c/m.
        sparsity: s, from 2 to c.

    Returns:
        The method.

    >>> tamuna(clients=10, cohort=4, sparsity=2).name
    'tamuna(clients=10, cohort=4, sparsity=2)'
    """
    m, c, s = (
        positive_integer(name, value, least=2)
        for name, value in (("clients", clients), ("cohort", cohort), ("sparsity", sparsity))
    )
    if not s <= c <= m:
        raise ArgumentError(
            f"sparsity = {s}, cohort = {c} and clients = {m} do not fit: give a sparsity of at most the cohort, and a "
            "cohort of at most the clients."
        )

    def move_locally(state: MaskedClient, x: Vector, local: Local) -> tuple[MaskedClient, Message]:
        return move(state.h, x, local, local.place, s, c)

    def take_mean(state: ModelOnly, mean: Vector, central: Central) -> ModelOnly:
        return ModelOnly(mean * (c / s))

    def learn(state: MaskedClient, x: Vector, local: Local) -> tuple[MaskedClient, Message]:
        return state._replace(h=correct(state, x, local, m, s, c)), ()

    return Algorithm(
        f"tamuna(clients={m}, cohort={c}, sparsity={s})",
        ModelOnly,
        nothing_sent,
        (
            Phase("model", lambda state: state.x, move_locally, take_mean),
            Phase("correction", lambda state: state.x, learn, lambda state, nothing, central: state),
        ),
        requires=MASKED | ({Requirement.EVERY_CLIENT} if c == m else frozenset()),
        clients=m,
        cohort=c,
    )
