"""Convolutions and pooling in other forms: the same values and derivatives, however clients are put together."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxprs_in_params

from fedlin.problems.fast_convolutions import with_fast_convolutions

DRAW = np.random.default_rng(0)
CLIENTS = 3


@pytest.fixture(autouse=True)
def _double() -> Any:
    with jax.enable_x64(True):
        yield


class Case(NamedTuple):
    """A layer: the shapes of its images and its kernel, and what it computes."""

    images: tuple[int, ...]
    kernel: tuple[int, ...]
    layer: Callable[[Any, Any], Any]


def _conv(images: tuple[int, ...], kernel: tuple[int, ...], layout: Any, **options: Any) -> Case:
    given = {"window_strides": (1,) * (len(images) - 2), "padding": "VALID", **options}
    return Case(images, kernel, lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=layout, **given))


def _pool(images: tuple[int, ...], kind: str, window: tuple[int, ...], strides: Any, padding: Any) -> Case:
    start, reduce = (-jnp.inf, lax.max) if kind == "max" else (0.0, lax.add)

    def layer(x: Any, w: Any) -> Any:
        # Rounded, so that windows have several largest entries, as they do after a ReLU.
        rough = x + lax.stop_gradient(jnp.round(x) - x)
        return w * lax.reduce_window(rough, start, reduce, window, strides, padding)

    return Case(images, (), layer)


IMAGES = ("NHWC", "HWIO", "NHWC")
CASES = {
    "plain": _conv((2, 6, 5, 3), (3, 3, 3, 4), IMAGES),
    "same, strides": _conv((2, 7, 6, 2), (3, 2, 2, 3), IMAGES, window_strides=(2, 3), padding="SAME"),
    "one by one": _conv((2, 4, 4, 3), (1, 1, 3, 2), IMAGES, window_strides=(2, 2)),
    "channels first": _conv((2, 3, 6, 5), (4, 3, 3, 2), ("NCHW", "OIHW", "NCHW"), padding=((1, 0), (0, 2))),
    "odd layout": _conv((6, 3, 2, 5), (2, 4, 3, 3), ("HCNW", "HOIW", "WNHC")),
    "dilated kernel": _conv((2, 8, 9, 2), (3, 2, 2, 2), IMAGES, rhs_dilation=(2, 3), padding="SAME"),
    "transposed": _conv((2, 4, 3, 2), (3, 3, 2, 3), IMAGES, lhs_dilation=(2, 2), padding=((2, 1), (1, 2))),
    "cropped": _conv((1, 6, 6, 2), (2, 2, 2, 2), IMAGES, padding=((-1, 0), (1, -2))),
    "groups": _conv((2, 5, 5, 6), (3, 3, 2, 9), IMAGES, feature_group_count=3),
    "depthwise": _conv((2, 5, 5, 4), (3, 3, 1, 4), IMAGES, feature_group_count=4, padding="SAME"),
    "channels first, groups": _conv((2, 4, 5, 5), (6, 2, 2, 2), ("NCHW", "OIHW", "NCHW"), feature_group_count=2),
    "one axis": _conv((3, 9, 2), (4, 2, 3), ("NWC", "WIO", "NWC"), window_strides=(2,)),
    "three axes": _conv((1, 4, 5, 4, 2), (2, 3, 2, 2, 3), ("NDHWC", "DHWIO", "NDHWC"), padding="SAME"),
    "patches": _conv((2, 8, 8, 3), (4, 4, 3, 5), IMAGES, window_strides=(4, 4)),
    "large kernel": _conv((1, 18, 18, 1), (17, 17, 1, 2), IMAGES),
    "max": _pool((2, 6, 4, 3), "max", (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    "max, rest left over": _pool((2, 7, 5, 2), "max", (1, 2, 3, 1), (1, 2, 3, 1), "VALID"),
    "max, padded": _pool((2, 5, 5, 2), "max", (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
    "max, overlapping": _pool((2, 6, 6, 2), "max", (1, 3, 3, 1), (1, 2, 2, 1), "VALID"),
    "max, over everything": _pool((2, 3, 4, 2), "max", (2, 3, 4, 1), (2, 3, 4, 1), "VALID"),
    "mean": _pool((2, 6, 4, 3), "sum", (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    "mean, padded": _pool((2, 5, 5, 3), "sum", (1, 2, 2, 1), (1, 2, 2, 1), "SAME"),
    "mean, overlapping": _pool((2, 6, 6, 2), "sum", (1, 3, 3, 1), (1, 2, 2, 1), "VALID"),
}
Arrays = dict[str, Any]
KERNELS: list[Arrays] = [
    {name: DRAW.standard_normal(case.kernel) for name, case in CASES.items()} for _ in range(CLIENTS)
]
PICTURES: list[Arrays] = [
    {name: 2 * DRAW.standard_normal(case.images) for name, case in CASES.items()} for _ in range(CLIENTS)
]


def losses(kernels: Arrays, images: Arrays) -> Arrays:
    """A number of every layer, no two of its outputs weighed alike."""

    def one(case: Case, w: Any, x: Any) -> Any:
        out = case.layer(x, w)
        return jnp.sum(jnp.sin(out + jnp.arange(out.size, dtype=out.dtype).reshape(out.shape)))

    return {name: one(case, kernels[name], images[name]) for name, case in CASES.items()}


def with_slopes(function: Any) -> Any:
    """(kernels, images) -> every layer's loss and its derivatives in the kernel and in the images."""

    def both(kernels: Arrays, images: Arrays) -> Any:
        def total(kernels: Arrays, images: Arrays) -> Any:
            each = function(kernels, images)
            return sum(each.values()), each

        slopes, each = jax.grad(total, argnums=(0, 1), has_aux=True)(kernels, images)
        return each, slopes[0], slopes[1]

    return both


