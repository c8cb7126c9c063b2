"""A network of this machine's own: a namespace for the server and for each site, and a link of a given speed to each.

Every site has a pair of virtual interfaces to a bridge at the server. Both ends are shaped by `tc tbf`, so that up and
down have the speed each and sites do not take it from each other. Latency comes from `delay_relay` at each site, since
not every kernel has netem. All of it needs root.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

HOST, ADDRESS, PORT = "thin-server", "10.77.0.1", 8002  # of the server, inside the namespaces
_BRIDGE = "br0"
BURST, _QUEUE = (
    1600,
    4,
)  # bytes sent at once, a packet; seconds of bytes that wait before any is dropped
_HOSTS = Path("/etc/netns")  # where `ip netns exec` finds files of a namespace's own

Command = list[str]


def setup_commands(prefix: str, sites: Sequence[str]) -> list[Command]:
    """What makes the namespaces and their links.

    >>> len(setup_commands("x-", ["north"]))
    12
    """
    server = f"{prefix}server"
    commands = [
        f"ip netns add {server}",
        f"ip -n {server} link set lo up",
        f"ip -n {server} link add {_BRIDGE} type bridge",
        f"ip -n {server} addr add {ADDRESS}/24 dev {_BRIDGE}",
        f"ip -n {server} link set {_BRIDGE} up",
    ]
    for number, site in enumerate(sites):
        name, there, here = f"{prefix}{site}", f"to{number}", "uplink"
        commands += [
            f"ip netns add {name}",
            f"ip -n {name} link set lo up",
            f"ip link add {there} netns {server} type veth peer name {here} netns {name}",
            f"ip -n {server} link set {there} master {_BRIDGE}",
            f"ip -n {server} link set {there} gso_max_segs 1 up",
            f"ip -n {name} addr add {ADDRESS.rpartition('.')[0]}.{number + 2}/24 dev {here}",
            f"ip -n {name} link set {here} gso_max_segs 1 up",  # real packets, so that all their headers count
        ]
    return [command.split() for command in commands]


def shape_commands(prefix: str, sites: Sequence[str], mbit: float) -> list[Command]:
    """What gives both ends of every link a speed.

    >>> " ".join(shape_commands("x-", ["north"], 0.5)[1])
    'tc -n x-north qdisc replace dev uplink root tbf rate 500000bit burst 1600 limit 251600'
    """
    limit = round(mbit * 1e6 / 8 * _QUEUE) + BURST
    ends = [end for number, site in enumerate(sites) for end in (("server", f"to{number}"), (site, "uplink"))]
    return [
        f"tc -n {prefix}{name} qdisc replace dev {device} root tbf "
        f"rate {mbit * 1e6:.0f}bit burst {BURST} limit {limit}".split()
        for name, device in ends
    ]


def why_not() -> str | None:
    """What is missing for such a network here; None where nothing is."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"there is no {tool}: install iproute2"
    try:
        with ThinNetwork(["probe"]) as network:
            network.shape(1.0)
            return None
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)} failed: {error.stderr.strip()}"


class ThinNetwork:
    """The namespaces and relays while they are entered; links are as fast as they are until they are shaped.

    Args:
        sites: The names of the sites.
        delay: Seconds that each message takes more.
    """

    def __init__(self, sites: Sequence[str], delay: float = 0.0) -> None:
        self.sites = tuple(sites)
        self.delay = delay
        self._prefix = f"fedlin{os.getpid()}-"
        self._relays: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "ThinNetwork":
        try:
            for command in setup_commands(self._prefix, self.sites):
                _do(command)
            for name in ("server", *self.sites):
                address = ADDRESS if name == "server" else "127.0.0.1"  # the relay's
                place = _HOSTS / f"{self._prefix}{name}"
                place.mkdir(parents=True)
                (place / "hosts").write_text(f"127.0.0.1 localhost\n{address} {HOST}\n", encoding="utf-8")
            relay = [sys.executable, "-m", "benchmarks.delay_relay", str(PORT), ADDRESS, str(self.delay)]
            for site in self.sites:
                self._relays.append(subprocess.Popen([*self.within(site), *relay], start_new_session=True))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the relays and take everything down; links go with their namespaces."""
        for relay in self._relays:
            relay.kill()
            relay.wait()
        for name in ("server", *self.sites):
            subprocess.run(["ip", "netns", "delete", f"{self._prefix}{name}"], capture_output=True, check=False)
            shutil.rmtree(_HOSTS / f"{self._prefix}{name}", ignore_errors=True)

    def shape(self, mbit: float) -> None:
        """Give every link this speed, in megabits a second each way."""
        for command in shape_commands(self._prefix, self.sites, mbit):
            _do(command)

    def within(self, name: str) -> Command:
        """The words that go before a command of the server or a site."""
        return ["ip", "netns", "exec", f"{self._prefix}{name}"]

    def carried(self) -> int:
        """Bytes that have gone over all links so far, both ways, with every header down to Ethernet's."""
        listed = json.loads(_do(["ip", "-n", f"{self._prefix}server", "-s", "-j", "link"]))
        links = [link["stats64"] for link in listed if link["ifname"].startswith("to")]
        return sum(int(link[way]["bytes"]) for link in links for way in ("rx", "tx"))


def _do(command: Command) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
