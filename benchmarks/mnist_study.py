"""When FedLin's correction pays for a network: seven methods on MNIST, two digits a client, each with its own step.

`python -m benchmarks.mnist_study [--quick]` reads MNIST's 10,000 test images, gzipped as published, from the folder
FEDLIN_DATA. Steps are chosen by the accuracy on 1,000 images, and all figures are of another 1,000. What was
measured goes to benchmarks/results/mnist_study.json; `python -m benchmarks.mnist_picture` draws it.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

import fedlin

Array = NDArray[Any]
FILE = Path(__file__).parent / "results" / "mnist_study.json"
STEPS = (0.02, 0.06, 0.2, 0.6)  # η_i, one of which each method gets
SEEDS = (1, 2, 3, 4)  # as many as steps, so that one program plays both
LAYOUT = ("NHWC", "HWIO", "NHWC")


class Study(NamedTuple):
    """A federation and how it works."""

    clients: int
    batch: int
    epochs: int
    participation: float
    rounds: int
    name: str


STUDIES = (
    Study(20, 32, 1, 1.0, 100, "20 clients, one pass a round"),
    Study(100, 10, 1, 0.2, 100, "100 clients, a fifth drawn, one pass a round"),
    Study(20, 32, 5, 1.0, 50, "20 clients, five passes a round"),
)


def methods(dim: int) -> dict[str, Any]:
    """By the names that the picture gives them."""
    fedavg = fedlin.fedavg()
    return {
        "FedAvg": fedavg,
        "FedAvgM": fedlin.server_optimizer(fedavg, optax.sgd(1.0, momentum=0.9)),
        "FedAdam": fedlin.server_optimizer(fedavg, optax.adam(1e-2, eps=1e-3)),
        "FedProx": fedlin.fedprox(0.1),
        "SCAFFOLD": fedlin.scaffold(),
        "FedLin": fedlin.fedlin(same_batch=True),
        "FedLin, top tenth": fedlin.fedlin(uplink=fedlin.top_k(dim // 10), same_batch=True),
    }


def read(name: str, header: int) -> Array:
    """The bytes of a gzipped IDX file after its header."""
    folder = Path(os.environ.get("FEDLIN_DATA", "../shared/data"))
    return np.frombuffer(gzip.decompress((folder / name).read_bytes())[header:], np.uint8)


def load() -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    """Images and labels to train on, to choose steps by, and to test on."""
    images = (read("t10k-images-idx3-ubyte.gz", 16) / 255).astype(np.float32).reshape(-1, 28, 28, 1)
    labels = read("t10k-labels-idx1-ubyte.gz", 8).astype(np.int32)
    order = np.random.default_rng(0).permutation(len(labels))
    parts = (order[2000:], order[:1000], order[1000:2000])
    train, choose, test = ({"images": images[part], "labels": labels[part]} for part in parts)
    return train, choose, test


def two_digits_each(data: dict[str, Array], clients: int) -> dict[str, Array]:
    """Every client has as many images of each of two digits as every other."""
    pieces = clients // 5
    size = int(np.bincount(data["labels"], minlength=10).min()) // pieces
    rows = [np.flatnonzero(data["labels"] == digit)[: pieces * size].reshape(pieces, size) for digit in range(10)]
    taken = [0] * 10
    parts = []
    for client in range(clients):
        pair = (client % 10, (client + 1 + client // 10 % 9) % 10)
        own = []
        for digit in pair:
            own.append(rows[digit][taken[digit]])
            taken[digit] += 1
        parts.append(np.concatenate(own))
    return {name: values[np.stack(parts)] for name, values in data.items()}


def scores(params: Any, images: Any) -> Any:
    """Two convolutions, each with a pool, and a dense layer."""
    for name in ("first", "second"):
        images = jax.lax.conv_general_dilated(images, params[name], (1, 1), "SAME", dimension_numbers=LAYOUT)
        images = jax.nn.relu(images + params[f"{name}_bias"])
        images = jax.lax.reduce_window(images, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return images.reshape(len(images), -1) @ params["dense"] + params["dense_bias"]


def loss(params: Any, batch: Any) -> Any:
    """The mean cross-entropy."""
    chances = jax.nn.log_softmax(scores(params, batch["images"]))
    return -jnp.mean(jnp.take_along_axis(chances, batch["labels"][:, None], axis=1))


def accuracy(params: Any, batch: Any) -> Any:
    """The share of images whose digit has the highest score."""
    return jnp.mean(jnp.argmax(scores(params, batch["images"]), axis=1) == batch["labels"])


def initial_parameters() -> dict[str, Array]:
    """He's normal kernels, and zero biases."""
    draw = np.random.default_rng(0)
    shapes = {"first": (3, 3, 1, 8), "second": (3, 3, 8, 16), "dense": (7 * 7 * 16, 10)}
    params = {}
    for name, shape in shapes.items():
        params[name] = (draw.standard_normal(shape) * np.sqrt(2 / np.prod(shape[:-1]))).astype(np.float32)
        params[f"{name}_bias"] = np.zeros(shape[-1], np.float32)
    return params


