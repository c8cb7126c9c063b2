"""What a server makes of the clients' uploads: their mean, or a robust mean that some false ones cannot move far.

An aggregator takes the n uploads of a phase as the rows u_1, ..., u_n of a matrix. All clients count alike: a weight is
what a client says of itself, and a robust mean believes no single client. With f false uploads among n, none of them
holds for f ≥ n/2.

D. Yin, Y. Chen, R. Kannan, P. Bartlett, Byzantine-Robust Distributed Learning, ICML 2018 (median, trimmed mean).
K. Pillutla, S. Kakade, Z. Harchaoui, Robust Aggregation for Federated Learning, IEEE TSP 2022 (geometric median).
S. P. Karimireddy, L. He, M. Jaggi, Learning from History for Byzantine Robust Optimization, ICML 2021 (clipping); the
same, Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, ICLR 2022.
P. Blanchard, E. El Mhamdi, R. Guerraoui, J. Stainer, Machine Learning with Adversaries, NeurIPS 2017 (Krum).
Y. Allouah et al., Fixing by Mixing, AISTATS 2023 (nearest-neighbour mixing).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import jax
import jax.numpy as jnp

from fedlin.checks import instance_of, positive, positive_integer
from fedlin.core import Key, Matrix, Message, Scalar, Vector

Combine = Callable[[Matrix, Vector, Key], Vector]


@dataclass(frozen=True)
class Aggregator:
    """A rule that makes one upload of many.

    Attributes:
        name: How it is written; two aggregators of equal names are taken for the same by checkpoints and federations.
        combine: (rows, present, key) to one row, as traced code: `present` says which rows count, `key` is for draws.
        least: How many uploads it needs.
        is_mean: Whether it is the mean, in which clients have weights and which engines compute by partial sums.
    """

    name: str
    combine: Combine = field(compare=False, repr=False)
    least: int = 1
    is_mean: bool = False

    def __repr__(self) -> str:
        return self.name

    def __call__(self, uploads: Message, present: Vector, key: Key) -> Message:
        """The aggregate of stacked uploads; each counts as one vector, however many arrays it is made of."""
        leaves, tree = jax.tree.flatten(uploads)
        if not leaves:
            return uploads
        rows = jnp.concatenate([leaf.reshape(len(present), -1) for leaf in leaves], axis=1)
        # Beyond it false uploads could make sums infinite, and their distances no numbers.
        largest = float(jnp.finfo(rows.dtype).max) / (4 * len(present))  # type: ignore[no-untyped-call]
        row = self.combine(jnp.where(present[:, None], jnp.clip(rows, -largest, largest), 0), present, key)
        parts, start = [], 0
        for leaf in leaves:
            parts.append(row[start : start + leaf[0].size].reshape(leaf.shape[1:]))
            start += leaf[0].size
        return jax.tree.unflatten(tree, parts)


@cache
def mean() -> Aggregator:
    """Σ w_i u_i, in which one false upload can be anything.

    Returns:
        The aggregator, which is the default.

    >>> mean().is_mean
    True
    """
    return Aggregator("mean", lambda rows, present, key: _mean(rows, present), is_mean=True)


@cache
def coordinate_median() -> Aggregator:
    """In every entry the median, that of an even number being the mean of the middle two.

    Returns:
        The aggregator.

    >>> import jax.numpy as jnp
    >>> rows = jnp.array([[1.0], [2.0], [900.0]])
    >>> coordinate_median()(rows, jnp.ones(3, bool), None).tolist()
    [2.0]
    """

    return Aggregator("coordinate_median()", lambda rows, present, key: _median(rows, present))


def trimmed_mean(f: int) -> Aggregator:
    """In every entry the mean of those that are left without the f smallest and the f largest.

    Args:
        f: How many uploads may be false.

    Returns:
        The aggregator.

    >>> import jax.numpy as jnp
    >>> rows = jnp.array([[1.0], [2.0], [4.0], [900.0]])
    >>> trimmed_mean(1)(rows, jnp.ones(4, bool), None).tolist()
    [3.0]
    """
    return _trimmed_mean(_tolerated(f))


@cache
def _trimmed_mean(f: int) -> Aggregator:
    def combine(rows: Matrix, present: Vector, key: Key) -> Vector:
        count, rank = jnp.sum(present), jnp.arange(len(present))
        inside = (rank >= f) & (rank < count - f)
        return _mean(jnp.where(inside[:, None], _sorted(rows, present), 0), inside)

    return Aggregator(f"trimmed_mean({f})", combine, 2 * f + 1)


def geometric_median(steps: int = 100, smoothing: float = 1e-9) -> Aggregator:
    """argmin_z Σ ‖u_i - z‖ by Weiszfeld's steps from z = 0: z ← Σ β_i u_i / Σ β_i, β_i = 1/max(‖u_i - z‖, ν).

    Args:
        steps: How many steps.
        smoothing: ν, below which a distance counts as ν.

    Returns:
        The aggregator.

    >>> import jax.numpy as jnp
    >>> rows = jnp.array([[1.0], [2.0], [900.0]])
    >>> round(float(geometric_median()(rows, jnp.ones(3, bool), None)[0]), 3)
    2.0
    """
    return _geometric_median(positive_integer("steps", steps), positive("smoothing", smoothing))


@cache
def _geometric_median(steps: int, smoothing: float) -> Aggregator:
    def combine(rows: Matrix, present: Vector, key: Key) -> Vector:
        def improve(_: Scalar, z: Vector) -> Vector:
            inverse = jnp.where(present, 1 / jnp.maximum(jnp.linalg.norm(rows - z[None], axis=1), smoothing), 0)
            moved: Vector = inverse @ rows / jnp.sum(inverse)
            return moved

        median: Vector = jax.lax.fori_loop(0, steps, improve, jnp.zeros_like(rows[0]))
        return median

    return Aggregator(f"geometric_median(steps={steps}, smoothing={smoothing!r})", combine)


def centred_clipping(radius: float, steps: int = 1) -> Aggregator:
    """z ← z + mean of min(1, r/‖u_i - z‖)(u_i - z), from the coordinate-wise median: none moves z by more than r/n.

    Args:
        radius: r, about the distance of honest uploads from their mean.
        steps: How many steps, each of which takes the last one's z as its centre.

    Returns:
        The aggregator.

    >>> import jax.numpy as jnp
    >>> rows = jnp.array([[1.0], [2.0], [900.0]])
    >>> centred_clipping(4.0)(rows, jnp.ones(3, bool), None).tolist()
    [3.0]
    """
    return _centred_clipping(positive("radius", radius), positive_integer("steps", steps))


@cache
def _centred_clipping(radius: float, steps: int) -> Aggregator:
    def combine(rows: Matrix, present: Vector, key: Key) -> Vector:
        def improve(_: Scalar, z: Vector) -> Vector:
            away = rows - z[None]
            length = jnp.linalg.norm(away, axis=1)
            factor = jnp.minimum(1, radius / jnp.where(length > 0, length, radius))
            return z + _mean(factor[:, None] * away, present)

        centre: Vector = jax.lax.fori_loop(0, steps, improve, _median(rows, present))
        return centre

    return Aggregator(f"centred_clipping({radius!r}, steps={steps})", combine)


def krum(f: int) -> Aggregator:
    """The upload whose n - f - 1 nearest others are the nearest, by the mean of squared distances.

    Args:
        f: How many uploads may be false.

    Returns:
        The aggregator. The paper takes n - f - 2 others; this is the definition of Allouah et al.

    >>> import jax.numpy as jnp
    >>> rows = jnp.array([[1.0], [2.0], [2.5], [900.0]])
    >>> krum(1)(rows, jnp.ones(4, bool), None).tolist()
    [2.0]
    """
    return _krum(_tolerated(f))


@cache
def _krum(f: int) -> Aggregator:
    def combine(rows: Matrix, present: Vector, key: Key) -> Vector:
        return rows[jnp.argmin(_krum_scores(rows, present, f))]

    return Aggregator(f"krum({f})", combine, 2 * f + 1)


def multi_krum(f: int) -> Aggregator:
    """The mean of the n - f uploads that `krum` would choose first.

    Args:
        f: How many uploads may be false.

    Returns:
        The aggregator.

    >>> import jax.numpy as jnp
    >>> rows = jnp.array([[1.0], [2.0], [3.0], [900.0]])
    >>> multi_krum(1)(rows, jnp.ones(4, bool), None).tolist()
    [2.0]
    """
    return _multi_krum(_tolerated(f))


@cache
def _multi_krum(f: int) -> Aggregator:
    def combine(rows: Matrix, present: Vector, key: Key) -> Vector:
        return _mean(rows, _nearest(_krum_scores(rows, present, f), jnp.sum(present) - f))

    return Aggregator(f"multi_krum({f})", combine, 2 * f + 1)


def bucketing(aggregator: Aggregator, s: int) -> Aggregator:
    """The aggregator of the means of s uploads each, drawn anew in every phase, which differ less than uploads do.

    Args:
        aggregator: What is made of the means, of which each false upload may spoil one.
        s: How many uploads a bucket holds; the last may hold fewer.

    Returns:
        The aggregator.

    >>> bucketing(trimmed_mean(2), s=2)
    bucketing(trimmed_mean(2), s=2)
    """
    return _bucketing(_known(aggregator), positive_integer("s", s))


@cache
def _bucketing(aggregator: Aggregator, s: int) -> Aggregator:
    def combine(rows: Matrix, present: Vector, key: Key) -> Vector:
        empty = -len(present) % s
        order = draw_order(present, key)
        shuffled = jnp.pad(rows[order], ((0, empty), (0, 0))).reshape(-1, s, rows.shape[1])
        held = jnp.sum(jnp.pad(present[order], (0, empty)).reshape(-1, s), axis=1)
        means = jnp.sum(shuffled, axis=1) / jnp.maximum(held, 1).astype(rows.dtype)[:, None]
        return aggregator.combine(means, held > 0, key)

    return Aggregator(f"bucketing({aggregator}, s={s})", combine, (aggregator.least - 1) * s + 1)


def nearest_neighbour_mixing(aggregator: Aggregator, f: int) -> Aggregator:
    """The aggregator of rows in which every upload is replaced by the mean of the n - f nearest to it, itself included.

    Args:
        aggregator: What is made of these means.
        f: How many uploads may be false.

    Returns:
        The aggregator.

    >>> nearest_neighbour_mixing(coordinate_median(), f=2)
    nearest_neighbour_mixing(coordinate_median(), f=2)
    """
    return _nearest_neighbour_mixing(_known(aggregator), _tolerated(f))


@cache
def _nearest_neighbour_mixing(aggregator: Aggregator, f: int) -> Aggregator:
    def combine(rows: Matrix, present: Vector, key: Key) -> Vector:
        count = jnp.sum(present) - f

        def mix(distances: Vector) -> Vector:
            return _mean(rows, _nearest(distances, count))

        return aggregator.combine(jax.lax.map(mix, _squared_distances(rows, present)), present, key)

    return Aggregator(f"nearest_neighbour_mixing({aggregator}, f={f})", combine, max(aggregator.least, 2 * f + 1))


def draw_order(present: Vector, key: Key) -> Vector:
    """The order, drawn by lot, in which `bucketing` takes the rows.

    Args:
        present: Which rows count; the others come last.
        key: For the draw.

    Returns:
        The rows' numbers.

    >>> import jax.numpy as jnp
    >>> int(draw_order(jnp.array([True, False, True]), jax.random.key(0))[-1])
    1
    """
    return jnp.argsort(jnp.where(present, jax.random.uniform(key, present.shape), 2.0))


def _tolerated(f: int) -> int:
    return positive_integer("f", f, least=0)


def _known(aggregator: Aggregator) -> Aggregator:
    return instance_of("aggregator", aggregator, Aggregator, "an aggregator such as fedlin.aggregation.trimmed_mean(2)")


def _mean(rows: Matrix, present: Vector) -> Vector:
    return jnp.sum(jnp.where(present[:, None], rows, 0), axis=0) / jnp.sum(present).astype(rows.dtype)


def _sorted(rows: Matrix, present: Vector) -> Matrix:
    """Every column in order, the entries of rows that are not present last."""
    return jnp.sort(jnp.where(present[:, None], rows, jnp.inf), axis=0)


def _median(rows: Matrix, present: Vector) -> Vector:
    count, in_order = jnp.sum(present), _sorted(rows, present)
    middle: Vector = (in_order[(count - 1) // 2] + in_order[count // 2]) / 2
    return middle


def _squared_distances(rows: Matrix, present: Vector) -> Matrix:
    """‖u_i - u_j‖², infinite where j is not present; row by row, without cancellation."""

    def from_one(row: Vector) -> Vector:
        return jnp.where(present, jnp.sum((rows - row[None]) ** 2, axis=1), jnp.inf)

    distances: Matrix = jax.lax.map(from_one, rows)
    return distances


def _krum_scores(rows: Matrix, present: Vector, f: int) -> Vector:
    """The sum of squared distances to the n - f - 1 nearest others; infinite for rows that are not present."""
    rank = jnp.arange(len(present))
    counted = rank < jnp.sum(present) - f  # a row's distance to itself is the first, and zero
    near = jnp.sum(jnp.where(counted[None], jnp.sort(_squared_distances(rows, present), axis=1), 0), axis=1)
    return jnp.where(present, near, jnp.inf)


def _nearest(distances: Vector, count: Scalar) -> Vector:
    """Which entries are the `count` smallest."""
    chosen: Vector = jnp.argsort(jnp.argsort(distances)) < count
    return chosen
