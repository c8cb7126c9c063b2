"""log Σ_c p_c exp(u_c) - Σ_c p_c u_c: how far the log-partition lies above its tangent, without cancellation.

It is the Bregman divergence of the logistic and softmax losses, so the gap f(x) - f* stays exact far
below the rounding of f itself. With v = u - Σ p_c u_c it equals log(1 + Σ p_c (exp(v_c) - 1 - v_c)), a sum
of terms none of which is negative.
"""

import math

import jax
import jax.numpy as jnp

_SMALL = 0.5  # below this the series to order 15 is exact to rounding, above it the difference is, but for a digit
_ORDER = 15
_FAR = 80.0  # beyond this exp would overflow in float32, and nothing cancels


def above_tangent(there: jax.Array, here: jax.Array) -> jax.Array:
    """The height over the first axis at the scores `here`, with p the probabilities of the scores `there`.

    Every round measures every row, so a row takes one slow function a class and one more; what depends on `there` alone
    is computed once. Beyond `_FAR` the largest p_c exp(v_c) is taken out of the logarithm.
    """
    log_p = jax.nn.log_softmax(there, axis=0)
    p, u = jnp.exp(log_p), here - there
    v = u - jnp.sum(p * u, axis=0, keepdims=True)
    near = jnp.max(jnp.abs(v), axis=0, keepdims=True) < _FAR
    raised = v + log_p
    top = jnp.where(near, 0, jnp.max(raised, axis=0, keepdims=True))
    grown = jnp.exp(jnp.where(near, v, raised - top))
    terms = jnp.where(near, p * jnp.where(jnp.abs(v) < _SMALL, _exp_series(v), grown - 1 - v), grown)
    return jnp.sum(top + jnp.log1p(jnp.sum(terms, axis=0, keepdims=True) - jnp.where(near, 0, 1)), axis=0)


def above_tangent_binary(here: jax.Array, there: jax.Array) -> jax.Array:
    """The same for two outcomes: log(1 + exp(-m)) at the margin `here`, above its tangent at `there`.

    With q the rarer outcome's probability and t how far its score moves it is log(1 + q (exp(t) - 1)) - q t. Every
    round measures every row, so a row takes two slow functions; what depends on `there` alone is computed once.
    """
    size = jnp.abs(there)
    q, log_q = jax.nn.sigmoid(-size), jax.nn.log_sigmoid(-size)
    t = jnp.where(there >= 0, there - here, here - there)
    small, far = jnp.abs(t) < _SMALL, t > _FAR
    grown = jnp.expm1(jnp.where(far, size - t, t))
    rise = jnp.where(far, 1 + grown, q * grown)  # far away q exp(t) is taken out of the logarithm
    rise = jnp.where(small, (1 - q) * _exp_series(-q * t) + q * _exp_series((1 - q) * t), rise)
    return jnp.log1p(rise) + jnp.where(small, 0, jnp.where(far, log_q + t, 0) - q * t)


def exp_above_tangent(v: jax.Array) -> jax.Array:
    """exp(v) - 1 - v, by its series where the difference would cancel."""
    return jnp.where(jnp.abs(v) < _SMALL, _exp_series(v), jnp.exp(v) - 1 - v)


def _exp_series(v: jax.Array) -> jax.Array:
    """exp(v) - 1 - v to order `_ORDER`; products alone, since a division takes as long as several."""
    total = jnp.full_like(v, 1 / math.factorial(_ORDER))
    for power in range(_ORDER - 1, 1, -1):
        total = total * v + 1 / math.factorial(power)
    return v * v * total
