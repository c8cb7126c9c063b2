"""log Σ_c p_c exp(u_c) - Σ_c p_c u_c: how far the log-partition lies above its tangent, without cancellation.

It is the Bregman divergence of the logistic and softmax losses, so the gap f(x) - f* stays exact far
below the rounding of f itself.
"""

import jax
import jax.numpy as jnp

_TERMS = 12


def curvature_of_exp(v: jax.Array) -> jax.Array:
    """exp(v) - 1 - v, which is never negative; a series where the difference would cancel."""
    small = jnp.abs(v) < 0.1
    w = jnp.where(small, v, 0)
    series = jnp.zeros_like(w)
    for order in range(_TERMS, 1, -1):
        series = (series * w + 1) / order  # Horner on Σ w^{n-2}/n!, times w below
    series = series * w**2
    return jnp.where(small, series, jnp.expm1(v) - v)


def above_tangent(p: jax.Array, u: jax.Array) -> jax.Array:
    """log Σ p_c exp(u_c) - Σ p_c u_c over the last axis, for probabilities p."""
    v = u - jnp.sum(p * u, axis=-1, keepdims=True)
    near = jnp.max(jnp.abs(v), axis=-1) < 1
    gentle = jnp.where(near[..., None], v, 0)
    exact = jnp.log1p(jnp.sum(p * curvature_of_exp(gentle), axis=-1))
    far = jax.nn.logsumexp(v, b=p, axis=-1)
    return jnp.where(near, exact, far)
