"""A network for replicas on one machine in which each directed stream between two of them has a
link of its own, whose rate can be bounded.

Owns the namespaces and links. Must not know replicas. Every node has a namespace with one address;
every two nodes share a veth pair, over which each reaches the other's address and no other, so the
token bucket (`tc tbf`) at either end bounds what one node sends to one other and nothing else. The
client has a namespace too, with a veth pair to each node that is never bounded: what is shaped is
replication, not appends and acknowledgements.

    node 1 ═══ node 2       ═══  a veth pair, tbf at both ends while the network is shaped
       ╚═ node 3 ═╝
    client ─── node 1, 2, 3   ───  a veth pair each, never shaped
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import combinations, permutations

from benchmarks.namespaces import Namespace, tbf_words

CLIENT = 0
_ADDRESS = "10.87.0.{}"  # of nodes; nobody outside meets it
_CLIENT_HOST = 100


class ShapedNetwork:
    """Namespaces of `nodes` (ids from 1 to 99) and of the client, their links unbounded at first.
    Used by one thread; close it, or use it as a context manager.

    Raises:
      OSError, LogStoreError: it cannot be made here (see `namespaces.why_not`).
    """

    def __init__(self, nodes: Sequence[int]) -> None:
        self.nodes = tuple(nodes)
        with ExitStack() as undo:
            self._namespaces = {
                place: undo.enter_context(Namespace()) for place in (CLIENT, *self.nodes)
            }
            for place, namespace in self._namespaces.items():
                namespace.run("ip", "address", "add", f"{self.address(place)}/32", "dev", "lo")
            for one, other in combinations(self._namespaces, 2):
                self._link(one, other)
            self._undo = undo.pop_all()

    def __enter__(self) -> ShapedNetwork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all of it. Processes inside should have ended."""
        self._undo.close()

    def address(self, place: int) -> str:
        """The IPv4 address of a node, or of the client."""
        return _ADDRESS.format(_CLIENT_HOST if place == CLIENT else place)

    def entered(self, place: int) -> AbstractContextManager[None]:
        """This thread is there meanwhile, and what it starts begins there."""
        return self._namespaces[place].entered()

    def namespaces(self) -> dict[int, int]:
        """The kernel's number of each namespace, by node id or CLIENT."""
        return {place: each.number for place, each in self._namespaces.items()}

    def shape(self, bytes_per_s: int) -> None:
        """From now on each directed stream between two nodes has this rate, headers included.

        Raises:
          LogStoreError: `tc` failed.
        """
        for one, other in permutations(self.nodes, 2):
            self._shape(one, other, bytes_per_s)

    def shape_to(self, node: int, bytes_per_s: int) -> None:
        """As `shape`, of the streams to one node only."""
        for one in self.nodes:
            if one != node:
                self._shape(one, node, bytes_per_s)

    def _shape(self, one: int, other: int, bytes_per_s: int) -> None:
        self._namespaces[one].run(
            "tc", "qdisc", "replace", "dev", _device(other), "root", "tbf",
            *tbf_words(bytes_per_s),
        )  # fmt: skip

    def unshape(self) -> None:
        """No stream is bounded any more.

        Raises:
          LogStoreError: `tc` failed.
        """
        for one, other in permutations(self.nodes, 2):
            self._namespaces[one].run(
                "tc", "qdisc", "replace", "dev", _device(other), "root", "noqueue"
            )

    def versions(self) -> dict[str, str]:
        """Of the tools, and how TCP finds its rate here."""
        namespace = self._namespaces[CLIENT]
        congestion_control = namespace.run("cat", "/proc/sys/net/ipv4/tcp_congestion_control")
        return {
            "tc": namespace.run("tc", "-V").strip(),
            "tcp_congestion_control": congestion_control.strip(),
        }

    def _link(self, one: int, other: int) -> None:
        first, second = self._namespaces[one], self._namespaces[other]
        first.run(
            "ip", "link", "add", "name", _device(other), "type", "veth",
            "peer", "name", _device(one), "netns", second.path_for_children,
            also=[second],
        )  # fmt: skip
        for namespace, here, there in ((first, one, other), (second, other, one)):
            device = _device(there)
            namespace.run("ip", "link", "set", device, "up")
            namespace.run(
                "ip", "route", "add", f"{self.address(there)}/32", "dev", device,
                "src", self.address(here),
            )  # fmt: skip


def _device(place: int) -> str:
    return f"to-{place}" if place != CLIENT else "to-client"
