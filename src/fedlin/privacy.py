"""Differential privacy of a client as a whole: what it uploads is clipped and noised, and ε is counted.

Two runs are neighbours if one client's data is replaced. A Gaussian mechanism with noise multiplier z (the standard
deviation over the sensitivity) released R times is as private as one with z/√R, whose ε for a given δ is exact
(C. Dwork and A. Roth, 2014; B. Balle and Y.-X. Wang, ICML 2018). Noise from the client itself protects against the
server too; noise on the mean protects against everyone who trusts the server, and clients that are drawn at random
in every round gain from that (Y.-X. Wang, B. Balle, S. Kasiviswanathan, AISTATS 2019).
"""

from functools import cache
from math import sqrt
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedlin.checks import instance_of, one_of, positive, positive_integer, real
from fedlin.compressors import Compressor, identity
from fedlin.core import Algorithm, Key, Mechanism, Method, Vector
from fedlin.errors import ArgumentError, UnknownError
from fedlin.payloads import Dense, Payload

Where = Literal["local", "central"]
LARGEST = 1e6  # ε beyond which nothing is private


def gaussian(
    clip: float,
    noise: float,
    *,
    where: Where = "local",
    compressor: Compressor = identity(),  # noqa: B008 - cached, and immutable
) -> Compressor:
    """v · min(1, clip/‖v‖) and noise of standard deviation 2·clip·noise in every entry, for use on uplinks.

    The noise comes from the client, and `compressor` sees nothing but the noised vector; where="central" leaves it to
    the server, which adds it to the mean, scaled by the largest weight of one client.

    Args:
        clip: The norm to which a vector is clipped.
        noise: z, the standard deviation of the noise in units of 2·clip.
        where: Who adds the noise: "local" for the client, "central" for the server.
        compressor: What encodes the noised vector; it is sent in full unless given.

    Returns:
        The compressor.

    >>> gaussian(1.0, 2.0).mechanism
    Mechanism(clip=1.0, noise=2.0, central=False)
    """
    clip, noise = positive("clip", clip), positive("noise", noise)
    central = one_of("where", where, ("local", "central")) == "central"
    if central and compressor is not identity():
        raise ArgumentError(
            f"compressor = {compressor} is not allowed with where='central': the mean of compressed uploads may move "
            "by more than that of clipped ones. Leave it out, or use where='local'."
        )
    if compressor.shared:
        raise ArgumentError(
            f"compressor = {compressor} draws with a key that all clients have, and noise needs one's own: use "
            "rand_k(k) without shared=True, or where='central' under secure sums."
        )
    return _gaussian(clip, noise, central, compressor)


@cache
def _gaussian(clip: float, noise: float, central: bool, inner: Compressor) -> Compressor:
    def encode(key: Key, vector: Vector) -> Payload:
        norm = jnp.linalg.norm(vector)
        bounded = vector * jnp.minimum(1, clip / jnp.where(norm > 0, norm, 1))
        if central:
            return Dense(bounded)
        draw, rest = jax.random.split(key)
        return inner.encode(rest, bounded + 2 * clip * noise * jax.random.normal(draw, vector.shape, vector.dtype))

    arguments = [f"{clip:g}, {noise:g}"] + ["where='central'"] * central
    arguments += [f"compressor={inner}"] * (inner is not identity())
    return Compressor(
        f"gaussian({', '.join(arguments)})",
        encode,
        check=inner.check,
        mechanism=Mechanism(clip, noise, central),
        uncompressed=None if inner is identity() else _gaussian(clip, noise, central, identity()),
    )


class Guarantee(NamedTuple):
    """What a run gives away of one client: (ε, δ), whatever its data.

    Attributes:
        epsilon: ε.
        delta: δ.
        releases: How many noised uploads a client makes, or noised means it may be part of.
        noise: z of all that a round releases.
        central: Whether the server adds the noise, so that it must be trusted.
    """

    epsilon: float
    delta: float
    releases: int
    noise: float
    central: bool

    def __str__(self) -> str:
        against = "against all but the server" if self.central else "against the server too"
        return f"({self.epsilon:.3g}, {self.delta:g})-differential privacy of each client, {against}"


