"""Reference federated algorithms on quadratics, in plain NumPy, for the tests to compare against.

Every function transcribes published equations, one statement per line of the algorithm, for client losses

    f_i(x) = ½ xᵀ A_i x − b_iᵀ x,        f(x) = (1/m) Σ_i f_i(x),

with symmetric positive definite A_i, exact gradients and uniform weights. They are written naively on
purpose: explicit Python loops over rounds, clients and local steps, no batching, no closed forms for the
local iterations, and no code shared between algorithms beyond the gradient and the TOP-k operator. They
import nothing from the package under test, so that an error there cannot cancel against the same error here.
Speed does not matter: the problems are tiny.

Shapes: A (m, d, d), b (m, d), tau (m,) local steps, eta (m,) local step sizes, x0 (d,). Each algorithm
returns the server models as an array (rounds + 1, d) whose row 0 is x0 and whose row t is the model after
t rounds.

Sources: FedLin, FedProx, FedNova, FedAvg and FedSplit as stated in the FedLin paper (Mitra, Jaafar, Pappas
and Hassani, 2021); SCAFFOLD from Algorithm 1 of Karimireddy et al. (2020); FedCOMGATE from Algorithm 3 of
Haddadpour et al. (2021); K-GT from Algorithm 1 of Liu et al. (2023); FedAc from Algorithm 1 of Yuan and Ma
(2020); S-Local-SVRG from Gorbunov et al. (2021).
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Array = NDArray[np.float64]
Integers = NDArray[np.integer]


def gradient(A_i: Matrix, b_i: Vector, x: Vector) -> Vector:
    """∇f_i(x) = A_i x − b_i."""
    result: Vector = A_i @ x - b_i
    return result


def top_k(v: Vector, k: int) -> Vector:
    """v with its k entries of largest magnitude kept and the others zero; a tie goes to the lower index."""
    kept = np.zeros_like(v)
    remaining = list(range(len(v)))
    for _ in range(min(k, len(v))):
        best = remaining[0]
        for j in remaining:
            if abs(v[j]) > abs(v[best]):  # strict, so an equal entry further on does not displace it
                best = j
        kept[best] = v[best]
        remaining.remove(best)
    return kept


def fedlin(
    A: Array,
    b: Array,
    tau: Integers,
    eta: Vector,
    x0: Vector,
    rounds: int,
    client_k: int | None = None,
    server_k: int | None = None,
    client_feedback: bool = True,
    server_feedback: bool = True,
) -> Array:
    """FedLin (Algorithm 1), with TOP-k at the clients, the server, both or neither.

    g_1 = ∇f(x̄_1) is exact and ρ_{i,1} = e_1 = 0. Without feedback on a side, that side compresses its
    message alone and its error memory stays zero.
    """
    m = len(A)
    d = len(x0)
    x_bar = x0.copy()
    models = [x_bar]

    rho = [np.zeros(d) for _ in range(m)]
    e = np.zeros(d)
    g = np.zeros(d)
    for i in range(m):
        g = g + gradient(A[i], b[i], x_bar) / m

    for _ in range(rounds):
        # Lines 3-8: local training, corrected by the gradients at the start of the round.
        total = np.zeros(d)
        for i in range(m):
            x = x_bar.copy()
            for _ in range(int(tau[i])):
                x = x - eta[i] * (gradient(A[i], b[i], x) - gradient(A[i], b[i], x_bar) + g)
            total = total + x
        x_bar = total / m  # line 9: x̄_{t+1}

        # Lines 10-13: the clients' gradients at the new model, sparsified.
        h_total = np.zeros(d)
        for i in range(m):
            message = rho[i] + gradient(A[i], b[i], x_bar)
            h = message if client_k is None else top_k(message, client_k)
            if client_feedback:
                rho[i] = message - h
            h_total = h_total + h

        # Lines 14-15: the server's aggregate, sparsified.
        aggregate = e + h_total / m
        g = aggregate if server_k is None else top_k(aggregate, server_k)
        if server_feedback:
            e = aggregate - g

        models.append(x_bar)
    return np.array(models)


def fedprox(A: Array, b: Array, tau: Integers, eta: Vector, x0: Vector, rounds: int, beta: float) -> Array:
    """FedProx: local gradient steps on f_i(x) + (β/2)‖x − x̄_t‖², then a plain average of the models."""
    m = len(A)
    x_bar = x0.copy()
    models = [x_bar]
    for _ in range(rounds):
        total = np.zeros(len(x0))
        for i in range(m):
            x = x_bar.copy()
            for _ in range(int(tau[i])):
                x = x - eta[i] * (gradient(A[i], b[i], x) + beta * (x - x_bar))
            total = total + x
        x_bar = total / m
        models.append(x_bar)
    return np.array(models)


def fedavg(A: Array, b: Array, tau: Integers, eta: Vector, x0: Vector, rounds: int) -> Array:
    """FedAvg: FedProx with β = 0."""
    return fedprox(A, b, tau, eta, x0, rounds, beta=0.0)


def fednova(A: Array, b: Array, tau: Integers, eta_scalar: float, x0: Vector, rounds: int) -> Array:
    """FedNova: each client's accumulated gradient is scaled by α_i = τ_eff / τ_i, with τ_eff the mean of τ.

    The step size is one number, common to all clients and to the server's update.
    """
    m = len(A)
    tau_eff = 0.0
    for i in range(m):
        tau_eff = tau_eff + int(tau[i]) / m
    x_bar = x0.copy()
    models = [x_bar]
    for _ in range(rounds):
        total = np.zeros(len(x0))
        for i in range(m):
            alpha = tau_eff / int(tau[i])
            x = x_bar.copy()
            accumulated = np.zeros(len(x0))
            for _ in range(int(tau[i])):
                local_gradient = gradient(A[i], b[i], x)
                accumulated = accumulated + local_gradient
                x = x - eta_scalar * local_gradient
            total = total + alpha * accumulated
        x_bar = x_bar - eta_scalar / m * total
        models.append(x_bar)
    return np.array(models)


def scaffold(
    A: Array,
    b: Array,
    tau: Integers,
    eta: Vector,
    x0: Vector,
    rounds: int,
    option: int = 2,
    server_step: float = 1.0,
    cohorts: Sequence[Sequence[int]] | None = None,
) -> Array:
    """SCAFFOLD from zero control variates, with option I (1) or II (2) for the clients' new variates.

    `cohorts[t]` lists the clients taking part in round t; all of them do when it is not given. Clients left
    out keep their control variates.
    """
    if option not in (1, 2):
        raise ValueError(f"option must be 1 or 2, not {option}")
    n = len(A)
    d = len(x0)
    x = x0.copy()
    models = [x]
    c = np.zeros(d)
    c_local = [np.zeros(d) for _ in range(n)]
    for t in range(rounds):
        cohort = list(range(n)) if cohorts is None else list(cohorts[t])
        sum_dy = np.zeros(d)
        sum_dc = np.zeros(d)
        for i in cohort:
            y = x.copy()
            for _ in range(int(tau[i])):
                y = y - eta[i] * (gradient(A[i], b[i], y) - c_local[i] + c)
            option_two = c_local[i] - c + (x - y) / (int(tau[i]) * eta[i])
            c_plus = gradient(A[i], b[i], x) if option == 1 else option_two
            sum_dy = sum_dy + (y - x)
            sum_dc = sum_dc + (c_plus - c_local[i])
            c_local[i] = c_plus
        delta_x = sum_dy / len(cohort)
        delta_c = sum_dc / len(cohort)
        x = x + server_step * delta_x
        c = c + len(cohort) / n * delta_c
        models.append(x)
    return np.array(models)


def fedsplit(
    A: Array,
    b: Array,
    s: float,
    x0: Vector,
    rounds: int,
    steps: int | None = None,
    inner_step: float | None = None,
    start: str = "u",
) -> Array:
    """FedSplit with proximal step s.

    With `steps` None the proximal operator is exact: a linear solve. Otherwise it is `steps` gradient steps
    of size `inner_step` on h_i(x) = f_i(x) + ‖u − x‖²/(2s), from u = 2x̄ − z_i (`start` "u") or from the
    server model x̄ ("model").
    """
    if start not in ("u", "model"):
        raise ValueError(f"start must be 'u' or 'model', not {start!r}")
    m = len(A)
    d = len(x0)
    x_bar = x0.copy()
    models = [x_bar]
    z = [x0.copy() for _ in range(m)]
    for _ in range(rounds):
        total = np.zeros(d)
        for i in range(m):
            u = 2.0 * x_bar - z[i]
            if steps is None:
                # ∇h_i(y) = A_i y − b_i + (y − u)/s = 0
                y = np.linalg.solve(A[i] + np.eye(d) / s, b[i] + u / s)
            else:
                if inner_step is None:
                    raise ValueError("inner_step is needed when steps is given")
                y = u.copy() if start == "u" else x_bar.copy()
                for _ in range(steps):
                    y = y - inner_step * (gradient(A[i], b[i], y) + (y - u) / s)
            z[i] = z[i] + 2.0 * (y - x_bar)
            total = total + z[i]
        x_bar = total / m
        models.append(x_bar)
    return np.array(models)


def fedcomgate(
    A: Array,
    b: Array,
    tau: int,
    eta: float,
    x0: Vector,
    rounds: int,
    gamma: float,
    quantise: Callable[[int, int, Vector], Vector],
) -> Array:
    """FedCOMGATE with one τ and η for all; `quantise(r, j, v)` is device j's Q(v) in round r.

    Q is applied to (w − w_j)/(ητ) rather than to (w − w_j)/η, and Δ_q is τ times the mean of that.
    """
    m = len(A)
    w = x0.copy()
    models = [w]
    delta = [np.zeros(len(x0)) for _ in range(m)]
    for r in range(rounds):
        sent = []
        for j in range(m):
            w_j = w.copy()
            for _ in range(tau):
                d = gradient(A[j], b[j], w_j) - delta[j]
                w_j = w_j - eta * d
            sent.append(tau * quantise(r, j, (w - w_j) / (eta * tau)))
        delta_q = sum(sent) / m
        for j in range(m):
            delta[j] = delta[j] + (sent[j] - delta_q) / tau
        w = w - eta * gamma * delta_q
        models.append(w)
    return np.array(models)


def gradient_tracking(A: Array, b: Array, K: int, eta_c: float, eta_s: float, x0: Vector, rounds: int) -> Array:
    """K-GT on n nodes with the mixing matrix W = 11ᵀ/n, from c_i = −∇f_i(x0) + Σ_j ∇f_j(x0)/n."""
    n = len(A)
    W = np.full((n, n), 1.0 / n)
    X = np.array([x0.copy() for _ in range(n)])
    first = np.array([gradient(A[i], b[i], x0) for i in range(n)])
    C = np.array([-first[i] + first.mean(axis=0) for i in range(n)])
    models = [x0]
    for _ in range(rounds):
        Z = np.zeros_like(X)
        for i in range(n):
            y = X[i].copy()
            for _ in range(K):
                y = y - eta_c * (gradient(A[i], b[i], y) + C[i])
            Z[i] = (X[i] - y) / (K * eta_c)
        C = C - Z + W @ Z
        X = W @ (X - K * eta_s * eta_c * Z)
        models.append(X[0])
    return np.array(models)


def fedac(A: Array, b: Array, K: int, eta: float, mu: float, x0: Vector, rounds: int) -> Array:
    """FedAc with FedAc-I's γ, α, β; the models are the aggregated sequence at the end of each round."""
    M = len(A)
    gamma = max((eta / (mu * K)) ** 0.5, eta)
    alpha = 1.0 / (gamma * mu)
    beta = alpha + 1.0
    w = [x0.copy() for _ in range(M)]
    w_ag = [x0.copy() for _ in range(M)]
    models = [x0]
    for t in range(1, rounds * K + 1):
        for m in range(M):
            w_md = w[m] / beta + (1.0 - 1.0 / beta) * w_ag[m]
            g = gradient(A[m], b[m], w_md)
            v_ag = w_md - eta * g
            v = (1.0 - 1.0 / alpha) * w[m] + w_md / alpha - gamma * g
            w[m], w_ag[m] = v, v_ag
        if t % K == 0:
            w_mean, ag_mean = np.mean(w, axis=0), np.mean(w_ag, axis=0)
            w = [w_mean.copy() for _ in range(M)]
            w_ag = [ag_mean.copy() for _ in range(M)]
            models.append(ag_mean)
    return np.array(models)


