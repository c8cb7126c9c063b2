"""The stated ε is the real one: sensitivity and noise are read off samples of what clients and server release."""

from dataclasses import replace
from math import exp, sqrt
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import fedlin
from fedlin import innovation, privacy, simulate, top_k
from fedlin.compressors import Compressor
from fedlin.core import Algorithm, Central
from fedlin.engines.keys import phase_keys
from fedlin.engines.local import make_local
from fedlin.errors import ArgumentError, UnknownError
from fedlin.payloads import Dense, decode
from fedlin.precision import precision
from quadratics import DIM, TAU, X0, problem

CLIP, NOISE, SAMPLES = 0.5, 1.5, 20_000
LOCAL = privacy.gaussian(CLIP, NOISE)
CENTRAL = privacy.gaussian(CLIP, NOISE, where="central")
TOLERANCE = 6 / sqrt(SAMPLES)  # a standard deviation estimated from so many samples is off by less
METHODS = [
    fedlin.fedpaq(LOCAL),
    fedlin.fedpaq(CENTRAL),
    fedlin.fedlin(uplink=LOCAL, model_uplink=LOCAL),
    fedlin.fedlin(uplink=CENTRAL, model_uplink=CENTRAL),
    fedlin.fedlin(uplink=innovation(LOCAL), model_uplink=innovation(LOCAL)),
    fedlin.ef21(LOCAL),
]
WEIGHTS = np.array([0.5, 0.3, 0.2])


Samples = np.ndarray[Any, Any]


def releases(algorithm: Algorithm[Any, Any]) -> list[tuple[Samples, Samples]]:
    """What leaves client 0, or the server where it adds the noise, in each phase of the first round, many times over.

    Two neighbours: client 0's gradient points one way along the first axis or the other, far beyond the clip; the
    other clients have none.
    """
    pulls = np.zeros((2, len(WEIGHTS), DIM))
    pulls[:, 0, 0] = 1e6, -1e6
    ones = np.repeat(np.eye(DIM)[None], len(WEIGHTS), axis=0)
    instances = [fedlin.problems.quadratic(ones, b) for b in pulls]
    central = any(mechanism is not None and mechanism.central for mechanism in algorithm.mechanisms)

    def once(seed: Any, everyone: Any) -> list[Any]:
        start = jnp.zeros(DIM)
        server = algorithm.init_server(start)
        clients = [algorithm.init_client(start) for _ in WEIGHTS]
        released = []
        for number, phase in enumerate(algorithm.opening or algorithm.phases):
            keys = phase_keys(seed, jnp.asarray(0), number)
            message = decode(phase.down(server))
            uploads = []
            for i, client in enumerate(clients):
                data = jax.tree.map(lambda leaf, i=i: leaf[i], everyone)
                tau, eta = jnp.asarray(3, jnp.int32), jnp.asarray(0.5)
                key = keys.client(jnp.asarray(i))
                local, _ = make_local(instances[0].objective, None, data, None, tau, eta, key, keys.shared)
                clients[i], upload = phase.client(client, message, local)
                uploads.append(decode(upload))
            mean = jnp.tensordot(jnp.asarray(WEIGHTS), jnp.stack(uploads), 1)
            one, largest = jnp.ones(()), jnp.asarray(WEIGHTS.max())
            before = server
            server = phase.server(server, mean, Central(one, keys.server, keys.shared, one, largest))
            left_server = server.g if getattr(server, "g", None) is not None else server.x - before.x
            released.append(decode(left_server) if central else uploads[0])
        return released

    with precision(np.float64):
        sample = jax.jit(jax.vmap(once, in_axes=(0, None)))
        keys = jax.vmap(jax.random.key)(jnp.arange(SAMPLES))
        found = [sample(keys, jax.device_put(instance.data)) for instance in instances]
        return [(np.asarray(one), np.asarray(other)) for one, other in zip(*found, strict=True)]


def check_release(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], noise: float) -> None:
    """Two neighbours' releases lie at most 1/z standard deviations apart, with equal noise in all directions."""
    spread = np.vstack([one - one.mean(axis=0), other - other.mean(axis=0)])
    deviation = np.sqrt(np.linalg.eigvalsh(np.cov(spread.T)))
    apart = float(np.linalg.norm(one.mean(axis=0) - other.mean(axis=0)))
    assert deviation.max() < (1 + 2 * TOLERANCE) * deviation.min()
    assert apart <= ((1 + TOLERANCE) / noise + TOLERANCE) * deviation.min()


@pytest.mark.parametrize("algorithm", METHODS, ids=lambda a: a.name)
def test_neighbours_are_as_hard_to_tell_apart_as_stated(algorithm: Algorithm[Any, Any]) -> None:
    for one, other in releases(algorithm):
        check_release(one, other, NOISE)


def test_the_statement_is_tight() -> None:
    """Opposite clients really are 1/z apart: the noise is not larger than it must be."""
    ((one, other),) = releases(fedlin.fedpaq(LOCAL))
    apart = np.linalg.norm(one.mean(axis=0) - other.mean(axis=0)) / one.std(axis=0).mean()
    assert apart == pytest.approx(1 / NOISE, rel=2 * TOLERANCE)


def broken(clip: float, noise: float) -> Compressor:
    """Says what `LOCAL` says, and does something else."""

    def encode(key: Any, vector: Any) -> Any:
        norm = jnp.linalg.norm(vector)
        bounded = vector * jnp.minimum(1, clip / jnp.where(norm > 0, norm, 1))
        return Dense(bounded + noise * jax.random.normal(key, vector.shape, vector.dtype))

    return replace(LOCAL, name=f"broken({clip}, {noise})", encode=encode)