def stacked(trees: list[Arrays]) -> Arrays:
    together: Arrays = jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
    return together


def hold_equal(found: Any, expected: Any) -> None:
    for name in CASES:
        for part, other in zip(found, expected, strict=True):
            scale = 1 + np.max(np.abs(other[name]))
            np.testing.assert_allclose(part[name], other[name], rtol=0, atol=1e-12 * scale, err_msg=name)


def compiled(function: Any, *arguments: Any) -> Any:
    """The results, from a program that took little time to compile and may take long to run."""
    hasty: Any = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(function).lower(*arguments).compile(hasty)(*arguments)


@pytest.fixture(scope="module")
def expected() -> Callable[[int, int], Any]:
    """(client of the kernels, client of the images) -> the losses and slopes of the layers as they were given."""
    with jax.enable_x64(True):
        program = jax.jit(with_slopes(losses)).lower(KERNELS[0], PICTURES[0]).compile()
    return lambda model, picture: program(KERNELS[model], PICTURES[picture])


ALL = range(CLIENTS)
# How clients are put together, on which device, and whose kernel meets whose images then.
TOGETHER: dict[str, tuple[str, Callable[[Any], Any], Arrays, Arrays, Any]] = {
    "one client": ("cpu", lambda f: f, KERNELS[0], PICTURES[0], (0, 0)),
    "models by client": ("cpu", jax.vmap, stacked(KERNELS), stacked(PICTURES), [(i, i) for i in ALL]),
    "one picture": (
        "cpu",
        lambda f: jax.vmap(f, in_axes=(0, None)),
        stacked(KERNELS),
        PICTURES[0],
        [(i, 0) for i in ALL],
    ),
    "one model": (
        "gpu",
        lambda f: jax.vmap(f, in_axes=(None, 0)),
        KERNELS[0],
        stacked(PICTURES),
        [(0, i) for i in ALL],
    ),
    "one model a run": (
        "gpu",
        lambda f: jax.vmap(jax.vmap(f, in_axes=(None, 0)), in_axes=(0, None)),
        stacked(KERNELS),
        stacked(PICTURES),
        [[(run, i) for i in ALL] for run in ALL],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("together", TOGETHER)
def test_values_and_derivatives_are_those_of_the_loss_as_given(
    together: str, expected: Callable[[int, int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, around, kernels, images, pairs = TOGETHER[together]
    monkeypatch.setattr("jax.default_backend", lambda: device)
    found = compiled(around(with_slopes(with_fast_convolutions(losses))), kernels, images)

    def hold(found: Any, pairs: Any) -> None:
        if isinstance(pairs, list):
            for number, inner in enumerate(pairs):
                hold(jax.tree.map(lambda leaf, at=number: leaf[at], found), inner)
        else:
            hold_equal(found, expected(*pairs))

    hold(found, pairs)


def operations(jaxpr: Any) -> list[Any]:
    """Every equation, those inside of others too."""
    inner = [operations(sub) for equation in jaxpr.eqns for sub in jaxprs_in_params(equation.params)]
    return [*jaxpr.eqns, *(equation for part in inner for equation in part)]


def network(params: Arrays, images: Any) -> Any:
    out = jax.nn.relu(CASES["plain"].layer(images, params["kernel"]))
    out = lax.reduce_window(out, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
    return jnp.mean(jnp.tanh(out) @ params["out"])


SMALL = {"kernel": KERNELS[0]["plain"], "out": DRAW.standard_normal(4)}
MANY = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), SMALL)
VIEWS = np.stack([PICTURES[0]["plain"], PICTURES[1]["plain"]])


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("models", [SMALL, MANY], ids=["shared", "own"])
def test_no_slow_operation_is_left_where_clients_differ(
    models: Arrays, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With models of their own no convolution remains; with a shared one it is one of all clients' images."""
    monkeypatch.setattr("jax.default_backend", lambda: device)
    axes = (None if models is SMALL else 0, 0)
    slopes = jax.vmap(jax.grad(with_fast_convolutions(network)), in_axes=axes)
    found = operations(jax.make_jaxpr(slopes)(models, VIEWS).jaxpr)
    names = {equation.primitive.name for equation in found}
    assert not names & {"select_and_scatter_add", "select_and_gather_add", "reduce_window_max"}
    convolutions = [equation for equation in found if equation.primitive.name == "conv_general_dilated"]
    assert all(equation.params["feature_group_count"] == 1 for equation in convolutions)
    assert all(equation.params["batch_group_count"] == 1 for equation in convolutions)
    # Forward, and the derivative in the images, which the compiler drops.
    assert len(convolutions) == (2 if models is SMALL and device == "gpu" else 0)


def by_scan(params: Arrays, images: Any) -> Any:
    def step(carry: Any, image: Any) -> tuple[Any, Any]:
        value = network(params, image[None])
        return carry + value, value * carry

    total, parts = lax.scan(step, 0.0, images, reverse=True)
    return total + jnp.sum(parts)


def by_branch(params: Arrays, images: Any) -> Any:
    return lax.cond(jnp.sum(images) > 0, network, lambda p, x: 2 * network(p, -x), params, images)


def by_loop(params: Arrays, images: Any) -> Any:
    """The loop holds a convolution with a kernel that nobody learns: one of any length has no derivative."""

    def blur(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        count, picture = carry
        return count + 1, CASES["plain"].layer(jnp.pad(picture, ((0, 0), (1, 1), (1, 1), (0, 0))), fixed)

    fixed = np.full((3, 3, 3, 3), 1 / 27)
    smooth = lax.while_loop(lambda carry: carry[0] < 2, blur, (0, lax.stop_gradient(images)))[1]
    return network(params, smooth)


@jax.custom_vjp
def with_own_slope(params: Arrays, images: Any) -> Any:
    return network(params, images)


def _own_forward(params: Arrays, images: Any) -> Any:
    return network(params, images), params


def _own_backward(params: Arrays, slope: Any) -> Any:
    return jax.tree.map(lambda leaf: 3 * slope * leaf, params), None


with_own_slope.defvjp(_own_forward, _own_backward)


@jax.custom_jvp
def with_own_tangent(params: Arrays, images: Any) -> Any:
    return network(params, images)


@with_own_tangent.defjvp
def _own_tangent(primals: Any, tangents: Any) -> Any:
    total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tangents[0]))
    return network(*primals), 5 * total


STRUCTURES: dict[str, Callable[[Arrays, Any], Any]] = {
    "jit": jax.jit(network),
    "rematerialised": jax.checkpoint(network),
    "scan": by_scan,
    "branch": by_branch,
    "loop": by_loop,
    "own derivative": with_own_slope,
    "own tangent": with_own_tangent,
    "jit in scan in jit": jax.jit(lambda p, x: by_scan(p, x) + jax.jit(by_branch)(p, x)),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_around_a_convolution_are_kept(name: str) -> None:
    given, fast = (
        compiled(jax.vmap(jax.value_and_grad(f)), MANY, VIEWS)
        for f in (STRUCTURES[name], with_fast_convolutions(STRUCTURES[name]))
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), fast, given)


def test_what_holds_neither_is_the_function_itself() -> None:
    def plain(params: Arrays, images: Any) -> Any:
        return jnp.mean(jnp.tanh(images) @ params["kernel"][0, 0])

    changed, given = (jax.make_jaxpr(jax.grad(f))(SMALL, VIEWS[0]) for f in (with_fast_convolutions(plain), plain))
    assert str(changed) == str(given)
