"""What each feature behind an extra says where the extra is not installed, as one JSON document."""

import json
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO

import fedlin
from fedlin import trackers
from fedlin.cli import app


def _command(*arguments: str) -> Callable[[], str]:
    def typed() -> str:
        with redirect_stderr(StringIO()) as said:
            app(list(arguments), prog_name="fedlin", standalone_mode=False)
        return said.getvalue()

    return typed


def _exact() -> object:
    from fedlin import Plan, gradient_descent
    from fedlin.theory import exact

    return exact.worst_case(gradient_descent(), Plan(1, 1.0), exact.Smooth(1.0, 0.1)).factor


def _ray() -> object:
    from fedlin.transports.ray import RayTransport

    return RayTransport(lambda name: lambda phase, payload: payload, ["a"])


def _secure() -> object:
    from fedlin.transports.loopback import Loopback

    policy = fedlin.Policy.everyone(norm_bound=1.0)
    return fedlin.serve(fedlin.fedavg(), Loopback({}), fedlin.Plan(1, 0.1), 1, dim=2, policy=policy, secure=True)


# The feature, the extra it needs, and how it is used.
FEATURES: dict[str, tuple[str, Callable[[], object]]] = {
    "fedlin.torch": ("torch", lambda: import_module("fedlin.torch")),
    "federation init --torch": ("torch", _command("federation", "init", "a", "--torch", "--out", "federation")),
    "federation init": ("flare", _command("federation", "init", "a", "--out", "federation")),
    "federation start": ("flare", _command("federation", "start", "federation")),
    "federation join": ("flare", _command("federation", "join", "federation/sites/a")),
    "fedlin.transports.flare": ("flare", lambda: import_module("fedlin.transports.flare")),
    "fedlin.transports.ray": ("ray", _ray),
    "fedlin.transports.flower": ("flower", lambda: import_module("fedlin.transports.flower")),
    "serve(secure=True)": ("secure", _secure),
    "theory.exact": ("exact", _exact),
    "playground": ("playground", _command("playground", "--no-browser")),
    "server_optimizer": ("optax", lambda: fedlin.server_optimizer(fedlin.fedavg(), None)),
    "trackers.tensorboard": ("tensorboard", lambda: trackers.tensorboard("logs")),
    "trackers.mlflow": ("mlflow", trackers.mlflow),
    "trackers.wandb": ("wandb", trackers.wandb),
}


def said(use: Callable[[], object]) -> str:
    """The message of the error, or what the command wrote."""
    try:
        return str(use())
    except (ImportError, ValueError) as error:
        return str(error)


if __name__ == "__main__":
    print(json.dumps({name: said(use) for name, (_, use) in FEATURES.items()}))
