"""MNIST over 20 clients with two digits each: softmax regression to its optimum, one CNN in PyTorch and in JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import fedlin
from fedlin import Plan, Stop, problems, simulate
from realdata import idx

Array = NDArray[Any]


def two_digits_each(rows: int) -> list[tuple[Array, Array]]:
    """`rows` images, halved to 14×14, and labels for each of 20 clients; client i has digits i and i + 1 (or i + 3)."""
    images = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 14, 2, 14, 2).mean((2, 4)) / 255
    labels = idx("t10k-labels-idx1-ubyte.gz", 8).astype(np.int64)
    queue = {digit: iter(np.flatnonzero(labels == digit)) for digit in range(10)}
    clients = []
    for i in range(20):
        digits = [i % 10, (i + (1 if i < 10 else 3)) % 10]
        own = [next(queue[digits[j % 2]]) for j in range(rows)]
        clients.append((images[own], labels[own]))
    return clients


@pytest.mark.slow
def test_softmax_regression_reaches_its_optimum() -> None:
    clients = two_digits_each(30)
    X = np.stack([np.c_[images.reshape(30, -1), np.ones(30)] for images, _ in clients])
    y = np.stack([labels for _, labels in clients])
    assert all(len(np.unique(labels)) == 2 for labels in y)
    f = problems.softmax(X, y, l2=0.5, classes=10)
    plan = Plan.scaled(fedlin.draw_steps(20, 2, 6, seed=0), 1 / f.smoothness)
    exact = simulate(fedlin.fedlin(), f, plan, 1000, stop=Stop(gap=1e-12), iterates=False)
    assert exact.status == "stopped"
    drifting = simulate(fedlin.fedavg(), f, plan, exact.rounds, iterates=False)
    assert drifting.gap[-1] > 1e-6
    assert np.linalg.norm(exact.x - f.minimizer) <= 1e-5 * np.linalg.norm(f.minimizer)


def jax_loss(params: Any, batch: Any) -> jax.Array:
    """The network below in JAX: two convolutions of stride 2, then a layer."""
    images, labels = batch
    for name in ("0", "2"):
        images = jax.lax.conv_general_dilated(images, params[f"{name}.weight"], (2, 2), "VALID")
        images = jax.nn.relu(images + params[f"{name}.bias"][None, :, None, None])
    scores = images.reshape(len(labels), -1) @ params["5.weight"].T + params["5.bias"][None]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1))


@pytest.mark.slow
def test_a_network_is_the_same_in_torch_and_in_jax() -> None:
    torch = pytest.importorskip("torch")
    import fedlin.torch

    nn = torch.nn
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10))
    model = nn.Sequential(*layers).double()
    clients = [(images[:, None], labels) for images, labels in two_digits_each(20)]
    params = {name: value.detach().numpy() for name, value in model.named_parameters()}
    ours = problems.from_loss(jax_loss, params, clients)
    theirs = fedlin.torch.problem(model, nn.functional.cross_entropy, clients)
    plan = Plan(fedlin.draw_steps(20, 1, 5, seed=0), 0.1)
    ours_x, theirs_x = (simulate(fedlin.fedlin(), f, plan, 5).x for f in (ours, theirs))
    in_jax = ours.params(ours_x)
    moved = 0.0
    for name, value in theirs.state_dict(theirs_x).items():
        np.testing.assert_allclose(value.numpy(), in_jax[name], rtol=1e-5, atol=1e-9)
        moved = max(moved, float(np.abs(value.numpy() - params[name]).max()))
    assert moved > 1e-2
