"""Symbolic vectors: their arithmetic is that of arrays, and their means and products those of many clients."""

from fractions import Fraction

import numpy as np
import pytest

from fedlin.theory.exact.symbols import Array, ExactNumber, Space, SymbolicVector, exact, inner, squared

HALF = Fraction(1, 2)


def test_arithmetic_is_linear_and_exact() -> None:
    space = Space([Fraction(1)], [2])
    x, v = space.shared(), space.of_group(0)
    assert 2 * x - x - x == space.origin
    assert (x + v) / 4 * 4 == x + v
    assert -(x - v) == v - x
    assert 0 + x == x == x - 0.0
    # A tenth is a tenth, so that ten of them are one.
    assert 10 * (0.1 * x) == x
    assert np.float64(0.5) * x == x / 2


def test_no_number_but_zero_is_a_vector() -> None:
    x = Space([Fraction(1)], [2]).shared()
    with pytest.raises(TypeError):
        x + 1


def test_numbers_are_what_they_are_printed_as() -> None:
    assert exact(0.1) == Fraction(1, 10)
    assert exact(np.float64(1e-3)) == Fraction(1, 1000)
    assert ExactNumber(3).astype(np.float64) == 3
    assert ExactNumber(3).astype(np.float32).dtype == np.float32


def numeric(vector: SymbolicVector, shared: Array, own: Array) -> Array:
    """A group's vector for each of its clients, from numbers for the basis vectors: (clients, dim)."""
    total = np.zeros((own.shape[0], shared.shape[1]))
    for (gram, row), value in vector.coefficients.items():
        total += float(value) * (shared[row] if gram == 0 else own[:, row])
    return total


def test_means_and_mean_products_are_those_of_the_clients() -> None:
    clients, dim = 5, 3
    space = Space([Fraction(1)], [clients])
    x, u, v = space.shared(), space.of_group(0), space.of_group(0)
    draw = np.random.default_rng(0)
    shared = draw.standard_normal((space.sizes[0], dim))
    own = draw.standard_normal((clients, space.sizes[1], dim))
    own -= own.mean(axis=0)
    a, b = x - 2 * u + v / 3, u + v
    numbers = [numeric(vector, shared, own) for vector in (a, b)]
    np.testing.assert_allclose(numeric(space.mean([a]), shared, own)[0], numbers[0].mean(axis=0))
    # The products count each pair of basis vectors once, the deviations' as means over the clients.
    grams = [shared @ shared.T, np.einsum("cid,cjd->ij", own, own) / clients]
    form = inner(a, b) + HALF * squared(b)
    total = sum(
        float(entry) * grams[gram][i, j]
        for gram in range(2)
        for i, row in enumerate(form.exact_matrix(gram, space.sizes[gram]))
        for j, entry in enumerate(row)
    )
    expected = np.mean(np.sum(numbers[0] * numbers[1], axis=1) + np.sum(numbers[1] ** 2, axis=1) / 2)
    assert total == pytest.approx(expected)


def test_a_client_alone_has_no_deviation() -> None:
    space = Space([HALF, HALF], [1, 3])
    assert space.of_group(0).part(1) == space.origin
    assert space.of_group(1).part(2) != space.origin


def test_vectors_of_mean_zero_have_it_whatever_the_weights() -> None:
    space = Space([Fraction(1, 5), Fraction(3, 10), HALF], [1, 2, 3])
    assert space.mean(space.of_mean_zero()) == space.origin


def test_coordinates_say_where_a_vector_is_expected() -> None:
    space = Space([Fraction(1)], [1])
    x = space.shared(scale=4.0)
    space.shared(near=x / 2)
    np.testing.assert_allclose(space.coordinates(0), [[4.0, 0.0], [2.0, 1.0]])
