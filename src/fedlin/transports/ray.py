"""Ray carries the messages: clients run in actors, each on a core of its own with as many clients as fit.

For one machine or a cluster whose members trust each other: Ray pickles what it sends. It is also how clients that hold
one core each, such as PyTorch models, are run on all cores.
"""

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedlin.checks import first_line, positive_integer, shown
from fedlin.errors import ArgumentError
from fedlin.transports.transport import LOOK, Enough, Handler, Payloads

LOOPBACK = "127.0.0.1"
_PATIENCE = 120.0  # seconds for the actors to start; they wait for ever where a running Ray has no core to spare
_LISTENING = 5.0  # seconds in which a cluster has to take a connection
# Ray gives a node the machine's own address whatever it is configured with, except on systems with unusual clusters.
_SETTINGS = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


class RayTransport:
    """The server's side, and the actors that hold the clients.

    `make(name)` is called in the client's actor and returns its handler; `workers` actors share the clients between
    them, one a core by default. A Ray that runs already is used as it is; one started here listens on 127.0.0.1 only
    and ends with `close`.
    """

    def __init__(self, make: Callable[[str], Handler], names: Sequence[str], workers: int | None = None) -> None:
        if not names or len(set(names)) != len(names):
            raise ArgumentError(f"names = {list(names)!r} is not allowed: give each client a name of its own.")
        most = (os.cpu_count() or 1) if workers is None else positive_integer("workers", workers)
        count = min(len(names), most)
        ray, self._started = _start(count)
        self._ray = ray
        actor = ray.remote(num_cpus=1, max_restarts=-1)(_Shard)
        shards = [actor.remote(make) for _ in range(count)]
        self._shards = {name: shards[position % count] for position, name in enumerate(sorted(names))}
        try:
            ray.get([shard.ready.remote() for shard in shards], timeout=_PATIENCE)
        except ray.exceptions.RayError as error:
            self.close()
            raise ArgumentError(
                f"make = {make!r} cannot be used in Ray's processes, or no core is free: {error}"
            ) from error

    def clients(self) -> Sequence[str]:
        """Everyone: an actor that dies is started again."""
        return list(self._shards)

    def exchange(
        self, phase: str, payloads: Payloads, clients: Sequence[str], timeout: float, enough: Enough | None = None
    ) -> Mapping[str, bytes]:
        """Ask the named clients and gather what they answer in time; who fails is absent."""
        ray, deadline = self._ray, time.monotonic() + timeout
        shared = ray.put(payloads) if isinstance(payloads, bytes) else None
        calls: dict[Any, str] = {}
        for name in clients:
            payload = shared if isinstance(payloads, bytes) else payloads[name]
            calls[self._shards[name].answer.remote(name, phase, payload)] = name
        replies: dict[str, bytes] = {}
        waiting = list(calls)
        while waiting and not (replies and enough is not None and enough(replies)):
            left = deadline - time.monotonic()
            done, waiting = ray.wait(waiting, timeout=max(0.0, min(left, LOOK)))
            if not done and left <= 0:
                break
            for call in done:
                try:
                    replies[calls[call]] = ray.get(call)
                except ray.exceptions.RayError:  # its handler raised, or its actor died
                    continue
        return replies

    def close(self) -> None:
        """End the actors, and Ray where it was started here."""
        for shard in set(self._shards.values()):
            self._ray.kill(shard)
        self._shards = {}
        if self._started:
            self._ray.shutdown()


class _Shard:
    """An actor: some clients in one process, answering one message at a time."""

    def __init__(self, make: Callable[[str], Handler]) -> None:
        self.make = make
        self.handlers: dict[str, Handler] = {}

    def ready(self) -> None:
        pass

    def answer(self, name: str, phase: str, payload: bytes) -> bytes:
        if name not in self.handlers:
            self.handlers[name] = self.make(name)
        return self.handlers[name](phase, payload)


def connect_ray(address: str, cores: int | None) -> tuple[Any, bool]:
    """Ray at an address, or with "local" one started here; and whether it was started here."""
    if address == "local":
        return _start(cores or os.cpu_count() or 1)
    try:
        _check_listening(address)
        import ray

        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except ImportError as error:
        raise ArgumentError("--ray needs Ray: pip install 'fedlin[ray]'.") from error
    except (OSError, ValueError, OverflowError, RuntimeError) as error:
        raise ArgumentError(
            f"no Ray cluster answers at {shown(address)}: {first_line(error)}. Start one by `ray start --head`, or say "
            "`--ray local`."
        ) from error
    return ray, True


def _check_listening(address: str) -> None:
    """Raise OSError where nothing listens at HOST:PORT or ray://HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isascii() and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _LISTENING).close()


def _start(cores: int) -> tuple[Any, bool]:
    """Ray, and whether it was started here."""
    late = "ray" in sys.modules and any(name not in os.environ for name in _SETTINGS)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ArgumentError("This transport needs Ray: pip install 'fedlin[ray]'.") from error
    if ray.is_initialized():
        return ray, False
    if late:
        raise ArgumentError(
            "Ray was imported before this transport and would listen on every address of this machine: make the "
            "transport first, or start Ray yourself with ray.init() and its addresses as you want them."
        )
    ray.init(
        "local",
        num_cpus=cores,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},  # actors import what their maker can
    )
    nodes: Any = ray.nodes  # Ray gives it no types
    addresses = {node["NodeManagerAddress"] for node in nodes()}
    if addresses != {LOOPBACK}:
        ray.shutdown()
        raise ArgumentError(f"Ray took the address {', '.join(addresses)} instead of {LOOPBACK}: use ray 2.60.")
    return ray, True
