"""Proposition 2: FedNova is gradient descent on a surrogate of f."""

import numpy as np

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.draws import draws
from fedlin.claims.common.surrogates import CLIENTS, Pair, judge, random_clients
from fedlin.plan import draw_steps

FASTEST = (2, 7, 50)


@claim(
    "prop2",
    order=20,
    title="FedNova minimises a surrogate",
    section="Why the others fall short",
    statement="On quadratics a round of FedNova is a step η of gradient descent on f̃, whose clients have Hessians "
    "Q_i A_i with Q_i = α_i Σ_{l<τ_i} (I - ηA_i)^l, α_i = mean(τ)/τ_i, and the minimisers of f_i.",
)
def check(setting: Setting) -> Outcome:
    """Both trajectories side by side over 50 rounds, for τ_i random up to 2, 7 and 50 and a random η ∈ (0, 1/L)."""
    pairs = []
    for draw in draws(setting):
        problem = random_clients(draw)
        eta = np.random.default_rng(draw).uniform(0.1, 1) / problem.smoothness
        for fastest in FASTEST:
            tau = draw_steps(CLIENTS, 1, fastest, seed=draw)
            surrogate = theory.surrogate.fednova(problem, tau, eta)
            pairs.append(Pair(draw, f"τ up to {fastest}", algorithms.fednova(), problem, surrogate, tau, eta))
    return judge(pairs, setting)