def account(
    algorithm: Method, rounds: int, *, delta: float, share: float = 1.0, clients: int | None = None
) -> Guarantee:
    """The ε of `rounds` rounds: exact where all clients take part, an upper bound for a drawn `share` of `clients`.

    The share counts where the server adds the noise and draws the clients uniformly in secret; a client's own noise
    has to serve for every round.

    Args:
        algorithm: The method, whose uplinks add noise.
        rounds: How many rounds.
        delta: δ.
        share: The share of the clients that is drawn in each round.
        clients: How many clients there are to draw from; needed for a share below 1.

    Returns:
        ε and δ, and what they follow from.

    >>> from fedlin.algorithms import fedpaq
    >>> print(account(fedpaq(gaussian(1.0, 10.0)), rounds=100, delta=1e-5))
    (4.38, 1e-05)-differential privacy of each client, against the server too
    """
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent, rdp
    from dp_accounting import get_epsilon_gaussian as exact_epsilon

    rounds = positive_integer("rounds", rounds)
    delta = _delta(delta)
    noise, central = combined(algorithm)
    releases = rounds * len(algorithm.mechanisms)
    drawn = _drawn(share, clients)
    if not central or drawn is None:
        return Guarantee(float(exact_epsilon(noise / sqrt(rounds), delta)), delta, releases, noise, central)
    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    accountant.compose(SampledWithoutReplacementDpEvent(*drawn, GaussianDpEvent(noise)), rounds)
    everyone = float(exact_epsilon(noise / sqrt(rounds), delta))  # exact, so it may be the better of two true bounds
    return Guarantee(min(everyone, float(accountant.get_epsilon(delta))), delta, releases, noise, central)


def promise(
    algorithm: Method, rounds: int, *, delta: float, share: float = 1.0, clients: int | None = None
) -> str | None:
    """The guarantee of `account` in words, or why there is none; None where the method makes no upload private.

    Args:
        algorithm: The method, whose uplinks add noise.
        rounds: How many rounds.
        delta: δ.
        share: The share of the clients that is drawn in each round.
        clients: How many clients there are to draw from; needed for a share below 1.

    Returns:
        A sentence, or None.

    >>> from fedlin.algorithms import fedpaq
    >>> promise(fedpaq(gaussian(1.0, 10.0)), 100, delta=1e-5, clients=20)
    '(4.38, 1e-05)-differential privacy of each client, against the server too'
    """
    if not algorithm.mechanisms:
        return None
    try:
        return str(account(algorithm, rounds, delta=delta, share=share, clients=clients))
    except UnknownError as error:
        return str(error)


def noise_for(epsilon: float, *, rounds: int, delta: float, phases: int = 1) -> float:
    """The noise multiplier with which so many rounds, all clients in each, come to ε exactly.

    Args:
        epsilon: ε.
        rounds: How many rounds.
        delta: δ.
        phases: Noised uploads of a client in a round.

    Returns:
        The noise multiplier z, as `gaussian` takes it.

    >>> round(noise_for(4.38, rounds=100, delta=1e-5), 1)
    10.0
    """
    from dp_accounting import get_sigma_gaussian

    releases = positive_integer("rounds", rounds) * positive_integer("phases", phases)
    bound = real("epsilon", epsilon, lambda value: 0 < value <= LARGEST, f"a number above 0, at most {LARGEST:g}")
    return float(get_sigma_gaussian(bound, _delta(delta))) * sqrt(releases)


def combined(algorithm: Method) -> tuple[float, bool]:
    """The noise multiplier of a whole round, (Σ 1/z_p²)^(-1/2) over its phases p, and whether the server adds it.

    Args:
        algorithm: The method, whose uplinks add noise.

    Returns:
        The noise multiplier, and whether the server adds the noise.

    >>> from fedlin.algorithms import fedlin
    >>> combined(fedlin(uplink=gaussian(1.0, 3.0), model_uplink=gaussian(1.0, 4.0)))
    (2.4, False)
    """
    of_phases = instance_of("algorithm", algorithm, Algorithm, "a fedlin Algorithm").mechanisms
    bare = [phase.name for phase, mechanism in zip(algorithm.phases, of_phases, strict=False) if mechanism is None]
    if not of_phases or bare:
        names = ", ".join(bare or [phase.name for phase in algorithm.phases])
        raise UnknownError(
            f"{algorithm.name} is not private: what its clients upload in the phase {names} is not noised. Put "
            "fedlin.privacy.gaussian(clip, noise) on every uplink."
        )
    mechanisms = [mechanism for mechanism in of_phases if mechanism is not None]
    noise = sum(1 / mechanism.noise**2 for mechanism in mechanisms) ** -0.5
    # The weaker promise holds for the whole.
    return noise, any(mechanism.central for mechanism in mechanisms)


def _drawn(share: float, clients: int | None) -> tuple[int, int] | None:
    share = real("share", share, lambda value: 0 < value <= 1, "a share in (0, 1]")
    if share == 1:
        return None
    if clients is None:
        raise ArgumentError(f"share = {share:g} needs the number of clients it is drawn from: give clients=.")
    clients = positive_integer("clients", clients)
    return clients, max(1, round(share * clients))


def _delta(delta: float) -> float:
    return real("delta", delta, lambda value: 0 < value < 1, "a number in (0, 1), well below 1/clients")
