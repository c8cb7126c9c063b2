"""Several federations over one transport: each has a name, which its messages' routes begin with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedlin.transports.transport import Enough, Handler, Payloads, Transport


@dataclass(frozen=True)
class Routed:
    """The server's side of the federation called `name`; closing it leaves the others their transport.

    >>> from fedlin.transports.loopback import Loopback
    >>> sites = Loopback({"a": by_name(lambda name: lambda phase, payload: f"{name} {phase}".encode())})
    >>> Routed(sites, "second").exchange("model", b"", ["a"], 1.0)
    {'a': b'second model'}
    """

    transport: Transport
    name: str

    def clients(self) -> Sequence[str]:
        """Who can be reached now."""
        return self.transport.clients()

    def exchange(
        self, phase: str, payloads: Payloads, clients: Sequence[str], timeout: float, enough: Enough | None = None
    ) -> Mapping[str, bytes]:
        """The transport's exchange, on this federation's route."""
        return self.transport.exchange(f"{self.name}/{phase}", payloads, clients, timeout, enough)

    def close(self) -> None:
        """Nothing is this federation's alone."""


def by_name(make: Callable[[str], Handler]) -> Handler:
    """A client's side: the handler of each federation is made by its name when its first message comes."""
    handlers: dict[str, Handler] = {}

    def answer(phase: str, payload: bytes) -> bytes:
        name, _, route = phase.partition("/")
        if name not in handlers:
            handlers[name] = make(name)
        return handlers[name](route, payload)

    return answer
