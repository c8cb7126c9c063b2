"""A site's side: logistic regression on rows that stay where they are."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from task import algorithm

import fedlin
from fedlin.transports.flower import client_app
from fedlin.transports.transport import Handler


@cache
def problem(name: str, path: str, dim: int) -> fedlin.problems.Problem:
    """The rows in the site's file (`X`, and `y` of -1 and 1), or drawn ones where it names no file."""
    if path:
        with np.load(path) as rows:
            X, y = rows["X"], rows["y"]
    else:
        draw = np.random.default_rng(crc32(name.encode()))
        X = draw.standard_normal((200, dim)) / np.sqrt(dim)
        y = np.where(X @ draw.standard_normal(dim) + 0.1 * draw.standard_normal(200) > 0, 1.0, -1.0)
    return fedlin.problems.logistic([X], [y], l2=0.1)


def make(name: str, config: Mapping[str, Any]) -> Handler:
    """Called for every message, maybe in a new process: all that a site remembers is in its folder."""
    own = problem(name, str(config.get("data", "")), int(config["dim"]))
    return fedlin.Client(algorithm(config), own, folder=Path(str(config["folder"])) / name).handle


app = client_app(make)