@pytest.mark.parametrize(
    ("clip", "noise"), [(1.2 * CLIP, 2 * CLIP * NOISE), (np.inf, 2 * CLIP * NOISE), (CLIP, CLIP * NOISE), (CLIP, 0.0)]
)
def test_a_wrong_clip_or_noise_is_found(clip: float, noise: float) -> None:
    ((one, other),) = releases(fedlin.fedpaq(broken(clip, noise)))
    with pytest.raises(AssertionError):
        check_release(one, other, NOISE)


def test_the_engine_releases_the_same_noise() -> None:
    """A round of `simulate` on many seeds: the mean's noise is scaled by the largest weight of those who answer.

    It is added to what the same clip gives without noise.
    """
    instance = problem().weighted(np.arange(1.0, 1 + len(TAU)))
    runs = fedlin.simulate_many(fedlin.fedpaq(CENTRAL), instance, fedlin.Plan(2, 0.01), 1, seeds=list(range(4000)))
    moves = np.stack([run.x for run in runs])
    largest = len(TAU) / sum(range(1, 1 + len(TAU)))
    deviation = 2 * CLIP * NOISE * largest
    assert moves.std(axis=0).mean() == pytest.approx(deviation, rel=6 / sqrt(4000))
    silent = fedlin.fedpaq(privacy.gaussian(CLIP, 1e-12, where="central"))
    without = simulate(silent, instance, fedlin.Plan(2, 0.01), 1).x
    np.testing.assert_allclose(moves.mean(axis=0), without, rtol=0, atol=6 * deviation / sqrt(4000))


@pytest.mark.parametrize("rounds", [1, 7, 300])
def test_epsilon_solves_the_gaussian_mechanism_s_equation(rounds: int) -> None:
    """δ = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ) with μ = √(2 · rounds)/z for FedLin's two uploads a round."""
    mu = sqrt(2 * rounds) / 12.0
    delta = 1e-6

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)) - delta

    quiet = privacy.gaussian(1.0, 12.0)
    found = privacy.account(fedlin.fedlin(uplink=quiet, model_uplink=quiet), rounds, delta=delta)
    assert found.epsilon == pytest.approx(brentq(excess, 1e-9, 50.0), rel=1e-6)
    assert found.releases == 2 * rounds
    assert privacy.noise_for(found.epsilon, rounds=rounds, delta=delta, phases=2) == pytest.approx(12.0, rel=1e-6)


def test_drawn_clients_give_away_less_and_only_with_a_trusted_server() -> None:
    quiet = privacy.gaussian(1.0, 5.0, where="central")
    central, local = fedlin.fedpaq(quiet), fedlin.fedpaq(privacy.gaussian(1.0, 5.0))
    whole = privacy.account(central, 50, delta=1e-5)
    some = privacy.account(central, 50, delta=1e-5, share=0.1, clients=1000)
    assert some.epsilon < whole.epsilon / 2
    assert privacy.account(central, 50, delta=1e-5, share=0.99, clients=1000).epsilon <= whole.epsilon
    assert privacy.account(local, 50, delta=1e-5, share=0.1, clients=1000).epsilon == whole.epsilon


def test_what_is_not_noised_is_not_private() -> None:
    with pytest.raises(UnknownError, match=r"not private.*model"):
        privacy.account(fedlin.fedlin(uplink=LOCAL), 10, delta=1e-5)
    with pytest.raises(UnknownError, match="not private"):
        privacy.account(fedlin.fedavg(), 10, delta=1e-5)


def test_the_first_round_is_private_too() -> None:
    """It is sent in full, and still clipped and noised."""
    sparse = privacy.gaussian(CLIP, NOISE, compressor=top_k(1))
    method = fedlin.fedlin(uplink=sparse, model_uplink=sparse)
    assert method.opening is not None
    for one, other in releases(method):
        check_release(one, other, NOISE)
    assert fedlin.fedlin(uplink=LOCAL, model_uplink=LOCAL).opening is None


def test_noise_lasts_on_the_server_only_where_no_memory_adds_it_up() -> None:
    with pytest.raises(ArgumentError, match="round after round"):
        innovation(CENTRAL)
    with pytest.raises(ArgumentError, match="take it back"):
        fedlin.error_feedback(LOCAL)
    with pytest.raises(ArgumentError, match="uplink"):
        simulate(fedlin.fedlin(downlink=CENTRAL), problem(), fedlin.Plan(TAU, 0.01), 1)


def test_clipped_changes_lose_the_bias_that_clipped_gradients_keep() -> None:
    """With next to no noise, a clip below the gradients at x* stops plain links away from x*, and not innovations."""
    instance = problem()
    tight = privacy.gaussian(0.3, 1e-9)
    floor = [
        simulate(fedlin.fedlin(uplink=link), instance, fedlin.Plan(TAU, 0.02 / TAU), 4000, x0=X0).distance[-1]
        for link in (fedlin.plain(tight), innovation(tight))
    ]
    assert floor[0] > 1e-3
    assert floor[1] < 1e-12


def test_the_servers_noise_has_mean_zero_and_the_spread_that_is_accounted_for() -> None:
    """N(0, (2cσ max w_i)²) on every entry; 10,000 entries show both to five standard errors."""
    key, one, largest = jax.random.key(0), jnp.ones(()), jnp.full((), 0.25)
    noise, _ = fedlin.plain(CENTRAL).receive(None, jnp.zeros(10_000), Central(one, key, key, one, largest))
    spread = 2 * CLIP * NOISE * 0.25
    assert abs(float(jnp.mean(noise))) <= 5 * spread / 100
    np.testing.assert_allclose(jnp.std(noise), spread, rtol=5 / np.sqrt(2 * 10_000))
