"""Flower carries the messages: the server's side runs in a ServerApp, a client's in a ClientApp.

A message is a query whose one ConfigRecord holds the route and the payload as bytes, which Flower sends as they are, in
three objects with some 350 bytes around them; an array would take six objects and 600 bytes more. Flower's own loop
looks for replies every three seconds, so this one does without it.

Flower promises a client no process: a SuperNode starts one for every message, and a simulation gives each message to
any of its workers. So a handler is made for every message, and what a client remembers has to be on its disk.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

try:
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
except ModuleNotFoundError as cause:
    message = "fedlin.transports.flower needs Flower: pip install 'fedlin[flower]'."
    raise ModuleNotFoundError(message, name="flwr") from cause

from fedlin.errors import ArgumentError
from fedlin.transports.transport import Enough, Handler, Payloads, by_client

if TYPE_CHECKING:
    from flwr.serverapp import Grid

Config = Mapping[str, Any]
_RECORD = "fedlin"
_ASK_NAME = "name"  # the route on which a node sends its name
_PATIENCE = 600.0  # seconds a node has for that; nobody waits for it
_FIRST, _LAST = 0.01, 0.5  # seconds between two looks for replies


class FlowerTransport:
    """The server's side, alive while the ServerApp's main function runs.

    A node's name is the one its key was registered with. A node that was registered without one, or not at all, is
    asked for a name, and not heard under one that is taken.
    """

    def __init__(self, grid: "Grid") -> None:
        self._grid = grid
        self._names: dict[int, str] = {}  # names by node, in the order they came
        self._asked: dict[str, int] = {}  # nodes that have yet to send theirs, by message

    def clients(self) -> Sequence[str]:
        """The nodes that are connected and whose names are known by now."""
        return sorted(self._nodes())

    def exchange(
        self, phase: str, payloads: Payloads, clients: Sequence[str], timeout: float, enough: Enough | None = None
    ) -> Mapping[str, bytes]:
        """Ask the named nodes and look for replies until the time is up; who fails is absent.

        A request expires with its timeout, so that a node that was away skips requests that nobody waits for.
        """
        begun = time.monotonic()
        nodes, messages = self._nodes(), by_client(payloads, clients)
        queries = {
            name: _query(nodes[name], timeout, ConfigRecord({"phase": phase, "payload": bytes(messages[name])}))
            for name in nodes.keys() & set(clients)
        }
        waiting = self._push(queries)
        replies: dict[str, bytes] = {}
        while waiting and not (replies and enough is not None and enough(replies)):
            for number, reply in self._pull(waiting, "payload"):
                name = waiting.pop(number)
                if isinstance(reply, bytes):
                    replies[name] = reply
            waited = time.monotonic() - begun
            if waited > timeout:
                break
            if waiting:  # a look is a request: the longer the wait, the fewer of them
                time.sleep(min(max(_FIRST, waited / 20), _LAST))
        return replies

    def close(self) -> None:
        """Nothing is held: the grid is the ServerApp's."""

    def _nodes(self) -> dict[str, int]:
        """Who is there, by name; a new node without a name is asked, and is there once its answer came."""
        registered = {info.node_id: info.name for info in self._grid.get_nodes()}
        for number, name in self._pull(self._asked, "name"):
            node = self._asked.pop(number)
            if isinstance(name, str):
                self._names[node] = name
        named = {name: node for node, name in registered.items() if name}
        for node, name in self._names.items():
            if node in registered:
                named.setdefault(name, node)
        new = registered.keys() - set(named.values()) - self._names.keys() - set(self._asked.values())
        self._asked |= self._push({node: _query(node, _PATIENCE, ConfigRecord(), _ASK_NAME) for node in new})
        return named

    def _push(self, queries: Mapping[Any, Message]) -> dict[str, Any]:
        """Send; to whom each message that was taken is, by its number."""
        if not queries:
            return {}
        taken = set(self._grid.push_messages(list(queries.values())))
        return {m.metadata.message_id: to for to, m in queries.items() if m.metadata.message_id in taken}

    def _pull(self, waiting: Iterable[str], field: str) -> list[tuple[str, object]]:
        """What has come, by the number of the message it answers; None where a node failed or sent no such field."""
        numbers = list(waiting)
        replies = list(self._grid.pull_messages(numbers)) if numbers else []
        return [(m.metadata.reply_to_message_id, _field(m, field)) for m in replies]


def _field(message: Message, field: str) -> object:
    if message.has_error() or _RECORD not in message.content:
        return None
    return message.content[_RECORD].get(field)


def client_app(make: Callable[[str, Config], Handler]) -> ClientApp:
    """The client's side: `make(name, config)` gives the handler for one message.

    `config` is the run's settings, and above them the node's own, which its owner gave to the SuperNode. The name is
    the node's setting `name`, or made of its place in a simulation.
    """
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        record = message.content[_RECORD]
        handler = make(_name(context), {**context.run_config, **context.node_config})
        reply = handler(str(record["phase"]), record["payload"])
        return Message(RecordDict({_RECORD: ConfigRecord({"payload": reply})}), reply_to=message)

    def tell(message: Message, context: Context) -> Message:
        return Message(RecordDict({_RECORD: ConfigRecord({"name": _name(context)})}), reply_to=message)

    app.query()(answer)
    app.query(_ASK_NAME)(tell)
    return app


def _name(context: Context) -> str:
    own = context.node_config
    if "name" in own:
        return str(own["name"])
    if "partition-id" not in own:
        raise ArgumentError("This node has no name: start its SuperNode with --node-config 'name=\"north\"'.")
    digits = len(str(int(own["num-partitions"]) - 1))  # so that names sort as numbers do
    return f"site-{int(own['partition-id']):0{digits}d}"


def _query(node: int, seconds: float, record: ConfigRecord, route: str | None = None) -> Message:
    kind = "query" if route is None else f"query.{route}"
    return Message(RecordDict({_RECORD: record}), dst_node_id=node, message_type=kind, ttl=seconds)
