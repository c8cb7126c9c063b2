"""Proposition 2: FedNova is gradient descent on a surrogate of f."""

from fedlin import algorithms, theory
from fedlin.claims.claim import Outcome, Setting, claim
from fedlin.claims.common.instances import draws
from fedlin.claims.common.method_faults import any_fault
from fedlin.claims.common.surrogates import CLIENTS, Pair, judge, random_clients, shares
from fedlin.plan import draw_steps

FASTEST = (1, 2, 7, 50)


@claim(
    "prop2",
    order=20,
    title="FedNova minimises a surrogate",
    section="Why the others fall short",
    statement="On quadratics a round of FedNova is a step η of gradient descent on f̃, whose clients have Hessians "
    "Q_i A_i with Q_i = α_i Σ_{l<τ_i} (I - ηA_i)^l, α_i = mean(τ)/τ_i, and the minimisers of f_i. The minimisers of "
    "f̃ and f agree where τ_i = 1, not in general.",
    wrong=any_fault(),
)
def check(setting: Setting) -> Outcome:
    """Both trajectories side by side over 50 rounds, for τ_i random up to 50 and steps up to 2/L."""
    pairs = []
    for draw in draws(setting):
        problem = random_clients(draw)
        for fastest in FASTEST:
            tau = draw_steps(CLIENTS, 1, fastest, seed=draw)
            for share in shares(draw):
                eta = share / problem.smoothness
                surrogate = theory.surrogate.fednova(problem, tau, eta)
                name, method = f"τ up to {fastest}", setting.tested(algorithms.fednova())
                pairs.append(Pair(draw, name, method, problem, surrogate, tau, eta, fastest == 1))
    return judge(pairs, setting)
