"""What users add outside the package, a method, a compressor, a link, a wrapper: held to the package's own contract."""

from importlib.util import module_from_spec, spec_from_file_location
from math import sqrt
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedlin
from contract import Check, Row, each_check
from fedlin.core import Algorithm
from fedlin.engines.federation import wire
from fedlin.errors import WireError
from fedlin.payloads import is_payload, size
from fedlin.precision import precision
from fedlin.problems.problem import Problem
from method_rows import DRAWS, FROM_THE_START, one_large_step
from quadratics import DIM, X0, assert_close, plan, problem

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> Any:
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NEW_METHOD, NEW_COMPRESSOR, NEW_LINK, NEW_WRAPPER = (
    load(f"new_{kind}") for kind in ("algorithm", "compressor", "link", "wrapper")
)
TERNARY = NEW_COMPRESSOR.ternary()


def differences(instance: Problem) -> fedlin.Plan:
    return fedlin.theory.diana(instance, sqrt(DIM) - 1)


def momentum_around_a_wrapped_method() -> Algorithm[Any, Any]:
    made: Algorithm[Any, Any] = NEW_WRAPPER.momentum(fedlin.clipped(fedlin.fedlin(), 50.0), 0.3)
    return made


@each_check(
    [
        Row(NEW_METHOD.accelerated, {"momentum": 0.4}, "converges", one_large_step),
        Row(
            fedlin.diana,
            {"compressor": TERNARY, "alpha": 1 / sqrt(DIM)},
            "converges",
            differences,
            draws=True,
            fails=FROM_THE_START,
        ),
        Row(
            fedlin.fedlin,
            {"uplink": NEW_LINK.ef_bv(fedlin.rand_k(2), 0.8, 0.9)},
            "converges",
            draws=True,
            rounds=800,
            fails=DRAWS,
        ),
        Row(momentum_around_a_wrapped_method, {}, "converges"),
    ]
)
def test_contract(check: Check, row: Row) -> None:
    check(row)


# The compressor and its payload.


def encoded(vector: Any, key: int = 0) -> Any:
    with precision(np.float64):
        return jax.tree.map(np.asarray, jax.jit(TERNARY.encode)(jax.random.key(key), jnp.asarray(vector)))


@pytest.mark.parametrize("dim", [1, 4, 5, 11])
def test_ternary_numbers_are_unbiased_and_five_to_a_byte(dim: int) -> None:
    vector = np.random.default_rng(dim).standard_normal(dim)
    with precision(np.float64):
        keys = jax.random.split(jax.random.key(0), 20_000)
        draws = np.asarray(jax.vmap(lambda key: TERNARY(key, jnp.asarray(vector)))(keys))
    assert set(np.unique(np.abs(draws))) <= {0.0, np.max(np.abs(vector))}
    np.testing.assert_allclose(draws.mean(axis=0), vector, atol=5 * np.max(np.abs(vector)) / sqrt(20_000))
    error = np.mean(np.sum((draws - vector) ** 2, axis=1))
    exact = np.max(np.abs(vector)) * np.sum(np.abs(vector)) - vector @ vector
    assert error == pytest.approx(exact, rel=0.05)
    assert exact <= TERNARY.omega(dim) * (vector @ vector) * (1 + 1e-12)
    assert size(encoded(vector)) == (8 + -(-dim // 5), 0)


def test_a_payload_of_ones_own_is_validated_on_the_wire() -> None:
    payload: Any = encoded(np.array([1.0, -2.0, 0.5, 0.0, 2.0, 1.0]))
    assert [is_payload(part) for part in (payload, payload.digits)] == [True, False]
    body = wire.pack(payload)
    np.testing.assert_array_equal(wire.unpack(body, payload).digits, payload.digits)
    with pytest.raises(WireError, match="243 or more"):
        wire.unpack(body[:-1] + bytes([243]), payload)


# The link.


@pytest.mark.parametrize(("lam", "nu", "known"), [(1.0, 1.0, "innovation"), (0.4, 1.0, "shifted")])
def test_a_link_of_ones_own_reduces_to_known_ones(lam: float, nu: float, known: str) -> None:
    pick = fedlin.top_k(2)
    expected = fedlin.innovation(pick) if known == "innovation" else fedlin.shifted(pick, lam)
    own, other = (
        fedlin.simulate(fedlin.fedlin(uplink=link), problem(), plan(), 12, x0=X0).iterates
        for link in (NEW_LINK.ef_bv(pick, lam, nu), expected)
    )
    assert_close(own, other, 1e-13)


# The wrapper.


def test_a_wrapper_of_ones_own_is_optax_with_momentum() -> None:
    methods = (
        NEW_WRAPPER.momentum(fedlin.fedavg(), 0.6),
        fedlin.server_optimizer(fedlin.fedavg(), optax.sgd(1.0, momentum=0.6)),
    )
    own, other = (fedlin.simulate(method, problem(), plan(), 12, x0=X0).iterates for method in methods)
    assert_close(own, other, 1e-13)
