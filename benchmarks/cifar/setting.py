"""The setting, and images of CIFAR-10's shape: random ones, since only time is measured."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.process import peak

Array = NDArray[Any]
CLASSES, SIDE, CHANNELS = 10, 32, 3


class Setting(NamedTuple):
    """Sizes and numbers; the defaults are those that pfl publishes."""

    users: int = 1000
    images: int = 50  # of a user
    cohort: int = 50
    batch: int = 10
    eta: float = 0.1
    rounds: int = 1500
    every: int = 10  # rounds from one evaluation to the next
    test: int = 10_000
    again: int = 200  # rounds timed once more, compiled

    def users_data(self) -> tuple[Array, Array]:
        """Images (users, images, 32, 32, 3) and labels."""
        return self._draw(0, (self.users, self.images))

    def test_data(self) -> tuple[Array, Array]:
        """Images (test, 32, 32, 3) and labels."""
        return self._draw(1, (self.test,))

    def _draw(self, seed: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
        draw = np.random.default_rng(seed)
        images = draw.standard_normal((*shape, SIDE, SIDE, CHANNELS), np.float32)
        return images, draw.integers(0, CLASSES, shape).astype(np.int32)


SMALL = Setting(users=6, images=20, cohort=2, rounds=4, every=2, test=64, again=4)  # for a machine without a GPU


def initial_parameters(seed: int = 0) -> dict[str, Array]:
    """Glorot uniform kernels (height, width, in, out), and zero biases."""
    draw = np.random.default_rng(seed)
    flat = 14 * 14 * 64
    shapes = {"first": (3, 3, CHANNELS, 32), "second": (3, 3, 32, 64), "dense": (flat, 128), "scores": (128, CLASSES)}
    params = {}
    for name, shape in shapes.items():
        window = int(np.prod(shape[:-2]))
        bound = np.sqrt(6 / (window * (shape[-2] + shape[-1])))
        params[name] = draw.uniform(-bound, bound, shape).astype(np.float32)
        params[f"{name}_bias"] = np.zeros(shape[-1], np.float32)
    return params


class Laps:
    """Times of rounds, the first from the start of the process with all imports and compilation."""

    def __init__(self, begun: float) -> None:
        self._begun, self._last = begun, time.perf_counter()
        self.rounds, self.seconds, self.first = 0, 0.0, float("nan")

    def lap(self, rounds: int) -> None:
        """So many rounds have ended since the last lap; those of the first lap count as its start."""
        now = time.perf_counter()
        if np.isnan(self.first):
            self.first = time.time() - self._begun
        else:
            self.rounds, self.seconds = self.rounds + rounds, self.seconds + now - self._last
        self._last = time.perf_counter()


def contestant(play: Callable[[Setting, str, Laps], dict[str, Any]]) -> None:
    """Run as `python -m benchmarks.cifar.with_NAME METHOD SETTING BEGUN`; prints one line of JSON."""
    method, setting, begun = sys.argv[1:]
    laps = Laps(float(begun))
    more = play(Setting(**json.loads(setting)), method, laps)
    result = {
        "first": laps.first,
        "seconds a round": laps.seconds / max(laps.rounds, 1),
        "rounds timed": laps.rounds,
        "whole": time.time() - laps._begun,
        "peak": peak(),
        **more,
    }
    print("\n" + json.dumps(result), flush=True)
    sys.stdout.flush()
    os._exit(0)  # some libraries wait for threads at the end
