"""A new link: EF-BV, between EF21's error feedback and DIANA's variance reduction.

L. Condat, K. Yi, P. Richtárik, EF-BV: A Unified Theory of Error Feedback and Variance Reduction Mechanisms for Biased
and Unbiased Compression in Distributed Optimization, NeurIPS 2022, Algorithm 1: with p = C(v - h), the estimate is
h + νp and both ends take h ← h + λp. It is EF21 for λ = ν = 1 and DIANA for ν = 1, λ = α.
"""

import argparse
from functools import cache

import jax.numpy as jnp

import fedlin
from fedlin.compressors import Compressor
from fedlin.core import Central, Key, Vector
from fedlin.links import Link, Memory
from fedlin.payloads import Payload


@cache  # equal arguments give the same object, so that nothing compiles twice
def ef_bv(compressor: Compressor, lam: float, nu: float) -> Link:
    """p = C(v - h), v̂ = h + νp, h ← h + λp at both ends."""

    def send(key: Key, h: Memory, value: Vector) -> tuple[Payload, Memory]:
        payload = compressor.encode(key, value - h)
        return payload, h + lam * payload.decode()

    def receive(h: Memory, message: Vector, central: Central | None = None) -> tuple[Vector, Memory]:
        # At the server h is the mean of all clients' memories, and those of the absent have not moved.
        share = 1.0 if central is None else central.participation
        return h + nu * message, h + lam * share * message

    return Link(
        f"ef_bv({compressor}, lam={lam}, nu={nu})",
        send,
        receive,
        sender=jnp.zeros_like,
        receiver=jnp.zeros_like,
        check=compressor.check,
        tracks=True,  # the receiver remembers, so it must not miss a message
        full=None if compressor.lossless else ef_bv(compressor.dense, lam, 1.0),  # how a first round is sent: v̂ = v
    )


def main() -> None:
    """On FedLin's gradients: RAND-k beside the links it lies between."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    problem = fedlin.problems.least_squares(clients=8, dim=20, samples=50)
    plan, some = fedlin.Plan.scaled(5, 0.1 / problem.smoothness), fedlin.rand_k(5)
    links = {
        "innovation": fedlin.innovation(some),
        "EF-BV": ef_bv(some, 0.8, 0.9),
        "shifted": fedlin.shifted(some, 0.8),
    }
    for name, link in links.items():
        result = fedlin.simulate(fedlin.fedlin(uplink=link), problem, plan, rounds, seed=1)
        print(f"{name}: gap {result.gap[-1]:.1e} after {result.rounds} rounds, {result.bytes_up[-1]:,} bytes up")


if __name__ == "__main__":
    main()
