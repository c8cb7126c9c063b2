"""log Σ_c p_c exp(u_c) - Σ_c p_c u_c: how far the log-partition lies above its tangent, without cancellation.

It is the Bregman divergence of the logistic and softmax losses, so the gap f(x) - f* stays exact far
below the rounding of f itself. With v = u - Σ p_c u_c it equals log(1 + Σ p_c (exp(v_c) - 1 - v_c)), a sum
of terms none of which is negative.
"""

import jax
import jax.numpy as jnp

_SMALL = 0.03  # below this the series to order 7 is exact to rounding, above it the difference is
_FAR = 80.0  # beyond this exp would overflow in float32, and nothing cancels


def above_tangent(p: jax.Array, u: jax.Array) -> jax.Array:
    """The height over the last axis, for probabilities p."""
    v = u - jnp.sum(p * u, axis=-1, keepdims=True)
    near = jnp.max(jnp.abs(v), axis=-1) < _FAR
    inside = jnp.log1p(jnp.sum(p * exp_above_tangent(jnp.where(near[..., None], v, 0)), axis=-1))
    return jnp.where(near, inside, jax.nn.logsumexp(v, b=p, axis=-1))


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
    return jnp.where(jnp.abs(v) < _SMALL, _exp_series(v), jnp.expm1(v) - v)


def _exp_series(v: jax.Array) -> jax.Array:
    """exp(v) - 1 - v to order 7."""
    return v * v / 2 * (1 + v / 3 * (1 + v / 4 * (1 + v / 5 * (1 + v / 6 * (1 + v / 7)))))
