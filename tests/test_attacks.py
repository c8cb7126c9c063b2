"""Attacks: what the attackers send, and that the honest are left alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedlin
from fedlin import attacks
from fedlin.core import Algorithm, structure
from fedlin.errors import ArgumentError
from quadratics import CLIENTS, ETA, TAU, X0, A, B, assert_close, plan, problem, robust_fedlin

Array = NDArray[Any]
LIARS = (1, 4)
HONEST = [i for i in range(CLIENTS) if i not in LIARS]


def flipped(uploads: Array) -> Array:
    return np.array([-3.0 * u if i in LIARS else u for i, u in enumerate(uploads)])


def a_little(uploads: Array) -> Array:
    centre, deviation = uploads[HONEST].mean(axis=0), uploads[HONEST].std(axis=0)
    return np.array([centre - 1.5 * deviation if i in LIARS else u for i, u in enumerate(uploads)])


def opposed(uploads: Array) -> Array:
    return np.array([-2.0 * uploads[HONEST].mean(axis=0) if i in LIARS else u for i, u in enumerate(uploads)])


FORGED: dict[str, tuple[Callable[..., Algorithm[Any, Any]], dict[str, Any], Callable[[Array], Array]]] = {
    "sign flip": (attacks.sign_flip, {"scale": 3.0}, flipped),
    "a little": (attacks.a_little_is_enough, {}, a_little),
    "inner product": (attacks.inner_product, {}, opposed),
}


@pytest.mark.parametrize("name", FORGED)
def test_attackers_send_what_the_definition_says(name: str) -> None:
    """FedLin by loops, both of whose uploads are forged."""
    attack, options, forge = FORGED[name]
    result = fedlin.simulate(attack(fedlin.fedlin(), LIARS, **options), problem(), plan(), 4, x0=X0)
    expected = robust_fedlin(4, lambda uploads: forge(uploads).mean(axis=0))
    assert_close(result.iterates, expected, 1e-10)


def test_noise_is_the_attackers_own() -> None:
    """Alone in sending noise, the attackers move the mean by its mean; the others' uploads are as they were."""
    method = fedlin.gradient_descent()
    clean = fedlin.simulate(method, problem(), plan(), 1, x0=X0).x
    moved = np.array(
        [fedlin.simulate(attacks.noise(method, LIARS, 5.0), problem(), plan(), 1, x0=X0, seed=s).x for s in range(40)]
    )
    deviation = (moved - clean).std()
    assert 0.85 < deviation / (5.0 * np.sqrt(len(LIARS)) / CLIENTS) < 1.15
    present = np.ones((1, CLIENTS))
    present[0, list(LIARS)] = 0
    options: dict[str, Any] = {"x0": X0, "participation": present}
    without = fedlin.simulate(attacks.noise(method, LIARS, 5.0), problem(), plan(), 1, **options)
    np.testing.assert_array_equal(without.x, fedlin.simulate(method, problem(), plan(), 1, **options).x)


@pytest.mark.parametrize("closed_form", [True, False])
def test_wrong_labels_are_negated_targets(closed_form: bool) -> None:
    """½xᵀAx + bᵀx in place of ½xᵀAx - bᵀx: the same run as on a problem with false targets."""
    false = np.array([-b if i in LIARS else b for i, b in enumerate(B)])
    truth = fedlin.problems.quadratic(A, false, closed_form=closed_form)
    attacked = fedlin.simulate(
        attacks.wrong_labels(fedlin.fedlin(), LIARS), problem(closed_form), plan(), 5, x0=X0, measure_every=0
    )
    expected = fedlin.simulate(fedlin.fedlin(), truth, plan(), 5, x0=X0, measure_every=0)
    assert_close(attacked.iterates, expected.iterates, 1e-11)


def test_wrong_labels_of_a_classifier() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.standard_normal((3, 20, 4)), np.where(draw.random((3, 20)) < 0.5, -1.0, 1.0)
    false = y.copy()
    false[1] *= -1
    steps = fedlin.Plan(5, 0.3)
    method = fedlin.clipped(fedlin.fedavg(), 0.2)  # whose change of every gradient is mirrored too
    attacked = fedlin.simulate(
        fedlin.clipped(attacks.wrong_labels(fedlin.fedavg(), [1]), 0.2),
        fedlin.problems.logistic(x, y, l2=0.1),
        steps,
        6,
        measure_every=0,
    )
    expected = fedlin.simulate(method, fedlin.problems.logistic(x, false, l2=0.1), steps, 6, measure_every=0)
    assert_close(attacked.iterates, expected.iterates, 1e-12)


def test_one_phase_alone_can_be_attacked() -> None:
    """Gradients that are true and moves that are flipped: FedLin's first round by a loop."""
    x = fedlin.simulate(attacks.sign_flip(fedlin.fedlin(), LIARS, phase="model"), problem(), plan(), 1, x0=X0).x
    grads = np.array([A[i] @ X0 - B[i] for i in range(CLIENTS)])
    moves = []
    for i in range(CLIENTS):
        y = X0.copy()
        for _ in range(TAU[i]):
            y = y - ETA[i] * (A[i] @ y - B[i] - grads[i] + grads.mean(axis=0))
        moves.append(y - X0)
    assert_close(x, X0 + np.array([-u if i in LIARS else u for i, u in enumerate(moves)]).mean(axis=0), 1e-11)


def test_attacks_that_differ_in_numbers_share_a_program() -> None:
    kinds = [
        attacks.sign_flip(fedlin.fedavg(), LIARS),
        attacks.noise(fedlin.fedavg(), LIARS, 1.0),
        attacks.a_little_is_enough(fedlin.fedavg(), LIARS),
        attacks.inner_product(fedlin.fedavg(), LIARS),
    ]
    assert len({structure(kind) for kind in kinds}) == 1
    assert len({kind.name for kind in kinds}) == 4


def test_attacks_add_up() -> None:
    both = attacks.sign_flip(attacks.sign_flip(fedlin.fedavg(), [1], scale=3.0), [4], scale=3.0)
    one = attacks.sign_flip(fedlin.fedavg(), LIARS, scale=3.0)
    twice, once = (fedlin.simulate(method, problem(), plan(), 3, x0=X0).x for method in (both, one))
    np.testing.assert_array_equal(twice, once)


def test_without_attackers_nothing_changes() -> None:
    for attack in (attacks.a_little_is_enough, attacks.wrong_labels):
        attacked = fedlin.simulate(attack(fedlin.fedlin(), []), problem(), plan(), 3, x0=X0)
        np.testing.assert_array_equal(
            attacked.iterates, fedlin.simulate(fedlin.fedlin(), problem(), plan(), 3, x0=X0).iterates
        )


def test_refusals() -> None:
    with pytest.raises(ArgumentError, match="attackers = 3 is not allowed"):
        attacks.sign_flip(fedlin.fedavg(), 3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"no phase of fedlin is called 'models'.*'model'"):
        attacks.sign_flip(fedlin.fedlin(), [0], phase="models")
    with pytest.raises(ArgumentError, match="attackers = -1"):
        attacks.noise(fedlin.fedavg(), [-1], 1.0)
    with pytest.raises(ArgumentError, match=r"chunk = 2.*attackers of sign_flip"):
        fedlin.simulate(attacks.sign_flip(fedlin.fedavg(), [0]), problem(), plan(), 2, chunk=2)
