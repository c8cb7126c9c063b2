"""A transport whose clients take a given time to answer, on a clock of its own: seconds cost nothing, and are exact."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from fedlin.transports.transport import LOOK, Enough, Handler, Payloads, by_client


class Clocked:
    """One request to a client is under way at a time, as over FLARE; the newest waits meanwhile."""

    def __init__(self, handlers: Mapping[str, Handler], seconds: Callable[[str, float], float]) -> None:
        self.handlers = handlers
        self.seconds = seconds  # (client, now) -> how long its answer to what it is asked now takes
        self.now = 0.0
        self.failures: dict[str, str] = {}
        self._under_way: dict[str, tuple[float, int, bytes]] = {}  # when the reply arrives, to which exchange
        self._exchanges = 0

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Let the engine read this clock."""
        patch.setattr("time.monotonic", lambda: self.now)

    def clients(self) -> Sequence[str]:
        return sorted(self.handlers)

    def close(self) -> None: ...

    def exchange(
        self, phase: str, payloads: Payloads, clients: Sequence[str], timeout: float, enough: Enough | None = None
    ) -> Mapping[str, bytes]:
        deadline, replies = self.now + timeout, dict[str, bytes]()
        self._exchanges += 1
        waiting, pending = dict(by_client(payloads, clients)), set(clients)
        while pending:
            for name in [name for name in waiting if name not in self._under_way]:
                reply = self.handlers[name](phase, waiting.pop(name))
                self._under_way[name] = self.now + self.seconds(name, self.now), self._exchanges, reply
            if (replies and enough is not None and enough(replies)) or self.now >= deadline:
                break
            arrivals = [when for when, _, _ in self._under_way.values()]
            self.now = min([self.now + LOOK, deadline, *arrivals])
            for name, (when, number, reply) in list(self._under_way.items()):
                if when <= self.now:
                    replies[name] = reply
                    del self._under_way[name]
                    if number == self._exchanges:
                        pending.discard(name)
        return replies