def mean_gradient(A: Array, b: Array, x: Vector) -> Vector:
    """∇f(x), summed client by client."""
    total = np.zeros(len(x))
    for i in range(len(A)):
        total = total + gradient(A[i], b[i], x) / len(A)
    return total


def nesterov(A: Array, b: Array, eta: float, mu: float, x0: Vector, steps: int) -> Array:
    """Nesterov's method for strongly convex f with constant momentum (1 − √(ημ))/(1 + √(ημ))."""
    theta = (eta * mu) ** 0.5
    x = x0.copy()
    y = x0.copy()
    models = [x]
    for _ in range(steps):
        full_gradient = mean_gradient(A, b, y)
        following = y - eta * full_gradient
        y = following + (1.0 - theta) / (1.0 + theta) * (following - x)
        x = following
        models.append(x)
    return np.array(models)


def s_local_svrg(
    A: Array, b: Array, tau: Integers, eta: Vector, x0: Vector, rounds: int, renewed: Sequence[bool]
) -> Array:
    """S-Local-SVRG with exact gradients; in round t the reference point becomes the model where `renewed[t]`."""
    n = len(A)
    x = x0.copy()
    y = x0.copy()
    models = [x]
    for t in range(rounds):
        if renewed[t]:
            y = x.copy()
        full_gradient = mean_gradient(A, b, y)
        total = np.zeros(len(x0))
        for i in range(n):
            x_i = x.copy()
            for _ in range(int(tau[i])):
                g_i = gradient(A[i], b[i], x_i) - gradient(A[i], b[i], y) + full_gradient
                x_i = x_i - eta[i] * g_i
            total = total + x_i
        x = total / n
        models.append(x)
    return np.array(models)


def gradient_descent(A: Array, b: Array, eta: float, x0: Vector, rounds: int) -> Array:
    """Centralised gradient descent on f, one step a round."""
    x = x0.copy()
    models = [x]
    for _ in range(rounds):
        full_gradient = mean_gradient(A, b, x)
        x = x - eta * full_gradient
        models.append(x)
    return np.array(models)


def random_quadratic(seed: int, clients: int, dim: int, condition: float = 10.0) -> tuple[Array, Array]:
    """Heterogeneous (A, b): each A_i has its own random basis and eigenvalues drawn in [1, condition]."""
    rng = np.random.default_rng(seed)
    A = np.zeros((clients, dim, dim))
    b = np.zeros((clients, dim))
    for i in range(clients):
        basis, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
        eigenvalues = rng.uniform(1.0, condition, size=dim)
        matrix = basis @ np.diag(eigenvalues) @ basis.T
        A[i] = (matrix + matrix.T) / 2.0  # exactly symmetric despite rounding
        b[i] = rng.standard_normal(dim)
    return A, b
