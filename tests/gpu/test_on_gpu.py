"""What only a GPU can show: sizes that broke it, torch beside JAX on the device, and the same numbers as on a CPU."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedlin
from fedlin import memory

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX has no GPU here")]
LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolved(params: Any, images: Any) -> Any:
    for name in ("first", "second"):
        images = jax.lax.conv_general_dilated(images, params[name], (1, 1), "VALID", dimension_numbers=LAYOUT)
        images = jax.nn.relu(images)
    return jnp.mean(images, (1, 2)) @ params["scores"]


def loss(params: Any, batch: Any) -> Any:
    found = jax.nn.log_softmax(convolved(params, batch["images"]))
    return -jnp.mean(jnp.take_along_axis(found, batch["labels"][:, None], axis=1))


def network(channels: int = 64) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    shapes = {"first": (3, 3, 3, 32), "second": (3, 3, 32, channels), "scores": (channels, 10)}
    return {name: (0.1 * draw.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


def users(count: int, images: int = 50) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 10, (count, images)).astype(np.int32)
    return {"images": draw.standard_normal((count, images, 32, 32, 3), np.float32), "labels": labels}


def test_a_thousand_users_are_measured_in_blocks() -> None:
    """Their 50,000 images in one pass make arrays beyond 32 bits of addresses, at which kernels stop."""
    data = users(1000)
    whole = fedlin.problems.from_loss(loss, network(), data, precision="highest")
    assert memory.LARGEST < 50_000 * 28 * 28 * 64
    assert whole.pass_block is not None
    parts = [
        fedlin.problems.from_loss(
            loss, network(), jax.tree.map(lambda leaf, i=i: leaf[i : i + 100], data), precision="highest"
        ).loss(whole.start)
        for i in range(0, 1000, 100)
    ]
    assert whole.loss(whole.start) == pytest.approx(np.mean(parts), rel=1e-5)


def test_memory_is_what_the_device_says() -> None:
    stats = jax.local_devices()[0].memory_stats()
    assert memory.device_memory() == stats["bytes_limit"]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedlin"])
def test_clients_on_the_host_end_where_clients_on_the_device_do(name: str) -> None:
    method = {"fedavg": fedlin.fedavg(), "scaffold": fedlin.scaffold(), "fedlin": fedlin.fedlin(same_batch=True)}[name]
    problem = fedlin.problems.from_loss(loss, network(8), users(12, 8), precision="highest")
    problem = fedlin.problems.minibatch(problem, 4, replace=False)
    plan = fedlin.Plan(fedlin.epochs(problem, 1), 0.05)
    here, there = (fedlin.simulate(method, problem, plan, 4, participation=0.5, chunk=chunk).x for chunk in (None, 3))
    np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-6)


def test_torch_on_the_device_ends_where_torch_on_the_cpu_does() -> None:
    torch = pytest.importorskip("torch")
    import fedlin.torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 30 * 30, 10)
    )
    data = users(6, 8)
    images = torch.tensor(np.moveaxis(data["images"], -1, 2).copy())
    labels = torch.tensor(data["labels"].astype(np.int64))

    def run(device: str) -> Any:
        clients = list(zip(images.to(device), labels.to(device), strict=True))
        problem = fedlin.torch.problem(
            module.to(device), torch.nn.functional.cross_entropy, clients, 4, replace=False, precision="highest"
        )
        assert problem.together
        return fedlin.simulate(
            fedlin.scaffold(),
            problem,
            fedlin.Plan(fedlin.epochs(problem, 1), 0.05),
            4,
            metrics={"accuracy": lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).double().mean()},
            test=(images[0], labels[0]),
            measure_every=2,
        )

    on_device, on_cpu = run("cuda"), run("cpu")
    np.testing.assert_allclose(on_device.x, on_cpu.x, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(on_device.loss[[0, 2, 4]], on_cpu.loss[[0, 2, 4]], rtol=1e-4)
    np.testing.assert_allclose(on_device.accuracy, on_cpu.accuracy, atol=0.13)
