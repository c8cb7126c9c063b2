"""Clients in the server's own process: the shortest way to try a federation, and to test one."""

from collections.abc import Mapping, Sequence

from fedlin.transports.transport import Enough, Handler, Payloads, by_client


class Loopback:
    """Calls every client's handler in turn; one that raises ConnectionError has failed to answer.

    >>> loopback = Loopback({"b": lambda phase, payload: payload, "a": lambda phase, payload: payload * 2})
    >>> loopback.clients(), loopback.exchange("model", b"x", ["a", "b"], timeout=1.0)
    (['a', 'b'], {'a': b'xx', 'b': b'x'})
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers = dict(handlers)

    def clients(self) -> Sequence[str]:
        """Everyone, sorted."""
        return sorted(self.handlers)

    def exchange(
        self, phase: str, payloads: Payloads, clients: Sequence[str], timeout: float, enough: Enough | None = None
    ) -> Mapping[str, bytes]:
        """The replies, one client after the other; a call in process cannot be late, so `timeout` is not used."""
        replies: dict[str, bytes] = {}
        messages = by_client(payloads, clients)
        for name in clients:
            if name not in self.handlers:
                continue
            try:
                replies[name] = self.handlers[name](phase, messages[name])
            except ConnectionError:
                continue
            if enough is not None and enough(replies):
                break
        return replies

    def close(self) -> None:
        """Forget the clients."""
        self.handlers.clear()