def measure(study: Study, every: int, keep: Callable[[dict[str, Any]], None]) -> None:
    """Every method: its step, and its curves over the seeds; `keep` is told after each."""
    train, choose, test = load()
    problem = fedlin.problems.from_loss(loss, initial_parameters(), two_digits_each(train, study.clients))
    problem = fedlin.problems.minibatch(problem, study.batch, replace=False, last="drop")
    tau = fedlin.epochs(problem, study.epochs)
    results: dict[str, Any] = {}
    for name, method in methods(problem.dim).items():

        def play(etas: Any, seeds: Any, on: Any, method: Any = method) -> list[fedlin.Result]:
            plans = [fedlin.Plan(tau, eta) for eta in etas]
            return fedlin.simulate_many(
                method,
                problem,
                plans,
                study.rounds,
                seeds=list(seeds),
                participation=study.participation,
                iterates=False,
                metrics={"accuracy": accuracy},
                test=on,
                every=every,
            )

        began = time.perf_counter()
        rounds = study.rounds
        tried = play(STEPS, range(len(STEPS)), choose)
        reached = [float(run.accuracy[run.accuracy >= 0][-1]) if run.status == "done" else 0.0 for run in tried]
        eta = STEPS[int(np.argmax(reached))]
        runs = play([eta] * len(SEEDS), SEEDS, test)
        at = np.arange(0, rounds + 1, every)
        results[name] = {
            "eta": eta,
            "accuracy by step": dict(zip(map(str, STEPS), reached, strict=True)),
            "rounds": at.tolist(),
            "accuracy": [run.accuracy[at].tolist() if run.status == "done" else None for run in runs],
            "bytes": runs[0].bytes[at].tolist() if runs[0].status == "done" else None,
            "gradients": runs[0].gradients[at].tolist() if runs[0].status == "done" else None,
            "seconds": (runs[0].seconds[at] / len(SEEDS)).tolist() if runs[0].status == "done" else None,
        }
        ends = [curve[-1] for curve in results[name]["accuracy"] if curve]
        took = time.perf_counter() - began
        print(f"{study.name}: {name} with eta {eta} ends at {np.round(ends, 4).tolist()}, {took:.0f} s", flush=True)
        keep({"dim": problem.dim, "tau": int(tau[0]), "methods": results})


def main() -> None:
    """All studies, written method by method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few rounds of the first, to see that it works")
    parser.add_argument("--file", type=Path, default=FILE)
    arguments = parser.parse_args()
    device = jax.devices()[0].device_kind
    results: dict[str, Any] = {"device": device, "jax": jax.__version__, "seeds": len(SEEDS), "studies": {}}
    for study in (STUDIES[0]._replace(rounds=2),) if arguments.quick else STUDIES:

        def keep(part: dict[str, Any], study: Study = study) -> None:
            results["studies"][study.name] = part
            arguments.file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")

        measure(study, 1 if arguments.quick else 5, keep)


if __name__ == "__main__":
    main()
